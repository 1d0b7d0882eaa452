"""A target of continuous tokens whose law is known: linear and Gaussian, each token depending on all before it."""

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from lantern.continuous.diffusion_head import Step
from lantern.engine.graphs import EagerPasses
from lantern.types import DraftTree, Forward, Verdict

CHANNELS, LENGTH, SIGMA = 2, 6, 0.5
NOISE = (0.6, 0.3)  # weights of the shared noises in the last mean


class LinearHead:
    """A token is condition + NOISE . (noises before the last step) + SIGMA e; guidance mixes the conditions."""

    token_dim = CHANNELS
    steps = tuple(Step(0, 0.0, 0.0, 0.0, 0.0, sigma) for sigma in (0.0, SIGMA))

    def mean(self, condition: Tensor, noises: Tensor, cfg_scale: float) -> Tensor:
        guided = torch.lerp(condition[:, -1], condition[:, 0], cfg_scale)
        return guided + (noises * noises.new_tensor(NOISE)[:, None]).sum(1)


class LinearTarget:
    """Implements lantern.types.Target: the condition behind tokens x_1 … x_t is g_t sum_s DECAY^(t - s) A x_s + b_t,
    and without the prompt 0.2 of it. Every other g is 0: what a window guesses there is the target's token at once. Its
    features are its conditions."""

    vocab_size, num_tokens, grid = 3 * CHANNELS, LENGTH, (2, 3)
    weights_hash, held_bytes, compiles, passes = "linear", 0, False, EagerPasses()
    decay, unprompted = 0.5, 0.2

    def __init__(self, cfg_scale: float = 2.0) -> None:
        generator = torch.Generator().manual_seed(3)
        self.mixing = 0.5 * torch.randn(CHANNELS, CHANNELS, generator=generator, dtype=torch.float64)
        self.offsets = torch.randn(LENGTH + 9, CHANNELS, generator=generator, dtype=torch.float64)
        self.gates = (torch.arange(LENGTH + 9) % 2).double()
        self.codebook = self.embed_weight = self.mixing
        self.diffusion_head = LinearHead()
        self.cfg_scale, self.guidance = cfg_scale, 1 if cfg_scale == 1 else 2

    def configured(self, cfg_scale: float, compiled: bool = False) -> "LinearTarget":
        target = copy(self)
        target.cfg_scale, target.guidance = cfg_scale, 1 if cfg_scale == 1 else 2
        return target

    def image_bytes(self, num_nodes: int) -> int:
        return 0

    def allocate(self, batch_size: int, num_nodes: int) -> None:
        self._memory = self.empty_tokens(batch_size)  # sum_s DECAY^(t - s) x_s of the committed tokens that were read
        self._count = torch.zeros(batch_size, dtype=torch.long)

    def release(self) -> None:
        pass

    def _forward(self, memory: Tensor, positions: Tensor) -> Forward:
        condition = self.gates[positions, None] * (memory @ self.mixing.T) + self.offsets[positions]
        features = torch.stack([condition, self.unprompted * condition][: self.guidance], 1)
        return Forward(features.transpose(1, 2).flatten(2), features)

    def prefill(self, prompts: Sequence[str], rows: Tensor) -> Forward:
        self._memory[rows], self._count[rows] = 0, 0
        return self._forward(self._memory[rows, None], self._count[rows, None])

    def verify(self, tree: DraftTree) -> Forward:
        memories = []
        for node in range(tree.tokens.shape[1]):  # a chain
            memories.append(self.decay * (memories[-1] if memories else self._memory) + tree.tokens[:, node])
        self._nodes = torch.stack(memories, 1)
        return self._forward(self._nodes, self._count[:, None] + 1 + tree.depths)

    def commit(self, verdict: Verdict) -> None:
        self._memory = self._nodes[torch.arange(len(self._nodes)), verdict.accepted]
        self._count = self._count + verdict.num_committed

    def keep(self, rows: Tensor) -> None:
        self._memory, self._count = self._memory[rows], self._count[rows]

    def empty_tokens(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, CHANNELS, dtype=torch.float64)

    def embed(self, tokens: Tensor) -> Tensor:
        return tokens

    def guide(self, features: Tensor) -> Tensor:
        return torch.lerp(features[:, -1], features[:, 0], self.cfg_scale)

    def head(self, features: Tensor) -> Tensor:
        return features

    def decode(self, tokens: Tensor) -> Tensor:
        return tokens[..., :1].sigmoid().reshape(-1, 1, 2, 3).expand(-1, 3, -1, -1).float()

    def law(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance [L C] of an image's tokens: x_t = gain (g_t sum_s DECAY^(t-1-s) A x_s + b_t) + noise,
        where gain is what guidance makes of a condition."""
        gain = self.unprompted + self.cfg_scale * (1 - self.unprompted) if self.guidance == 2 else 1.0
        size = LENGTH * CHANNELS
        before = torch.zeros(size, size, dtype=torch.float64)
        for t in range(LENGTH):
            for s in range(t):
                block = gain * self.gates[t] * self.decay ** (t - 1 - s) * self.mixing
                before[t * CHANNELS : (t + 1) * CHANNELS, s * CHANNELS : (s + 1) * CHANNELS] = block
        inverse = torch.linalg.inv(torch.eye(size, dtype=torch.float64) - before)
        variance = SIGMA**2 + sum(weight**2 for weight in NOISE)
        return inverse @ (gain * self.offsets[:LENGTH].flatten()), variance * inverse @ inverse.T
