"""Memory use of decoding: equal to the estimate, constant over rounds, and a clear error where it does not fit."""

import gc

import pytest
import torch
from support import toy
from support.toy import PROMPTS, tiny_eagle, tiny_target

from lantern import decoding
from lantern.drafters.none import NoDrafter
from lantern.engine.cache import ReusableCache
from lantern.errors import LanternError
from lantern.runtime import memory
from lantern.runtime.hardware import allow_tf32, resolve_device, resolve_dtype
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import chain
from lantern.types import Round


def decode(drafter, target, count: int, batch_size: int):
    prompts, seeds = [PROMPTS[i % 8] for i in range(count)], range(count)
    return toy.decode(target, drafter, Sampling(), batch_size, prompts=prompts, seeds=seeds)


@pytest.mark.parametrize("num_nodes", [1, 26])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_cache_is_as_large_as_estimated(batch_size, num_nodes):
    """Catches an estimate that forgets guidance rows, values, the prefix or the tree."""
    for target in (tiny_target(2.0), tiny_target(1.0), tiny_target(2.0, torch.float32)):
        target.allocate(batch_size, num_nodes)
        assert target.cache.store.nbytes == batch_size * target.image_bytes(num_nodes)


def test_a_batch_that_does_not_fit_is_an_error_with_the_largest_that_does(monkeypatch):
    """Catches an out-of-memory kill in the middle of a run."""
    target = tiny_target()
    drafter = tiny_eagle(target, chain(5), Sampling())
    image = sum(memory.Estimate.of(target, 6, 1)[1:])
    monkeypatch.setattr(memory, "available_memory", lambda device: 3 * image + 1)
    with pytest.raises(LanternError, match=r"batch_size=4 needs .* 3 images at once fit, with trees of 6 nodes"):
        decode(drafter, target, 4, 4)
    assert len(decode(drafter, target, 4, 3).tokens) == 4


def test_a_gpu_without_memory_is_one_clear_error(monkeypatch):
    """Catches a traceback of a lack that no estimate foresaw."""

    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    target = tiny_target()
    monkeypatch.setattr(target, "verify", fail)
    with pytest.raises(LanternError, match=r"memory is full: CUDA out of memory; give a smaller batch_size"):
        decode(NoDrafter(), target, 1, 1)


def test_a_jobs_memory_limit_counts(tmp_path):
    """Catches a container's or a Slurm job's limit that is not seen until the process is killed."""
    root, names = tmp_path, ("max", "current")
    (tmp_path / "groups").write_text("0::/job_7/step_0\n")
    (root / "job_7" / "step_0").mkdir(parents=True)
    cache = "inactive_file 30"
    for folder, limit, used in (("job_7", "1000", "400"), ("job_7/step_0", "max", "400"), (".", "5000", "4900")):
        for name, value in zip(names, (limit, used), strict=True):
            (root / folder / f"memory.{name}").write_text(value + "\n")
        (root / folder / "memory.stat").write_text(f"anon 1\n{cache}\n")
    assert list(memory.left_in_groups(tmp_path / "groups", tmp_path)) == [630, 130]
    assert list(memory.left_in_groups(tmp_path / "none", tmp_path)) == []


@pytest.mark.full
@pytest.mark.parametrize("tree", [None, "chain", "eagle2"])
def test_two_hundred_rounds_hold_no_more_than_twenty(tree):
    """Catches tensors that accumulate per round, prompt or position, beyond results and tree topologies."""
    target = tiny_target()
    trees = {"chain": chain(3), "eagle2": Eagle2Tree(6, 2, 3)}
    drafter = tiny_eagle(target, trees[tree], Sampling()) if tree else NoDrafter()
    held: dict[int, int] = {}

    class Watched(list):
        def append(self, turn: Round) -> None:
            super().append(turn)
            if len(self) in (10, 20, 200):
                gc.collect(0)
                tensors = [part for part in gc.get_objects() if type(part) is torch.Tensor]
                tensors = [part for part in tensors if part.layout is torch.strided]  # oneDNN's have no storage
                held[len(self)] = sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    class Batch(decoding._Batch):
        def __init__(self, *parts) -> None:
            super().__init__(*parts)
            self.rounds = Watched()

    original, decoding._Batch = decoding._Batch, Batch
    try:
        found = decode(drafter, target, 120, 2)
    finally:
        decoding._Batch = original
    results = found.tokens.nbytes + sum(turn.parents.untyped_storage().nbytes() for turn in found.rounds)
    assert held[200] <= max(held[10], held[20]) + 2 * results + 4096


def test_uneven_rows_are_written_in_the_precision_of_the_cache():
    """Catches keys in float32 that a cache in half precision, as on a GPU, rejects once rows stand unevenly."""
    cache = ReusableCache().allocate(1, 2, 1, 6, 1, 2, torch.zeros(0, dtype=torch.bfloat16))
    cache.admit(torch.arange(2), 1)
    cache.extend([1, 2], torch.tensor([1, 2]))
    cache.reserve(2)
    fresh = torch.randn(2, 1, 2, 2)
    keys, values = cache.update(0, fresh, fresh + 1)
    for row, start in enumerate((2, 3)):
        assert torch.equal(keys[row, 0, start : start + 2], fresh[row, 0].bfloat16())
        assert torch.equal(values[row, 0, start : start + 2], (fresh[row, 0] + 1).bfloat16())


def test_a_device_or_dtype_that_is_not_there_is_one_clear_error():
    """Catches a traceback out of the first product."""
    with pytest.raises(LanternError, match=r"device=cuda:99 is not there"):
        resolve_device("cuda:99")
    with pytest.raises(LanternError, match=r"device=vulkan is not"):
        resolve_device("vulkan")
    with pytest.raises(LanternError, match=r"dtype=float12 is unknown"):
        resolve_dtype("float12")


def test_products_are_no_coarser_than_their_dtype_unless_asked():
    """Catches TF32 products in the image decoder by torch's default for convolutions."""
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # which plans every new length for tens of milliseconds
    kinds = torch.backends.cudnn, torch.backends.cuda.matmul
    assert not any(kind.allow_tf32 for kind in kinds)
    allow_tf32(True)
    assert all(kind.allow_tf32 for kind in kinds)
    allow_tf32(False)


def test_finished_rows_take_no_part_in_later_passes():
    """Catches a cache that keeps the full batch size as images finish, and one that is copied to shrink."""
    target, sizes = tiny_target(), []
    whole = target.keep

    def kept(rows):
        storage = target.cache.store.untyped_storage().data_ptr()
        whole(rows)
        sizes.append(target.cache.store.nbytes)
        assert target.cache.store.untyped_storage().data_ptr() == storage

    target.keep = kept
    decode(tiny_eagle(target, chain(3), Sampling()), target, 8, 8)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 8 * target.image_bytes(4)


def test_the_next_call_reuses_the_memory_of_the_last(monkeypatch):
    """Catches two caches at once, a second call that fails for memory the first still holds, and one never freed."""
    target = tiny_target()
    drafter = tiny_eagle(target, chain(5), Sampling())
    image = sum(memory.Estimate.of(target, 6, 1)[1:])
    first = decode(drafter, target, 3, 3)
    place = target.cache.store.data_ptr()
    monkeypatch.setattr(memory, "available_memory", lambda device: 3 * image - target.held_bytes)
    again = decode(drafter, target, 3, 3)
    assert target.cache.store.data_ptr() == place
    assert torch.equal(first.tokens, again.tokens)
    assert target.held_bytes == 3 * target.image_bytes(6) + target.drafter_caches.nbytes
    assert target.drafter_caches.nbytes > 0
    target.allocate(1, 6)
    assert target.held_bytes == target.image_bytes(6)
