"""What a round brings and costs: tokens per step, forwards, and the milliseconds of drafting, verifying, accepting."""

from collections.abc import Sequence

from lantern.types import Generation


def tokens_per_step(generations: Sequence[Generation]) -> float | None:
    """Image tokens committed per target forward, bonus token included, prefill left out; sums before the ratio.
    None where nothing was decoded after the prefill."""
    steps = sum(int(g.steps.sum()) for g in generations)
    committed = sum((g.tokens.shape[1] - 1) * len(g.tokens) for g in generations)
    return committed / steps if steps else None


def round_costs(generations: Sequence[Generation]) -> dict[str, float | None]:
    """Forwards an image takes after its prefill, and mean milliseconds of the parts of a round;
    accepting includes what it leads to in the caches and the books."""
    images = sum(len(g.tokens) for g in generations)
    rounds = [r for g in generations for r in g.rounds]
    return {
        "target_forwards": _ratio(sum(int(g.steps.sum()) for g in generations), images),
        "drafter_forwards": _ratio(sum(g.drafter_forwards for g in generations), images),
        "draft_ms": _ratio(sum(r.draft_ms for r in rounds), len(rounds)),
        "verify_ms": _ratio(sum(r.verify_ms for r in rounds), len(rounds)),
        "accept_ms": _ratio(sum(r.accept_ms + r.commit_ms for r in rounds), len(rounds)),
    }


def _ratio(total: float, count: int) -> float | None:
    return total / count if count else None
