"""Pixels of a partly committed image. The tokenizer decodes whole grids, so uncommitted positions repeat the token
above them (in the first row the last committed one); the page leaves their pixels out. Of the fills tried (a constant
code, the last token, the token above) this one changes the committed pixels the least."""

from time import perf_counter

from torch import Tensor

from lantern.types import Target

SHARE = 1 / 3  # of the time between two previews, which decoding one may take


class Preview:
    """Decodes no more often than keeps its part of the time within SHARE."""

    def __init__(self, target: Target) -> None:
        self._target, self._cost_s, self._ended = target, 0.0, float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last call."""
        return (perf_counter() - self._ended) * SHARE >= self._cost_s * (1 - SHARE)

    def __call__(self, tokens: Tensor) -> Tensor:
        """tokens [L], -1 where not committed -> pixels [H, W, 3], uint8, on the CPU."""
        started = perf_counter()
        filled = filled_in(tokens, self._target.grid[1])[None].to(self._target.codebook.device)
        pixels = self._target.decode(filled)[0].float().mul(255).round().byte().permute(1, 2, 0).cpu()
        self._ended = perf_counter()
        self._cost_s = self._ended - started
        return pixels


def filled_in(tokens: Tensor, width: int) -> Tensor:
    """tokens [L], -1 from the first uncommitted position on -> [L] all codes."""
    count, filled = int((tokens >= 0).sum()), tokens.clone()
    for position in range(count, len(tokens)):
        filled[position] = filled[position - width if position >= width else count - 1]
    return filled
