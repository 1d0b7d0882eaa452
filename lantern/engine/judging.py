"""Computes the laws and verdicts of a batch's trees. Shared noise reads no values on the host, so laws and verdicts
are one pass, which a GPU runs as one CUDA graph."""

from dataclasses import dataclass
from math import isnan

from torch import Tensor

from lantern.engine.graphs import Outputs, with_tensors
from lantern.errors import LanternError
from lantern.noise import Noise, StoredPicks
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, DraftTree, Forward, PassRunner, RoundReader, Target, Verdict, Verification
from lantern.verification.shared_noise import SharedNoise


@dataclass(frozen=True)
class Judge:
    """Judges a batch's trees by one verification and rule, under the batch's noise."""

    passes: PassRunner
    sampling: Sampling
    verification: Verification
    rule: AcceptanceRule
    noise: Noise
    width: int  # D: what the head reads; requested layers' inputs may follow

    def __call__(self, tree: DraftTree, forward: Forward) -> tuple[Tensor, Verdict]:
        """-> p [B, N, V] and what is committed."""
        is_known = type(self.verification) is SharedNoise and not isinstance(self.rule, RoundReader)
        if self.passes.has_graphs and is_known:  # a class derived from it may judge in another way
            return self._judge_in_one_pass(self.verification, tree, forward.logits)
        probs, rule = self.sampling.law(forward.logits), self.rule
        rule = rule.of_round(tree, forward.features[..., : self.width]) if isinstance(rule, RoundReader) else rule
        return probs, self.verification(tree, probs, rule, self.noise)

    def _judge_in_one_pass(self, verification: SharedNoise, tree: DraftTree, logits: Tensor) -> tuple[Tensor, Verdict]:
        def run(tokens: Tensor, parents: Tensor, logits: Tensor, *tables: Tensor) -> Outputs:
            probs = self.sampling.law(logits)
            own_tree = with_tensors(tree, tokens, parents)
            return probs, *verification.decided(own_tree, probs, self.rule, StoredPicks(*tables))

        inputs = tree.tokens, tree.parents, logits, *self.noise.tables
        rule = None if self.rule.lossless else self.rule.judge  # methods of one object are equal, rules need no hash
        settings = self.sampling, tree.topology, tree.width, rule
        probs, *decided = self.passes("verification", run, *inputs, settings=settings)
        return probs, Verdict(*decided)


def check_probabilities(law: Tensor, target: Target) -> None:
    """Raises LanternError if law [B, V] is NaN, as all its codes are if logits were NaN or infinite. First frees the
    caches: a NaN in them would reach later images even where masked."""
    if isnan(law[:, 0].sum().item()):
        target.release()
        dtype = str(target.embed_weight.dtype).removeprefix("torch.")
        remedy = "give other weights" if dtype in ("float32", "float64") else "decode in dtype=float32"
        raise LanternError(f"the target's logits are NaN or infinite in dtype={dtype}; {remedy}")
