"""tree=auto on a machine made up of numbers: a chain-like acceptance and a round that costs what it is told to."""

import random

import pytest
import torch

from lantern.trees.auto import AutoTree, Dynamic, Static, round_cost
from lantern.types import Generation, Round

LENGTH, FOLLOWED = 257, 0.7


class Machine:
    """Decodes with a tree whose best node is followed with a fixed chance at every level; remembers its trees."""

    def __init__(self, base: float, node: float, level: float) -> None:
        self.cost, self.asked = (base, node, level), []

    def pipeline(self, tree):
        machine, cost = self, self.cost

        class Decoder:
            def generate(self, prompts, seeds, batch_size):
                machine.asked.append(tree)
                size, depth = (tree.num_nodes - 1, tree.depth) if tree else (0, 0)
                chain = first_children(tree) if tree else []
                rng, rounds, left = random.Random(0), [], LENGTH - 1
                while left > 0:
                    count = next((d for d in range(len(chain)) if rng.random() > FOLLOWED), len(chain))
                    count = min(count, left - 1)
                    rounds.append(Round([[0, *chain[:count]]], size + 1, 0.0, 0.0, 0.0))
                    left -= count + 1
                seconds = len(rounds) * (cost[0] + cost[1] * size + cost[2] * depth)
                tokens = torch.zeros(1, LENGTH, dtype=torch.long)
                return Generation(tokens, rounds, torch.tensor([len(rounds)]), seconds, 0)

        return Decoder()


def first_children(tree) -> list[int]:
    """The nodes of the path of first children; a dynamic tree's are taken to be its best ones."""
    paths = [(), *tree.paths] if tree.kind == "static" else None
    return [paths.index((0,) * d) for d in range(1, tree.depth + 1)] if paths else list(range(1, tree.depth + 1))


@pytest.mark.parametrize("family", [Dynamic(), Static()])
def test_cheap_levels_give_deep_trees_and_dear_nodes_small_ones(family):
    """Catches a choice that ignores what a node or a level costs."""
    deep = AutoTree([family], ["a"]).resolve(Machine(base=1.0, node=0.01, level=0.01).pipeline)
    shallow = AutoTree([family], ["a"]).resolve(Machine(base=1.0, node=0.01, level=0.3).pipeline)
    small = AutoTree([family], ["a"]).resolve(Machine(base=1.0, node=0.2, level=0.01).pipeline)
    assert deep.depth > shallow.depth
    assert small.num_nodes <= 7
    assert deep.name.startswith("auto_")


def test_no_tree_where_plain_decoding_is_faster():
    """Catches a tree forced on a device on which it does not pay, as at large batches."""
    assert AutoTree([Dynamic(), Static()], ["a"]).resolve(Machine(base=1.0, node=1.0, level=2.0).pipeline) is None


def test_a_second_search_starts_afresh():
    """Catches what one batch size taught leaking into the next one's search, whose nodes then mean other paths."""
    search = AutoTree([Dynamic(), Static()], ["a"])
    machines = [Machine(base=1.0, node=0.05, level=0.1) for _ in range(2)]
    found = [search.at(1).resolve(machine.pipeline) for machine in machines]
    assert [tree and tree.name for tree in machines[0].asked] == [tree and tree.name for tree in machines[1].asked]
    assert [getattr(t, "paths", None) for t in machines[0].asked] == [
        getattr(t, "paths", None) for t in machines[1].asked
    ]
    assert found[0].name == found[1].name


def test_the_choice_has_been_decoded_with():
    """Catches an estimate that is trusted without a trial."""
    machine = Machine(base=1.0, node=0.05, level=0.1)
    found = AutoTree([Dynamic()], ["a"]).resolve(machine.pipeline)
    assert found in machine.asked


def test_round_cost_is_linear_in_nodes_and_levels():
    """Catches columns mixed up."""
    cost = round_cost([(63, 6), (3, 2), (12, 5)], [5 + 0.5 * n + 2 * d for n, d in ((63, 6), (3, 2), (12, 5))])
    assert cost(20, 4) == pytest.approx(5 + 10 + 8)
