"""An acceptance rule of your own, and what it gains: python examples/own_rule.py
docs/tutorial.md goes on from here: a yaml for the rule, its price in output TV, and lantern.check_law."""

import torch.nn.functional as F

import lantern
from lantern.acceptance.relaxed import relaxed


class Generous:
    """Accepts a drafted token as if the target, in a share of its draws, repeated it unseen."""

    name, verification, lossless = "generous", "ratio", False

    def __init__(self, share: float) -> None:
        self.share, self.parameters = share, {"share": share}

    def relax(self, p, x):  # p [B, V] of the target, x [B] judged -> [B, V], the law that takes p's place
        return (1 - self.share) * p + self.share * F.one_hot(x, p.shape[1])

    def judge(self, p, q, x, site):  # q [B, V] of the drafter
        return relaxed(self.relax(p, x), q, x)


model = lantern.load("llamagen")
for rule in ("exact", Generous(0.1), Generous(0.3)):
    images = model.generate(["a red sphere on wood"] * 4, seed=1, acceptance=rule, verification="ratio")
    print(f"{getattr(rule, 'parameters', rule)}: {images.statistics.tokens_per_step:.2f} tokens per step over 4 images")
    images.pil()[0].save(f"rule_{getattr(rule, 'share', 0)}.png")
