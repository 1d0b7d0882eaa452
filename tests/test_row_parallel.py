"""Row-parallel decoding against the target without any cache, and against plain decoding where they must agree."""

from typing import NamedTuple

import pytest
import torch
from toy import GRID, PROMPTS, SEEDS, tiny_eagle, tiny_target

from lantern import memory
from lantern.acceptance.exact import Exact
from lantern.decoding import generate
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.models.llamagen.transformer import causal_mask
from lantern.noise import GreedyNoise, Noise, Purpose
from lantern.pipeline import Pipeline
from lantern.row_parallel import RowParallel, schedule
from lantern.sampling import Sampling
from lantern.trees.chain import chain
from lantern.types import Generation
from lantern.verification.shared_noise import SharedNoise

HEIGHT, WIDTH = GRID
LENGTH = HEIGHT * WIDTH


def decode(loop, sampling: Sampling, batch_size: int = 3) -> Generation:
    target = tiny_target(sampling.cfg_scale)
    return loop(target, NoDrafter(), SharedNoise(), Exact(), sampling, PROMPTS, SEEDS, batch_size)


class Entry(NamedTuple):
    """A token as it was read: at a cell, seeing the entries of these numbers; stand-ins are seen by nobody else."""

    cell: int
    token: int
    sees: list[int]
    is_real: bool


def slow_image(sampling: Sampling, window: int, prompt: str, seed: int) -> list[int]:
    """One image without a cache: every token is read one time unit after it was picked, a row's first one behind the
    newest token above in the place of the last, and sees what was read before or is read with it, in raster order."""
    target, known, entries = tiny_target(sampling.cfg_scale), {}, []
    noise = (GreedyNoise if sampling.is_greedy else Noise)(1, target.vocab_size, 0)
    noise.admit(torch.tensor([0]), torch.tensor([seed]))
    for time in range((HEIGHT - 1) * window + WIDTH):
        picks = [r * WIDTH + time - r * window for r in range(HEIGHT) if 0 <= time - r * window < WIDTH]
        reads = {}
        for cell in picks[: len(picks) if time else 0]:
            source = cell - 1 if cell % WIDTH else cell - WIDTH + window - 1
            reads[cell - 1] = (known[source], source == cell - 1)
        ended = [cell for cell in known if cell % WIDTH == WIDTH - 1 and cell + 1 < LENGTH]
        done = {entry.cell for entry in entries if entry.is_real}
        reads |= {cell: (known[cell], True) for cell in ended if cell not in done}
        for cell in sorted(reads):
            sees = [number for number, entry in enumerate(entries) if entry.is_real and entry.cell < cell]
            entries.append(Entry(cell, reads[cell][0], sees, reads[cell][1]))
        logits = all_logits(target, prompt, entries)
        for cell in picks:
            at = max([number for number, entry in enumerate(entries) if entry.cell == cell - 1], default=-1)
            gumbel = noise.gumbel(Purpose.PICK, torch.tensor([cell]))
            law = sampling.law(logits[target.prefix_len + at])
            known[cell] = int((law.log() + gumbel[0]).argmax())
    return [known[cell] for cell in range(LENGTH)]


@torch.inference_mode()
def all_logits(target, prompt: str, entries: list[Entry]) -> torch.Tensor:
    """[P + entries, V] of the prefix and of every entry, all recomputed at once."""
    body, guidance, prefix_len = target.transformer, target.guidance, target.prefix_len
    condition, visible = target.conditioner([prompt] * guidance)
    prefix = body.cls_embedding(condition.to(body.output.weight.dtype), torch.arange(guidance).bool())
    tokens = torch.tensor([[entry.token for entry in entries]] * guidance, dtype=torch.long)
    x = torch.cat([prefix, target.embed(tokens)], dim=1)
    mask = causal_mask(visible[:1], x.shape[1])
    for number, entry in enumerate(entries, prefix_len):
        mask[..., number, prefix_len:] = False
        mask[..., number, [number, *(prefix_len + seen for seen in entry.sees)]] = True
    places = torch.tensor([*range(prefix_len), *(prefix_len + entry.cell for entry in entries)])
    return target.head(target.guide(body.body(x, target.rotation[None, places], mask)[None]))[0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(top_k=5, cfg_scale=1.0)], ids=str)
def test_a_window_of_a_whole_row_is_plain_decoding(sampling):
    """Catches noise of another cell, slots or rotations out of place, and a last column that is not read."""
    plain = decode(generate, sampling, batch_size=1)
    assert torch.equal(decode(RowParallel(WIDTH), sampling).tokens, plain.tokens)
    assert not torch.equal(decode(RowParallel(1), sampling).tokens, plain.tokens)  # lossy, and honestly so


@pytest.mark.parametrize(("window", "images"), [(1, 8), (2, 5), (4, 1)])
def test_an_image_equals_one_recomputed_without_a_cache(window, images):
    """Catches a cell that is seen too early or never, a stand-in that is kept (which shows in few of the images),
    entries that are written over."""
    found = decode(RowParallel(window), Sampling()).tokens.tolist()
    for prompt, seed, tokens in list(zip(PROMPTS, SEEDS, found, strict=True))[:images]:
        assert tokens == slow_image(Sampling(), window, prompt, seed)


@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_every_cell_is_picked_once_and_read_once_as_what_it_is(window):
    """Catches cells that rows below can never see, and tokens read before they are picked."""
    turns = schedule(GRID, window, torch.device("cpu"))
    picked, read = [0], []
    for turn in turns:
        assert set(turn.sources.tolist()) <= set(picked)
        assert set(turn.filled.nonzero().flatten().tolist()) == set(read)
        pairs = zip(turn.reads.tolist(), turn.sources.tolist(), strict=True)
        read += [cell for cell, source in pairs if cell == source]
        picked += turn.picks.tolist()
        assert turn.reads[: len(turn.picks)].tolist() == [cell - 1 for cell in turn.picks.tolist()]
    assert sorted(picked) == list(range(LENGTH))
    assert sorted(read) == list(range(LENGTH - 1))  # nothing follows the last one
    assert len(turns) == (HEIGHT - 1) * window + WIDTH - 1


def test_an_image_is_the_same_in_any_batch_and_the_books_agree():
    """Catches rows that share noise or cache, and tokens per step that count the prefill."""
    alone, together = (decode(RowParallel(2), Sampling(), batch_size=size) for size in (1, 8))
    assert torch.equal(alone.tokens, together.tokens)
    assert together.target_forwards == len(together.rounds) == 9
    assert sum(count + 1 for turn in together.rounds for count in turn.accepted) == len(PROMPTS) * (LENGTH - 1)
    assert together.tokens_per_step == pytest.approx((LENGTH - 1) / 9)


def test_a_batch_that_does_not_fit_is_refused(monkeypatch):
    """Catches an out-of-memory kill where the other loop says how many images fit."""
    monkeypatch.setattr(memory, "available_memory", lambda device: 10_000)
    with pytest.raises(LanternError, match=r"batch_size=3 needs .* 0 images at once fit"):
        decode(RowParallel(3), Sampling())


def test_a_pipeline_calls_the_loop_and_says_that_it_is_lossy():
    """Catches a loop that is taken for plain decoding, a lossless claim, and a baseline that is no plain decoding."""
    target = tiny_target()
    drafter = tiny_eagle(target, chain(2), Sampling())
    pipeline = Pipeline(target, drafter, SharedNoise(), Exact(), Sampling(), loop=RowParallel(2))
    row = pipeline.describe()
    assert (row["drafter"], row["tree"], row["lossless"]) == ("rows", "window2", False)
    assert pipeline.generate(PROMPTS[:2], SEEDS[:2], 2).target_forwards == 9
    assert pipeline.baseline().generate(PROMPTS[:2], SEEDS[:2], 2).tokens_per_step == 1


@pytest.mark.parametrize("window", [0, 5])
def test_a_window_beyond_a_row_is_one_clear_error(window):
    """Catches rows that start before the one above, or after it has ended."""
    with pytest.raises(LanternError, match=f"loop.window={window}.*1 to 4"):
        decode(RowParallel(window), Sampling())
