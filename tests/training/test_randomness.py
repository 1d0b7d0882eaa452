import torch

from lantern.training.data_module import batch_uniform


def test_an_image_draws_the_same_numbers_however_many_processes_share_the_step():
    """Image n of a step is image n // world of process n % world: as SeededBatches assigns them."""
    whole = batch_uniform(6, (3, 2), 5, 7, 0, 1, "cpu")
    for world in (2, 3):
        parts = [batch_uniform(6 // world, (3, 2), 5, 7, rank, world, "cpu") for rank in range(world)]
        assert torch.equal(torch.stack(parts, dim=1).flatten(0, 1), whole)
    assert len(whole.unique()) == whole.numel()
    assert not torch.equal(whole, batch_uniform(6, (3, 2), 5, 8, 0, 1, "cpu"))
    assert not torch.equal(whole, batch_uniform(6, (3, 2), 6, 7, 0, 1, "cpu"))
