"""The noise streams: functions of the image seed and their counters alone, and as good as independent draws."""

import numpy as np
import pytest
import torch
from support.toy import decode, tiny_eagle, tiny_target
from torch import Tensor

from lantern import noise as noise_module
from lantern.hashing import MIN_TORCH_COUNTERS, _key_on_host, bits, bits_on_device, hash_counters
from lantern.noise import AHEAD, BLOCK, MAX_DIRECT, GreedyNoise, Noise, Purpose, gumbel_argmax, image_seed
from lantern.row_parallel import RowParallel
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.verification import Ratio, SharedNoise
from lantern.verification.block import Block

WINDOW, CODES = 4, 16
PINNED_PICKS = [275600578, 1045333964, 3907544953]
PINNED_COINS = [4210037681, 4045352154, 1814152626]
PINNED_SEEDS = [3431081756847054500, -2152043974393044832]


def streams(seeds: list[int], codes: int = CODES) -> Noise:
    noise = Noise(len(seeds), codes, WINDOW, num_nodes=6)
    noise.admit(torch.arange(len(seeds)), torch.tensor(seeds))
    return noise


def picks(noise: Noise, depth: int) -> Tensor:
    """G [B, V] of the token behind a node at this depth."""
    return noise.noise_at_depths(torch.full((len(noise.seeds), 1), depth))[:, 0].log()


def uniforms(*counters: Tensor, purpose: Purpose = Purpose.COIN) -> Tensor:
    return hash_counters(counters[0], purpose, *counters[1:]).double() / 2**32


def correlation(x: Tensor, y: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1])


def test_the_integers_are_pinned():
    """Catches a hash that changed or overflowed: published tokens could not be made again, devices would differ."""
    seeds = torch.tensor([0, 1, -1 << 40])
    assert hash_counters(seeds, Purpose.PICK, torch.tensor(5), torch.tensor(7)).tolist() == PINNED_PICKS
    assert hash_counters(seeds, Purpose.COIN, torch.tensor(255)).tolist() == PINNED_COINS
    assert [image_seed(0, "a red sphere on wood"), image_seed(0, "a red sphere on wood", copy=1)] == PINNED_SEEDS


def test_the_hash_is_that_of_unbounded_integers():
    """Catches a product that does not keep its low 32 bits, where int64 wraps around."""
    mask = 0xFFFFFFFF

    def mix(x: int) -> int:
        x = ((x ^ (x >> 16)) * 0x85EBCA6B) & mask
        x = ((x ^ (x >> 13)) * 0xC2B2AE35) & mask
        return x ^ (x >> 16)

    def slow(seed: int, purpose: int, *counters: int) -> int:
        low = mix((seed & mask) ^ (purpose * 0x9E3779B9 & mask))
        high = mix((seed >> 32 & mask) ^ 0x5BD1E995 ^ low)
        low = mix((low + high) & mask)
        for counter in counters[:-1]:
            low = mix((low + counter * (high | 1)) & mask)
            high = mix(((high ^ 0x5BD1E995) + low) & mask)
        return mix((low + counters[-1] * (high | 1)) & mask)

    seeds = torch.randint(-(2**63), 2**63 - 1, (200,), generator=torch.Generator().manual_seed(0))
    counters = torch.randint(2**15, (200, 3), generator=torch.Generator().manual_seed(1))
    found = hash_counters(seeds, Purpose.CHILDREN, *counters.unbind(1)).tolist()
    assert found == [slow(s, 1, *c) for s, c in zip(seeds.tolist(), counters.tolist(), strict=True)]


def test_tables_numbers_and_other_devices_have_the_same_integers():
    """Catches a way of computing the hash that a table, or another device, takes alone."""
    seeds, generator = torch.tensor([3, -1 << 63, 1 << 31])[:, None, None], torch.Generator().manual_seed(0)
    positions = torch.randint(2**15, (3, 5, 1), generator=generator)
    codes = torch.arange(MIN_TORCH_COUNTERS + 7, dtype=torch.int32)
    table = bits(seeds, Purpose.PICK, positions, codes)
    assert table.shape == (3, 5, MIN_TORCH_COUNTERS + 7)
    assert torch.equal(table[..., :9], bits(seeds, Purpose.PICK, positions, codes[:9]))
    assert torch.equal(table, bits_on_device(seeds, Purpose.PICK, positions, codes))


def test_an_image_draws_the_same_in_any_batch():
    """Catches noise that depends on the batch size, the row, or on when an image is admitted."""
    alone = streams([42])
    alone.advance([3], torch.tensor([3]))
    together = streams([7, 8, 9])
    together.advance([2, 1, 4], torch.tensor([2, 1, 4]))
    together.admit(torch.tensor([1]), torch.tensor([42]))  # a finished row makes way
    together.advance([1, 3, 2], torch.tensor([1, 3, 2]))
    together.keep(torch.tensor([2, 1]))
    for depth in range(WINDOW):
        assert torch.equal(picks(alone, depth)[0], picks(together, depth)[1])
    node, law = torch.tensor([5]), torch.rand(1, CODES)
    assert torch.equal(alone.draw(law)[0], together.draw(law.expand(2, -1))[1])
    for chance in torch.linspace(0, 1, 33):
        assert alone.accepts(chance, node)[0] == together.accepts(chance.expand(2), node.expand(2))[1]
    drawn = [
        noise.gumbel(Purpose.CHILDREN, noise.position[:, None], node.expand(len(noise.seeds), 1))
        for noise in (alone, together)
    ]
    assert torch.equal(drawn[0][0], drawn[1][1])


def test_purposes_and_counters_never_share_a_key():
    """Catches a coin that equals the noise of a child, and swapped or shifted counters that meet."""
    seeds = torch.arange(8)[:, None, None]
    first, second = torch.arange(40)[:, None], torch.arange(40)
    keys = torch.cat([hash_counters(seeds, purpose, first, second).flatten() for purpose in Purpose])
    collisions = len(keys) - len(keys.unique())
    assert collisions <= 12  # 51,200 random 32-bit integers: 0.3 expected
    flat = torch.cat([hash_counters(seeds, purpose, first).flatten() for purpose in Purpose])
    assert not torch.isin(flat, keys).sum() > 5


def test_integers_are_uniform():
    """Catches weak mixing: 256 bins of the highest and of the lowest bits, chi-square below its 1 - 1e-6 quantile."""
    found = hash_counters(torch.arange(64)[:, None], Purpose.PICK, torch.arange(2000))
    for cells in (found >> 24, found & 255):
        counts = torch.bincount(cells.flatten(), minlength=256).double()
        expected = found.numel() / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 370


def test_gumbel_picks_follow_the_law():
    """Catches a wrong tail of the exponential: rare codes would come too often or never."""
    law = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.009, 0.001])
    count = 30_000
    noise = streams(list(range(count)), codes=6)
    for codes in ((law.log() + picks(noise, 0)).argmax(-1), noise.draw(law.expand(count, -1))):
        counts = torch.bincount(codes, minlength=6)
        statistic = float(((counts - law * count) ** 2 / (law * count)).sum())
        assert statistic < 36  # the 1 - 1e-6 quantile for 5 degrees of freedom


def test_coins_come_up_as_often_as_asked():
    """Catches a coin that can come up at 0, or fail at 1."""
    noise, node = streams(list(range(20_000)), codes=1), torch.full((20_000,), 3)
    for chance in (0.0, 0.02, 0.5, 1.0):
        share = noise.accepts(torch.full((20_000,), chance), node).float().mean().item()
        assert abs(share - chance) <= 6 * (chance * (1 - chance) / 20_000) ** 0.5  # 0 at 0 and at 1


def test_neighbouring_streams_are_uncorrelated():
    """Catches shifted copies: seeds, positions, nodes and codes one apart must not resemble one another."""
    seed, position, code = torch.arange(60)[:, None, None], torch.arange(60)[:, None], torch.arange(60)
    cube = uniforms(seed, position, code, purpose=Purpose.PICK)
    for axis in range(3):
        for step in (1, 2, 16):
            near = correlation(cube.narrow(axis, 0, 60 - step), cube.narrow(axis, step, 60 - step))
            assert abs(near) < 6 / (59 * 3600) ** 0.5 * 1.2, (axis, step)
    diagonal = correlation(cube[:, :-1, 1:], cube[:, 1:, :-1])
    assert abs(diagonal) < 0.016
    for one in Purpose:
        for other in Purpose:
            if one < other:
                pair = correlation(uniforms(seed, position, purpose=one), uniforms(seed, position, purpose=other))
                assert abs(pair) < 6 / 60


def test_no_two_of_many_images_share_a_key_or_a_row():
    """Catches keys or row states of 32 bits, of which 100,000 images share about one, and seeds that run into
    prompts."""
    count = 100_000
    seeds = torch.tensor([image_seed(number % 50, f"{number // 500}", number // 50 % 10) for number in range(count)])
    assert len(seeds.unique()) == count
    assert image_seed(1, "23") != image_seed(12, "3")
    for position in (-1, 0, 255):
        first, stride = _key_on_host(seeds, Purpose.PICK, [torch.tensor(position)])
        states = (first.astype(np.uint64) << np.uint64(32)) | stride
        assert len(np.unique(states)) == count


def test_keys_that_differ_in_one_bit_are_independent():
    """Catches a bit of the key that is lost: each of the 64 flips half of the bits of every value."""
    seeds = torch.randint(-(2**63), 2**63 - 1, (50,), generator=torch.Generator().manual_seed(0))[:, None, None]
    position, code = torch.arange(8)[:, None], torch.arange(64)
    plain = hash_counters(seeds, Purpose.PICK, position, code)
    for bit in range(64):
        flipped = hash_counters(seeds ^ (1 << bit if bit < 63 else -1 << 63), Purpose.PICK, position, code) ^ plain
        shares = torch.stack([(flipped >> place & 1).double().mean() for place in range(32)])
        assert (shares - 0.5).abs().max() < 6 * 0.5 / flipped.numel() ** 0.5, bit


def test_greedy_decoding_has_no_noise():
    """Catches a greedy pick that is not argmax p."""
    noise = GreedyNoise(2, CODES, WINDOW)
    noise.admit(torch.arange(2), torch.tensor([1, 2]))
    noise.advance([3, 1], torch.tensor([3, 1]))
    assert not picks(noise, 1).any()
    assert (noise.noise_at_depths(torch.arange(WINDOW).expand(2, -1)) == 1).all()


@pytest.mark.parametrize("few", [0, MAX_DIRECT])
def test_the_first_of_the_best_wins_the_race(monkeypatch, few):
    """Catches a winner found block by block that is another one among equals, and a block that lacks its last codes."""
    monkeypatch.setattr("lantern.noise.MAX_DIRECT", few)
    generator = torch.Generator().manual_seed(0)
    for codes in (BLOCK // 2, BLOCK, 5 * BLOCK, 5 * BLOCK + 1):
        laws = torch.randint(4, (3, 20, codes), generator=generator).double()
        weights = torch.randint(1, 3, (3, 20, codes), generator=generator).float()
        assert torch.equal(gumbel_argmax(laws, weights), (laws * weights).argmax(-1))
        assert torch.equal(gumbel_argmax(laws, weights[..., :1]), laws.argmax(-1))


def test_small_exponentials_keep_their_precision():
    """Catches a uniform rounded before the logarithm, which would give the likeliest code ties of equal noise."""
    gumbel = picks(streams(list(range(2000)), codes=100), 0)
    assert gumbel.isfinite().all()
    tops = gumbel.flatten().topk(50).values
    assert len(tops.unique()) >= 49


@pytest.mark.parametrize("few", [WINDOW, WINDOW + AHEAD // 2])  # as on a CPU, and elsewhere
def test_the_ring_holds_what_a_direct_computation_gives(few):
    """Catches ring rows overwritten too early, made for another position, or never made for an admitted row."""
    noise, generator = streams([1, 2, 3]), torch.Generator().manual_seed(0)
    noise._picks.refill_at = few
    for turn in range(60):
        depths = torch.randint(WINDOW, (3, 5), generator=generator)
        direct = noise.weights(Purpose.PICK, noise.position[:, None] + 1 + depths)
        assert torch.equal(noise.noise_at_depths(depths), direct)
        ahead = torch.arange(WINDOW).expand(len(direct), -1)
        assert torch.equal(noise.noise_of_chain(WINDOW), noise.noise_at_depths(ahead))
        assert torch.equal(picks(noise, 2), noise.weights(Purpose.PICK, noise.position + 3).log())
        torch.testing.assert_close(picks(noise, 2), noise.gumbel(Purpose.PICK, noise.position + 3))
        steps = torch.randint(WINDOW + 1, (3,), generator=generator)
        noise.advance(steps.tolist(), steps)
        if turn % 20 == 5:
            noise.admit(torch.tensor([2, 0]), torch.tensor([30, 10]))
        if turn == 8:
            noise.keep(torch.tensor([2, 0, 1]))


@pytest.mark.parametrize("method", ["ratio", "block", "rows"])
def test_picks_that_nothing_reads_are_not_made(monkeypatch, method):
    """Catches a third of a chain's noise made for verifications that toss coins, and for rows, which pick by
    themselves."""
    monkeypatch.setattr(Noise, "_make_picks", lambda *_: pytest.fail("picks are made"))
    target = tiny_target()
    drafter = RowParallel(2, 1) if method == "rows" else tiny_eagle(target, chain(3), Sampling())
    verification = {"ratio": Ratio, "block": Block, "rows": SharedNoise}[method]()
    decode(target, drafter, Sampling(), 3, verification)


def test_an_admitted_image_alone_is_given_new_picks(monkeypatch):
    """Catches a whole window made for each of eight images where one of them starts."""
    made, exponential = [], noise_module._exponential
    monkeypatch.setattr(noise_module, "_exponential", lambda of: made.append(of.numel()) or exponential(of))
    noise = streams(list(range(8)))
    noise.noise_of_chain(WINDOW)
    window = noise.tables[0].shape[1]
    assert sum(made) == 8 * window * CODES
    noise.advance([5] * 8, torch.full((8,), 5))
    made.clear()
    noise.admit(torch.tensor([3]), torch.tensor([30]))
    found = noise.noise_of_chain(WINDOW)
    assert sum(made) == window * CODES
    ahead = noise.position[:, None] + 1 + torch.arange(WINDOW)
    assert torch.equal(found, noise.weights(Purpose.PICK, ahead))
