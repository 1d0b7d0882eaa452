"""Stand-ins for a pipeline, whose tokens are drawn from the seed alone and whose latency is given by the test, and for
a metric."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lantern.engine.graphs import EagerPasses
from lantern.pipeline import Guarantee
from lantern.sampling import Sampling
from lantern.types import DraftTree, Forward, Generation, Round, TreeTopology, Verdict

NUM_TOKENS = 16


class CutShortError(Exception):
    """Ends an evaluation where a test wants it to."""


class FakeTarget:
    compiles, passes = False, EagerPasses()
    codebook = torch.zeros(8, 2)
    weights_hash = "abc"
    grid = (4, 4)
    embed_weight = torch.zeros(8, 4)

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        """There is no cache."""

    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        return self.verify(TreeTopology.chain(0, rows.device).tree(rows[:, None]))

    def verify(self, tree: DraftTree) -> Forward:
        """Laws whose entropy falls from 3 bits as the token's number rises."""
        return Forward((tree.tokens[..., None] * torch.arange(8) / 4).double(), torch.zeros(0))

    def commit(self, verdict: Verdict) -> None:
        """There is no cache."""

    def decode(self, tokens: Tensor) -> Tensor:
        """[B, 16] -> images [B, 3, 8, 8] whose 2x2 cells show the tokens."""
        cells = (tokens.float() / 7).view(-1, 1, 4, 4).expand(-1, 3, -1, -1)
        return cells.repeat_interleave(2, 2).repeat_interleave(2, 3)


def chain_round(images: int, nodes: int) -> Round:
    """A round in which every image accepts the whole chain."""
    parents = torch.arange(-1, nodes - 1).repeat(images, 1)
    return Round([list(range(nodes))] * images, nodes, 1.0, 2.0, 0.5, range(images), parents, 0.25)


@dataclass
class FakePipeline:
    """Draws 8 codes by seed; a method that accepts a draft token every round takes half of AR's steps."""

    drafter: str = "eagle"
    delta: float | None = 0.03
    latency_s: float = 0.5
    calls: list[tuple[list[str], int]] = field(default_factory=list)
    ar_calls: list[tuple[list[str], int]] = field(default_factory=list)
    target: FakeTarget = field(default_factory=FakeTarget)
    sampling: Sampling = Sampling()  # noqa: RUF009  (frozen)

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int) -> Generation:
        self.calls.append((list(prompts), batch_size))
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        tokens = torch.stack([torch.randint(8, (NUM_TOKENS,), generator=each) for each in generators])
        accepted = 0 if self.drafter == "none" else 1
        steps = -(-(NUM_TOKENS - 1) // (accepted + 1))
        left = (NUM_TOKENS - 1) - (steps - 1) * (accepted + 1) - 1  # of the last round, its bonus token aside
        rounds = [chain_round(len(prompts), nodes) for nodes in (*[1 + accepted] * (steps - 1), 1 + left)]
        latency_s, forwards = self.latency_s * len(prompts), steps * accepted
        return Generation(tokens, rounds, torch.full((len(prompts),), steps), latency_s, forwards, 5e-4 * steps)

    def baseline(self) -> "FakePipeline":
        return FakePipeline("none", None, 1.0, self.ar_calls, target=self.target)

    def compiled_baseline(self) -> "FakePipeline":
        target = FakeTarget()
        target.compiles = True
        return replace(self.baseline(), latency_s=0.8, target=target)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.drafter == "none", "of a fake")

    @property
    def is_baseline(self) -> bool:
        return self.drafter == "none"

    def describe(self) -> dict[str, object]:
        setting = {"model": "fake", "drafter": self.drafter, "delta": self.delta, "verification": "ratio"}
        sampling = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "cfg_scale": 2.0}
        if self.drafter == "none":
            return setting | sampling | {"tree": "none", "acceptance": "exact", "lossless": True}
        return setting | sampling | {"tree": "static", "acceptance": "lantern", "lossless": False, "k": 100}


class Brightness:
    """A metric that records the prompts it was prepared with."""

    def __init__(self) -> None:
        self.prepared = []

    def prepare(self, prompts):
        self.prepared.append(list(prompts))

    def __call__(self, images, prompts):
        return {"brightness": float(images.mean())}

    def against(self, images, plain, prompts):
        return {"brightness_diff": float((images - plain).mean())}

    def protocol(self, prompts):
        return {"meter": "mean"}

    def warnings(self, prompts):
        return ["too dark to tell"] if len(prompts) < 5 else []
