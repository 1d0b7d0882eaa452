"""tree=auto on a simulated machine."""

import pytest
from support.simulated_machine import Cache, Machine

from lantern.errors import LanternError
from lantern.pipeline import DrafterOverrides
from lantern.runtime import memory
from lantern.tuning.auto import CHOICE, WINDOWS, AutoTree, SavedChoice

EAGLE, JACOBI, REFINED = {"tree"}, {"length"}, {"length", "branches"}


def found(machine: Machine, batch_size: int = 1) -> DrafterOverrides | None:
    return AutoTree(["a"], batch_size).resolve(machine)


def test_cheap_levels_give_deep_trees_and_dear_nodes_small_ones():
    """Catches a choice that ignores what a node or a level costs."""
    costs = {"deep": (0.01, 0.01), "shallow": (0.01, 0.3), "small": (0.2, 0.01)}
    trees = {name: found(Machine(1.0, *cost))["tree"] for name, cost in costs.items()}
    assert trees["deep"].depth > trees["shallow"].depth
    assert trees["small"].num_nodes <= 7
    assert trees["deep"].name.startswith("auto_")


@pytest.mark.parametrize("node", [0.002, 0.02, 0.1])
def test_the_window_is_as_long_as_its_nodes_are_cheap(node):
    """Catches a length that ignores what a node costs, or what deep guesses bring."""
    machine = Machine(1.0, node, 0.0, frozenset(JACOBI), guessed=lambda depth, length: 0.8)
    best = max(machine.speed({"length": length}, 1) for length in WINDOWS)
    shape = found(machine)
    assert set(shape) == {"length"}
    assert machine.speed(shape, 1) > 0.95 * best


@pytest.mark.parametrize(("node", "branches"), [(0.002, range(12, 25)), (0.3, [0])])
def test_a_window_branches_where_nodes_are_cheap(node, branches):
    """Catches branches that are never tried, and such as cost more than they bring."""
    shape = found(Machine(1.0, node, 0.0, frozenset(REFINED), guessed=lambda depth, length: 0.8))
    assert shape["branches"] in branches


def test_what_the_search_recorded_ends_with_it(monkeypatch):
    """Catches a row that warns of a pass which only a shape that was not taken has, and recordings of a dozen shapes
    that keep their memory."""
    machine, cleared = Machine(1.0, 0.01, 0.01), []
    monkeypatch.setattr(machine.target.passes, "clear", lambda: cleared.append(len(machine.asked)))
    found(machine)
    assert cleared == [len(machine.asked)]


class ShallowMachine(Machine):
    """One whose drafter predicts `levels` levels."""

    levels = 4

    def __call__(self, shape):
        if shape and shape["tree"].depth > self.levels:
            raise LanternError("give a shallower tree")
        return super().__call__(shape)


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_trees_are_no_deeper_than_the_drafter_predicts(monkeypatch, levels):
    """Catches a search that ends with advice to give a shallower tree, and one that then tries none as deep as may
    be."""
    monkeypatch.setattr(ShallowMachine, "levels", levels)
    machine = ShallowMachine(1.0, 0.01, 0.01, drafted=lambda depth: 0.9)
    assert found(machine)["tree"].depth == levels


def test_what_does_not_fit_in_memory_is_not_tried(monkeypatch):
    """Catches a search that ends with advice to give a smaller batch, where small trees of this batch fit."""
    monkeypatch.setattr(memory, "available_memory", lambda device: 64 * 5 * 10**6)
    cheap = {"node": 0.0001, "level": 0.01, "drafted": lambda depth: 0.9}
    whole = found(Machine(1.0, **cheap), 64)["tree"]
    fitting = found(Machine(1.0, **cheap, target=Cache(node_bytes=10**6)), 64)
    assert whole.num_nodes > 5
    assert 1 < fitting["tree"].num_nodes <= 5


def test_a_shape_that_leaves_the_rule_nothing_to_judge_is_not_tried():
    """Catches a choice that is stored and then refused, in every further start of the run."""
    dear = {"node": 0.01, "level": 0.5, "drafted": lambda depth: 0.9}
    deepest = found(Machine(1.0, **dear))["tree"].depth
    chosen = found(Machine(1.0, **dear, skip=deepest))
    assert chosen is None or chosen["tree"].depth > deepest


def test_no_tree_where_plain_decoding_is_faster():
    """Catches a tree forced on a device on which it does not pay."""
    assert found(Machine(1.0, 1.0, 2.0)) is None


def test_a_gain_within_noise_is_none():
    """Catches a choice of what may as well be slower: at best 1.7 tokens a round that costs 1.68 times a plain one."""
    machine = Machine(1.0, 0.0, 0.68, drafted=lambda depth: 0.7 if depth == 1 else 0.0)
    assert found(machine) is None
    assert None in [shape for shape, _ in machine.asked[-5:]]  # it was compared with plain decoding


@pytest.mark.parametrize("takes", [EAGLE, JACOBI])
def test_at_large_batches_plain_decoding_wins_without_many_a_batch_being_decoded(takes):
    """Catches a search that decodes whole batches with shapes that cannot win, and one that trusts a batch of one."""
    machine = Machine(1.0, 0.03, 0.05, frozenset(takes), lambda depth: 0.6, lambda depth, length: 0.6)
    assert found(machine, 1) is not None
    machine.asked.clear()
    assert found(machine, 256) is None
    assert not machine.asked


@pytest.mark.parametrize(("takes", "node"), [(EAGLE, 0.05), (JACOBI, 0.05), (REFINED, 0.05), (EAGLE, 1.0)])
def test_a_killed_run_goes_on_with_the_shape_it_had_found_or_with_none(takes, node, tmp_path):
    """Catches a search that is repeated, and a shape that comes back from the disk as another."""
    search = AutoTree(["a"])
    machines = [Machine(1.0, node, 2 * node, frozenset(takes), guessed=lambda depth, length: 0.8) for _ in range(3)]
    first, again, other = (
        search.at(1, SavedChoice(tmp_path / CHOICE, asked)).resolve(machine)
        for asked, machine in zip(("run", "run", "another run"), machines, strict=True)
    )
    assert not machines[1].asked
    assert machines[2].asked
    assert written(first) == written(again) == written(other)
    assert (first is None) == (node == 1.0)


def written(shape: DrafterOverrides | None) -> dict:
    settings = shape.items() if shape else ()
    return {name: value if isinstance(value, int) else (value.name, value.num_nodes) for name, value in settings}


class Chains(Machine):
    """One whose verification judges no tree with more children of a node than `widest`."""

    widest = 1

    def __call__(self, shape):
        def refuse(*_):
            raise LanternError("give a chain")

        decoder = super().__call__(shape)
        if shape and shape["tree"].width > self.widest:
            decoder.first_rounds = decoder.generate = refuse
        return decoder


@pytest.mark.parametrize("batch_size", [1, 2])
def test_shapes_that_the_verification_refuses_are_not_tried(batch_size, monkeypatch):
    """Catches a search that ends at the first of them, and plain decoding without a word where all are refused."""
    machine = Chains(1.0, 0.01, 0.01, drafted=lambda depth: 0.9)
    assert found(machine, batch_size)["tree"].width == 1
    monkeypatch.setattr(Chains, "widest", 0)
    with pytest.raises(LanternError, match="give a chain"):
        found(machine, batch_size)
