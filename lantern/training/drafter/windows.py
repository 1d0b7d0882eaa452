"""Trains a drafter for refined Jacobi windows (ours). Beside its own pair it reads what the target's last pass has left
at a token's place: the feature there, and the token that the pass had read. Training makes such windows of an image:
the drafter's own guesses, coupled to the image's tokens, are read by one more pass of the target."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lantern.drafters.eagle.feature_drafter import layered
from lantern.drafters.eagle.network import EagleNetwork, Stale
from lantern.training.data_module import batch_uniform
from lantern.training.drafter.drafter_task import DrafterPairs, DrafterTask
from lantern.training.drafter.losses import overlap
from lantern.training.drafter.teacher_forcing import GuidedLaws, site_losses
from lantern.training.drafter.variants import WindowStudent
from lantern.types import DraftTree, Target


class Windows(NamedTuple):
    """Windows over the S = L - 1 places of an image's tokens but the last. A place before the first wrong guess is in
    no window: it is its own root, and nothing stale is there."""

    guesses: Tensor  # [B, S] tokens that the target's last pass has read
    settled: Tensor  # [B, S] whether these are the image's
    roots: Tensor  # [B, S] the place of the root of each place's window, whose guess was wrong
    known: Tensor  # [B, S] whether the place is in a window


def coupled_guesses(p: Tensor, q: Tensor, tokens: Tensor, uniform: Tensor) -> Tensor:
    """p, q [..., V], tokens [...] drawn from p, uniform [..., 2] -> tokens [...] of law q that equal the given ones as
    often as the laws allow (maximal coupling): with probability min(1, q(x) / p(x)), else drawn from max(q - p, 0)."""
    at = tokens[..., None]
    is_kept = uniform[..., 0] * p.gather(-1, at)[..., 0] < q.gather(-1, at)[..., 0]
    missing = (q - p).clamp(min=0).cumsum(-1)
    drawn = torch.searchsorted(missing, uniform[..., 1:] * missing[..., -1:], right=True)[..., 0]
    return torch.where(is_kept, tokens, drawn.clamp(max=p.shape[-1] - 1))


def roots_of(is_wrong: Tensor, spacing: int) -> tuple[Tensor, Tensor]:
    """is_wrong [B, S] -> roots [B, S], and whether a place is in a window [B, S]. A window begins at each wrong guess
    that is `spacing` places or more behind the last root. Place 0 has no guess."""
    places = torch.arange(is_wrong.shape[1], device=is_wrong.device)
    last, roots = torch.full_like(is_wrong[:, 0], -spacing, dtype=torch.long), []
    for place in range(is_wrong.shape[1]):
        starts = is_wrong[:, place] & (place - last >= spacing) & (place > 0)
        last = torch.where(starts, place, last)
        roots.append(last)
    found = torch.stack(roots, dim=1)
    return torch.where(found < 0, places, found), found >= 0


def stale_features(
    target: Target, tokens: Tensor, windows: Windows, captions: list[str], layers: Sequence[int]
) -> Tensor:
    """tokens [B, L] -> the target's features [B, R, S, F] at the guesses of windows, zeros at place 0. A guess reads
    the image's tokens before its window's root and the window's guesses: one pass over a tree whose trunk is the
    image and whose branches are the windows."""
    guesses, _, roots, known = windows
    (batch, size), device = guesses.shape, guesses.device
    places = torch.arange(size, device=device)
    branch = torch.where(known & (places > roots), size + places - 2, places - 1)[:, 1:]  # parents of places 1, 2, …
    parents = torch.cat([(places - 1).expand(batch, -1), branch], dim=1)
    nodes = torch.cat([tokens[:, :size], guesses[:, 1:]], dim=1)
    with torch.autocast(device.type, enabled=False), torch.no_grad():
        target.allocate(batch, nodes.shape[1])
        if layers:
            layered(target).hand_out(layers)
        target.prefill(captions, torch.arange(batch, device=device))
        features = target.verify(DraftTree(nodes, parents)).features
    return F.pad(features[:, :, size:], (0, 0, 1, 0)).clone()


class WindowAttention:
    """Implements KeyValues. The first call reads all pairs and is causal. Later ones read the windows of `place`: each
    place attends to the pairs before its root and to its window up to itself."""

    def __init__(self) -> None:
        self._pairs: tuple[Tensor, ...] = ()

    def place(self, roots: Tensor, text: int, guidance: int) -> None:
        """roots [B, S]; text: pairs before the image's first token."""
        size = roots.shape[1]
        places = torch.arange(size, device=roots.device)
        before = places < roots[..., None]  # [B, S, S]
        own = (places >= roots[..., None]) & (places <= places[:, None])
        seen = torch.cat([before.new_ones(len(roots), size, text), before, own], dim=2)
        self._mask = seen.repeat_interleave(guidance, 0)[:, None]

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # [B R, H, T or S, Dh] each
        if not self._pairs:
            self._pairs = key, value
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        keys, values = (torch.cat(parts, dim=2) for parts in zip(self._pairs, (key, value), strict=True))
        return F.scaled_dot_product_attention(query, keys, values, self._mask)


class WindowTask(DrafterTask):
    """A DrafterTask whose later passes run over windows. As in decoding, the first reads the stale features, and each
    further one the features that the pass before it gave."""

    network: EagleNetwork
    student: WindowStudent

    def _lessons(
        self, batch: dict, pairs: DrafterPairs, laws: GuidedLaws
    ) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        passes, _ = self._window_passes(batch, pairs, laws, self.global_step)
        drafted = torch.stack([self._guide(outputs) for outputs in passes])
        losses, alphas = site_losses(drafted, laws, self.recipe.loss, ahead=0)
        self.log("train/overlap", alphas[0].mean())
        self.log("train/window_overlap", alphas[-1].mean())
        return losses, alphas, [(own, pairs.features[:, self.target.prefix_len - 1 :]) for own in passes]

    def validation_step(self, batch: dict, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        size, pairs = len(batch["tokens"]), self._pairs(batch)
        laws = self._laws(pairs, batch["noise_seed"])
        passes, windows = self._window_passes(batch, pairs, laws, 0)
        found = torch.stack([
            overlap(laws.p(slice(i, i + 1), laws.positions), laws.q(self._guide(passes[-1])[i : i + 1]))[0]
            for i in range(size)
        ])  # fmt: skip
        behind = torch.arange(found.shape[1], device=found.device) - windows.roots
        self.log("val/window_overlap", found[windows.known].mean(), batch_size=size, sync_dist=True)
        self.log("val/window_alpha_1", found[windows.known & (behind == 0)].mean(), batch_size=size, sync_dist=True)

    def _window_passes(
        self, batch: dict, pairs: DrafterPairs, laws: GuidedLaws, step: int
    ) -> tuple[list[Tensor], Windows]:
        """Outputs [B R, S, D] at the image's places: of the plain pass over its pairs, then of each pass over
        windows."""
        target, guidance = self.target, self.target.guidance
        text, count = target.prefix_len - 1, pairs.previous.shape[1]
        reads, rotation = self.network.reads(pairs.previous), target.rotation[None, 1 : count + 1]
        attentions = [WindowAttention() for _ in range(self.network.num_layers)]
        plain = self.network(pairs.embeddings, reads, rotation, None, attentions)[:, text:]
        windows = self._windows(batch, laws, self._guide(plain.detach()), step)
        for attention in attentions:
            attention.place(windows.roots, text, guidance)
        layers = self.network.reads.layers
        stale = stale_features(target, batch["tokens"], windows, batch["caption"], layers).flatten(0, 1).to(reads.dtype)
        over_windows = self._over_windows(pairs, reads[:, text:], windows, stale, rotation[:, text:], attentions)
        return [plain, *over_windows], windows

    def _over_windows(
        self, pairs: DrafterPairs, exact: Tensor, windows: Windows, left: Tensor, rotation: Tensor,
        attentions: Sequence[WindowAttention],
    ) -> Iterator[Tensor]:  # fmt: skip
        """exact [B R, S, D]: what the drafter reads of the feature before each place; left [B R, S, F]: the stale
        features."""
        guidance, dim = self.target.guidance, pairs.features.shape[-1]
        embeddings = pairs.embeddings[:, self.target.prefix_len - 1 :]
        weight = self.network.embedding(self.target.embed_weight)
        former = F.embedding(windows.guesses, weight).repeat_interleave(guidance, 0).to(exact.dtype)
        settled, roots, known = (part.repeat_interleave(guidance, 0) for part in windows[1:])
        stale = Stale(left[..., :dim], former, settled, known)
        is_root = roots == torch.arange(exact.shape[1], device=exact.device)
        before = self.network.reads(left)
        for _ in range(self.student.window_passes):
            features = torch.where(is_root[..., None], exact, F.pad(before[:, :-1], (0, 0, 1, 0)))
            before = self.network(embeddings, features, rotation, None, attentions, stale=stale)
            yield before

    @torch.no_grad()
    def _windows(self, batch: dict, laws: GuidedLaws, drafted: Tensor, step: int) -> Windows:
        """drafted [B, S, D]: guided outputs of the plain pass, by whose laws the guesses are made."""
        tokens, size = batch["tokens"], drafted.shape[1]
        process = self.global_rank, self.trainer.world_size, drafted.device
        uniform = batch_uniform(len(tokens), (size - 1, 2), self.seed, step, *process)
        places, guesses = laws.positions[:-1], tokens[:, :size].clone()
        for i in range(len(tokens)):  # all laws at once are large; the one at place t is of the token behind it
            p, q = laws.p(slice(i, i + 1), places)[0], laws.q(drafted[i, :-1])
            guesses[i, 1:] = coupled_guesses(p, q, tokens[i, 1:size], uniform[i])
        settled = guesses == tokens[:, :size]
        return Windows(guesses, settled, *roots_of(~settled, self.student.spacing))
