"""A machine for tree=auto to search on: acceptance as on a chain, and rounds of given costs."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from lantern.engine.graphs import EagerPasses
from lantern.runtime.memory import check_memory
from lantern.types import Generation, Round

LENGTH = 257
MISSED = 0.95  # by a node beside a window: the share of its places' misses that is left


@dataclass
class Machine:
    """Decodes with shapes whose best node is followed with a chance of its own at every depth; records its
    calls."""

    base: float  # seconds of a round
    node: float  # of a node of every image, the root included
    level: float
    drafter_parameters: frozenset[str] = frozenset({"tree"})
    drafted: Callable[[int], float] = lambda depth: 0.7
    guessed: Callable[[int, int], float] = lambda depth, length: 0.0  # by depth, and by how long the window is
    skip: int = 0  # levels that the rule does not judge
    asked: list = field(default_factory=list)  # shape and number of images
    target: object = field(default_factory=lambda: Cache())

    def __call__(self, shape):
        return Decoder(self, shape)

    def parts(self, shape) -> tuple[int, int, list[int], list[float]]:
        """Nodes, levels, and the nodes and chances of the path of likeliest nodes."""
        settings = shape if isinstance(shape, Mapping) else {"tree": shape} if shape else {}
        tree, length = settings.get("tree"), settings.get("length", 0)
        nodes, levels = (tree.num_nodes - 1, tree.depth) if tree else (0, 0)
        chances = [self.drafted(depth) for depth in range(1, levels + 1)]
        beside = settings.get("branches", 0)
        chances += [1 - (1 - self.guessed(place, length)) * MISSED**beside for place in range(1, length + 1)]
        path = first_children(tree) if tree else []
        return nodes + length + beside, levels, [*path, *range(nodes + 1, nodes + 1 + length)], chances

    def seconds(self, shape, images: int) -> float:
        nodes, levels, *_ = self.parts(shape)
        return self.base + self.node * (1 + nodes) * images + self.level * levels

    def speed(self, shape, images: int) -> float:
        """Tokens a second, expected."""
        total, reached = 1.0, 1.0
        for chance in self.parts(shape)[3]:
            reached *= chance
            total += reached
        return total / self.seconds(shape, images)


@dataclass
class Cache:
    """A target's, of which only the allocations are known."""

    codebook, vocab_size, held_bytes = torch.zeros(1), 1, 0
    passes: object = field(default_factory=EagerPasses)
    node_bytes: int = 0  # of an image

    def image_bytes(self, num_nodes):
        return num_nodes * self.node_bytes


class Decoder:
    def __init__(self, machine: Machine, shape) -> None:
        self.machine, self.shape, self.target = machine, shape, machine.target
        nodes, _, _, chances = machine.parts(shape)
        sizes = {"num_nodes": 1 + nodes, "depth": len(chances)}
        self.drafter = SimpleNamespace(name="simulated", **sizes)
        self.rule = SimpleNamespace(parameters={"skip": machine.skip})

    def generate(self, prompts, seeds, batch_size):
        self.machine.asked.append((self.shape, batch_size))
        _, _, path, chances = self.machine.parts(self.shape)
        rng, rounds, left = random.Random(0), [], (LENGTH - 1) * len(prompts) // batch_size
        seconds = self.machine.seconds(self.shape, batch_size)
        while left > 0:
            count = min(committed(rng, chances), left - 1)
            rounds.append(Round([[0, *path[:count]]], 1 + len(path), 0.0, 1e3 * seconds, 0.0))
            left -= count + 1
        tokens = torch.zeros(len(prompts), LENGTH, dtype=torch.long)
        return Generation(tokens, rounds, torch.tensor([len(rounds)]), len(rounds) * seconds, 0)

    def first_rounds(self, prompts, seeds, count):
        check_memory(self.target, self.drafter.num_nodes, len(prompts))
        _, _, path, chances = self.machine.parts(self.shape)
        rng, ms = random.Random(1), 1e3 * self.machine.seconds(self.shape, len(prompts))
        counts = [[committed(rng, chances) for _ in prompts] for _ in range(count)]
        return [Round([[0, *path[:n]] for n in own], 1 + len(path), ms, 0.0, 0.0) for own in counts]

    def describe(self):
        return {"tree": str(self.shape)}


def committed(rng: random.Random, chances: list[float]) -> int:
    """Draft tokens of a round."""
    return next((depth for depth, chance in enumerate(chances) if rng.random() > chance), len(chances))


def first_children(tree) -> list[int]:
    """The nodes of the path of first children; a dynamic tree's are taken to be its best ones."""
    paths = [(), *tree.paths] if tree.kind == "static" else None
    return [paths.index((0,) * d) for d in range(1, tree.depth + 1)] if paths else list(range(1, tree.depth + 1))
