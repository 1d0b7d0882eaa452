"""What a recording drafter counts as visited."""

import torch
from support.toy import tiny_eagle, tiny_target

from lantern.metrics.recording_drafter import RecordingDrafter
from lantern.sampling import Sampling
from lantern.trees.static import chain
from lantern.types import DraftTree, Verdict


def test_copies_of_an_image_in_a_draining_batch_are_not_visited(monkeypatch):
    """Catches positions of one image that count several times on a GPU, where batches keep their size."""
    inner = tiny_eagle(tiny_target(), chain(1), Sampling())
    recording = RecordingDrafter(inner, 1)
    for name in ("allocate", "begin", "keep", "observe"):
        monkeypatch.setattr(inner, name, lambda *parts: None)
    recording.allocate(3)
    recording.begin(None, torch.arange(3))
    recording.keep(torch.tensor([2, 1, 2, 2]))
    tree = DraftTree(torch.zeros(4, 2, dtype=torch.long), torch.tensor([[-1, 0]]).expand(4, -1))
    verdict = Verdict(torch.tensor([[0, 1]] * 4), torch.ones(4, dtype=torch.long), torch.zeros(4, dtype=torch.long))
    recording.observe(tree, None, torch.rand(4, 2, 5), verdict)
    assert [visit.image for visit in recording.visits] == [2, 2, 1, 1]
