"""Row-parallel decoding against the target without any cache, and against plain decoding where they must agree."""

from typing import NamedTuple

import pytest
import torch
from support import toy
from support.toy import GRID, PROMPTS, SEEDS, tiny_target

from lantern.acceptance.exact import Exact
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.models.llamagen.transformer import causal_mask
from lantern.noise import GreedyNoise, Noise, Purpose
from lantern.pipeline import Pipeline
from lantern.row_parallel import RowParallel
from lantern.runtime import memory
from lantern.sampling import Sampling
from lantern.types import Generation
from lantern.verification import Ratio
from lantern.verification.shared_noise import SharedNoise

HEIGHT, WIDTH = GRID
LENGTH = HEIGHT * WIDTH


def decode(drafter, sampling: Sampling, batch_size: int = 3) -> Generation:
    return toy.decode(tiny_target(sampling.cfg_scale), drafter, sampling, batch_size)


class Entry(NamedTuple):
    """A token as it was read: at a position, attending to the entries of these numbers; only real ones are shared."""

    position: int
    token: int
    attends: list[int]
    is_real: bool


def slow_image(sampling: Sampling, window: int, length: int, prompt: str, seed: int) -> list[int]:
    """One image without a cache. A row that has started, or above which `window` tokens are known, reads its newest
    token and `length` guesses; before its first token the newest one above stands in for the last.
    A read sees what was read before or is read with it, in raster order, but no guess of another row."""
    target, known, guesses, entries = tiny_target(sampling.cfg_scale), {}, {}, []
    noise = (GreedyNoise if sampling.is_greedy else Noise)(1, target.vocab_size, 0)
    noise.admit(torch.tensor([0]), torch.tensor([seed]))

    def pick(logits, position: int) -> int:
        return int((sampling.law(logits).log() + noise.gumbel(Purpose.PICK, torch.tensor([position]))[0]).argmax())

    known[0] = pick(all_logits(target, prompt, [])[-1], 0)
    while len(known) < LENGTH:
        reads = []  # (row, position, token, stands in or is a guess)
        for row in range(HEIGHT):
            free = [column for column in range(WIDTH) if row * WIDTH + column not in known]
            if row and len(free) == WIDTH and any((row - 1) * WIDTH + c not in known for c in range(window)):
                break
            first = row * WIDTH + min(free, default=0)
            if free and first - 1 in known:
                reads.append((row, first - 1, known[first - 1], False))
            elif free:
                newest = max(position for position in known if position < row * WIDTH)
                reads.append((row, first - 1, known[newest], True))
            window_positions = range(first, first + min(length, len(free) - 1))
            if row and row * WIDTH not in known:
                guesses |= {p: {**guesses, **known}.get(p - WIDTH, known[0]) for p in window_positions}
            reads += [(row, position, guesses.get(position, known[0]), True) for position in window_positions]
        done = {entry.position for entry in entries if entry.is_real} | {position for _, position, _, _ in reads}
        reads += [
            (None, position, token, False)
            for position, token in known.items()
            if position % WIDTH == WIDTH - 1 and position + 1 < LENGTH and position not in done
        ]
        old, new = list(entries), {}
        for row, position, token, is_draft in reads:
            attends = [number for number, entry in enumerate(old) if entry.is_real and entry.position < position]
            attends += [len(old) + n for n, (r, c, _, d) in enumerate(reads) if c < position and (not d or r == row)]
            entries.append(Entry(position, token, attends, not is_draft))
        logits = all_logits(target, prompt, entries)[-len(reads) :]
        for row in range(HEIGHT):
            own = [number for number, read in enumerate(reads) if read[0] == row]
            for number in own:
                new[reads[number][1] + 1] = pick(logits[number], reads[number][1] + 1)
            last = reads[own[-1]][1] if own else LENGTH
            for position in range(last + 2, min(last + 2 + length, (row + 1) * WIDTH)):
                guesses[position] = pick(logits[own[-1]], position)
            for number in own:
                position = reads[number][1] + 1
                known[position] = new[position]
                if number == own[-1] or reads[number + 1][2] != new[position]:
                    break
                entries[len(old) + number + 1] = entries[len(old) + number + 1]._replace(is_real=True)
        guesses |= new
    return [known[position] for position in range(LENGTH)]


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
        mask[..., number, [number, *(prefix_len + seen for seen in entry.attends)]] = True
    places = torch.tensor([*range(prefix_len), *(prefix_len + entry.position for entry in entries)])
    return target.head(target.guide(body.body(x, target.rotation[None, places], mask)[None]))[0]


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(top_k=5, cfg_scale=1.0)], ids=str)
def test_a_window_of_a_whole_row_is_plain_decoding(sampling, length):
    """Catches noise of another position, wrong slots or rotations, a last column that is not read, and guesses that
    show in the image."""
    plain = decode(NoDrafter(), sampling, batch_size=1)
    found = decode(RowParallel(WIDTH, length), sampling)
    assert torch.equal(found.tokens, plain.tokens)
    assert found.tokens_per_step > 1.1 or not length
    assert not torch.equal(decode(RowParallel(1), sampling).tokens, plain.tokens)  # lossy, and honestly so


@pytest.mark.parametrize(
    ("window", "length", "images"), [(1, 0, 8), (2, 0, 5), (4, 0, 1), (1, 1, 4), (1, 3, 4), (2, 2, 4), (3, 3, 2)]
)
def test_an_image_equals_one_recomputed_without_a_cache(window, length, images):
    """Catches a position attended to too early or never, a replacement or a foreign guess too (which shows in few of
    the images), entries that are written over."""
    found = decode(RowParallel(window, length), Sampling()).tokens.tolist()
    for prompt, seed, tokens in list(zip(PROMPTS, SEEDS, found, strict=True))[:images]:
        assert tokens == slow_image(Sampling(), window, length, prompt, seed)


@pytest.mark.parametrize("length", [0, 2])
def test_an_image_is_the_same_in_any_batch_and_the_counts_agree(length):
    """Catches rows that share noise or cache, what is done that disturbs what is not, and tokens per step that count
    the prefill."""
    alone, some, together = (decode(RowParallel(2, length), Sampling(), batch_size=size) for size in (1, 3, 8))
    assert torch.equal(alone.tokens, together.tokens)
    assert torch.equal(alone.tokens, some.tokens)
    assert torch.equal(alone.steps, together.steps)
    assert len(together.rounds) == max(together.steps)
    assert len({sum(turn.num_judged for turn in made.rounds) for made in (alone, some, together)}) == 1  # padding aside
    assert sum(count + 1 for turn in together.rounds for count in turn.accepted) == len(PROMPTS) * (LENGTH - 1)
    assert together.tokens_per_step == pytest.approx((LENGTH - 1) * len(PROMPTS) / sum(together.steps.tolist()))
    if length:
        assert len(set(together.steps.tolist())) > 1


def test_a_batch_that_does_not_fit_is_rejected(monkeypatch):
    """Catches an out-of-memory kill where the other loop says how many images fit."""
    monkeypatch.setattr(memory, "available_memory", lambda device: 10_000)
    with pytest.raises(LanternError, match=r"batch_size=3 needs .* 0 images at once fit"):
        decode(RowParallel(3), Sampling())


def test_a_pipeline_decodes_rows_and_says_that_it_is_lossy():
    """Catches rows that are taken for plain decoding, a lossless claim, and a baseline that is no plain decoding."""
    target = tiny_target()
    pipeline = Pipeline(target, RowParallel(2), SharedNoise(), Exact(), Sampling())
    row = pipeline.describe()
    assert (row["drafter"], row["tree"], row["lossless"]) == ("rows", "window2", False)
    assert len(pipeline.generate(PROMPTS[:2], SEEDS[:2], 2).rounds) == 9
    assert pipeline.baseline().generate(PROMPTS[:2], SEEDS[:2], 2).tokens_per_step == 1


def refused(verification=None, target=None, window: int = 2) -> None:
    toy.decode(target or tiny_target(), RowParallel(window), Sampling(), 1, verification)


@pytest.mark.parametrize(("decode_wrongly", "sentence"), [
    (lambda: refused(window=0), "drafter.window=0.*1 to 4"),  # rows that start before the one above
    (lambda: refused(window=5), "drafter.window=5.*1 to 4"),  # or after it has ended
    (lambda: RowParallel(4, -1), "drafter.length=-1"),
    (lambda: refused(verification=Ratio()), "verification=shared_noise for ratio"),
    (lambda: refused(target=tiny_target().configured(2.0, True)), "leave compile=true out"),
    (lambda: RowParallel(2).allocate(1), "no rounds of a tree"),
])  # fmt: skip
def test_what_rows_cannot_do_is_one_clear_error(decode_wrongly, sentence):
    with pytest.raises(LanternError, match=sentence):
        decode_wrongly()


def test_an_image_of_one_token_is_complete_at_once():
    """Catches rows that are planned for an image whose prefill has made all of it."""
    target = tiny_target(grid=(1, 1))
    made, plain = (toy.decode(target, drafter, Sampling(), 3) for drafter in (RowParallel(1), NoDrafter()))
    assert torch.equal(made.tokens, plain.tokens)
    assert made.rounds == []
