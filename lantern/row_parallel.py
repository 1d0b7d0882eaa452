"""Row-parallel decoding (ZipAR, 2412.04062): row r + 1 starts once row r is `window` tokens ahead, and every pass picks
a token in each row under way. Lossy: tokens are picked without all that precede them. PJD (2606.05703), which also
drafts a Jacobi window in every row, is not built."""

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from lantern.decoding import check_request
from lantern.errors import LanternError
from lantern.memory import check_memory
from lantern.noise import GreedyNoise, Noise, Purpose, winners
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, Generation, Round, Target, Verification


class Turn(NamedTuple):
    """One pass: the tokens that stand at `sources` are read at the cells `reads`, the first of them to pick `picks`."""

    picks: Tensor  # [N] cells
    reads: Tensor  # [M] cells, M >= N
    sources: Tensor  # [M] cells; another one than in `reads` where that is not known yet
    filled: Tensor  # [L] cells that were read as what they are before this pass


class RowParallel:
    """A loop of its own in the place of decoding.generate, on the same target, sampling and noise. An image's tokens
    depend on weights, prompt, seed and settings alone. With a window of a whole row they are plain decoding's."""

    def __init__(self, window: int) -> None:
        self.window = window

    def describe(self) -> dict[str, object]:
        """The keys of a result row that this loop answers for."""
        return {"drafter": "rows", "tree": f"window{self.window}", "verification": "none", "acceptance": "rows"}

    @torch.inference_mode()
    def __call__(
        self, target: Target, drafter: Drafter, verification: Verification, rule: AcceptanceRule, sampling: Sampling,
        prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1,
    ) -> Generation:  # fmt: skip
        """See decoding.generate; drafter, verification and rule are not used."""
        if not hasattr(target, "read_cells"):
            raise LanternError(f"{type(target).__name__} reads tokens in raster order alone; leave +loop=rows out")
        check_request(prompts, seeds, batch_size)
        turns = schedule(target.grid, self.window, target.codebook.device)
        check_memory(target, max(len(turn.reads) for turn in turns), 0, min(batch_size, len(prompts)))
        started, rounds, tokens = perf_counter(), [], []
        for start in range(0, len(prompts), batch_size):
            chunk = slice(start, start + batch_size)
            images, own = _decode(target, sampling, turns, prompts[chunk], seeds[chunk])
            tokens.append(images)
            rounds += own
        steps = torch.full((len(prompts),), len(turns))
        return Generation(torch.cat(tokens), rounds, steps, perf_counter() - started, 0)


def _decode(
    target: Target, sampling: Sampling, turns: Sequence[Turn], prompts: Sequence[str], seeds: Sequence[int]
) -> tuple[Tensor, list[Round]]:
    """Images side by side: all take the same turns."""
    batch, device = len(prompts), target.codebook.device
    rows = torch.arange(batch, device=device)
    noise = (GreedyNoise if sampling.is_greedy else Noise)(batch, target.vocab_size, 0, device)
    noise.admit(rows, torch.tensor(seeds, device=device))
    target.allocate(batch, 1)
    tokens, rounds = torch.zeros(batch, target.num_tokens, dtype=torch.long, device=device), []

    def pick(logits: Tensor, cells: Tensor) -> None:
        weights = noise.weights(Purpose.PICK, cells.expand(batch, -1))  # plain decoding's at these cells
        tokens[:, cells] = winners(sampling.law(logits), weights)

    pick(target.prefill(prompts, rows).logits, torch.zeros(1, dtype=torch.long, device=device))
    for turn in turns:
        start = perf_counter()
        logits = target.read_cells(tokens[:, turn.sources], turn.reads, turn.filled).logits
        verified = perf_counter()
        pick(logits[:, : len(turn.picks)], turn.picks)
        ms = 1e3 * (verified - start), 1e3 * (perf_counter() - verified)
        rounds.append(Round([list(range(len(turn.picks)))] * batch, len(turn.reads), 0.0, *ms))
    return tokens, rounds


def schedule(grid: tuple[int, int], window: int, device: torch.device) -> list[Turn]:
    """Column c of row r is picked at time r window + c, time 0 by the prefill. It is picked behind the token on its
    left; in the first column that is the last one of the row above, in whose place its newest one stands in (ZipAR).
    A row's last token is read once more when it is known, for the rows below."""
    height, width = grid
    if not 1 <= window <= width:
        raise LanternError(f"loop.window={window}: a row starts 1 to {width} tokens behind the one above")
    filled, turns = torch.zeros(height * width, dtype=torch.bool), []
    for time in range(1, (height - 1) * window + width):
        sites = [(row, time - row * window) for row in range(height) if 0 <= time - row * window < width]
        picks = [row * width + column for row, column in sites]
        sources = [cell - 1 if cell % width else cell - width + window - 1 for cell in picks]
        ended = [row * width + width - 1 for row in range(height - 1) if time - row * window == width]
        late = [cell for cell in ended if cell + 1 not in picks]  # else it is read there already
        reads = [cell - 1 for cell in picks] + late
        turns.append(
            Turn(*(torch.tensor(part, device=device) for part in (picks, reads, sources + late)), filled.to(device))
        )
        known = [read for read, source in zip(reads, sources + late, strict=True) if read == source]
        filled = filled.index_fill(0, torch.tensor(known), True)
    return turns
