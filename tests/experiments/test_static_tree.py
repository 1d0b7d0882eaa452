"""The tree search run as a command would: on a machine made up of numbers."""

import pytest
import yaml
from support.simulated_machine import Machine

from lantern.errors import LanternError
from lantern.experiments.static_tree import TreeSearch
from lantern.trees.static import StaticTree, chain


def test_the_searched_tree_is_written_as_a_yaml_and_beats_the_others(tmp_path):
    """Catches a search that writes another tree than it timed, a yaml that no tree can be built from, and a row that
    compares with the wrong baseline."""
    machine = Machine(base=1.0, node=0.01, level=0.05)
    wide = StaticTree([[rank] for rank in range(12)])
    rows = TreeSearch({"wide": wide, "short": chain(1)}, 3).run(machine, ["a", "b"], 0, tmp_path)
    written = yaml.safe_load((tmp_path / "searched.yaml").read_text())
    assert written["_target_"] == "lantern.trees.static.StaticTree"
    tree = StaticTree(written["paths"])
    assert rows[-1]["tree"] == written["name"] == "searched"
    assert rows[-1]["nodes"] == tree.num_nodes - 1
    assert any(shape is not None and shape.paths == tree.paths for shape, _ in machine.asked[-14:])
    assert rows[0] == {"tree": "none", "nodes": 0, "tokens_per_step": 1.0, "speedup": 1.0, "speedup_low": 1.0,
                       "speedup_high": 1.0}  # fmt: skip
    assert rows[-1]["speedup"] == max(row["speedup"] for row in rows)


def test_a_tree_of_given_size_commits_most_whatever_it_costs(tmp_path):
    """Catches a search that weighs costs although the size is given."""
    dear = Machine(base=1.0, node=1.0, level=1.0)
    same_size = StaticTree([[rank] for rank in range(4)])
    *_, wide, searched = TreeSearch({"wide": same_size}, 3, nodes=4).run(dear, ["a", "b"], 0, tmp_path)
    assert searched["nodes"] == wide["nodes"] == 4
    assert searched["tokens_per_step"] > wide["tokens_per_step"]
    assert searched["speedup"] < 1


@pytest.mark.parametrize("nodes", [0, 2.5])
def test_a_size_out_of_bounds_is_one_sentence(nodes):
    with pytest.raises(LanternError, match=rf"study\.nodes={nodes}; give 1 to 63"):
        TreeSearch({}, 3, nodes)
