"""A target with everything it takes to decode on it, described by the keys of a result row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature

from torch import Tensor

from lantern.acceptance.exact import Exact
from lantern.decoding import Step, first_rounds, generate, steps
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.metrics.entropy import law_entropies
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.sampling import Sampling
from lantern.tuning.auto import AutoTree
from lantern.types import (
    AcceptanceRule,
    Drafter,
    Generation,
    Loop,
    Round,
    Shape,
    Target,
    TreePolicy,
    Verification,
)
from lantern.verification import Ratio, SharedLaw, SharedNoise
from lantern.verification.block import Block

# Where tests/test_laws.py shows, by enumeration or token by token, that the output law is the target's.
PROVEN_VERIFICATIONS = (Ratio, SharedNoise, SharedLaw, Block)
PROVEN_TREES = ("none", "static", "eagle2", "ddd", "adaptive", "sampled", "window")
RULE_KEYS = ("k", "delta", "lam")  # parameters that have a column of their own in every row


@dataclass(frozen=True)
class Pipeline:
    target: Target
    drafter: Drafter
    verification: Verification
    rule: AcceptanceRule
    sampling: Sampling
    model: str = "llamagen"
    loop: Loop | None = None  # in the place of decoding.generate
    compile: bool = False

    def generate(self, prompts: Sequence[str], seeds: Sequence[int], batch_size: int = 1) -> Generation:
        return (self.loop or generate)(*self._prepared(), prompts, seeds, batch_size)

    def first_rounds(self, prompts: Sequence[str], seeds: Sequence[int], count: int) -> list[Round]:
        return first_rounds(*self._prepared(), prompts, seeds, count)

    def steps(self, prompt: str, seed: int) -> Iterator[Step]:
        """generate() for one prompt, round by round. Raises LanternError for a loop of its own."""
        if self.loop is not None:
            raise LanternError(f"loop={type(self.loop).__name__} has no rounds of a tree to stream; leave it out")
        return steps(*self._prepared(), prompt, seed)

    def _prepared(self) -> tuple[Target, Drafter, Verification, AcceptanceRule, Sampling]:
        """What decoding takes; the target is told how to guide and run, since another pipeline may share it."""
        self.target.cfg_scale, self.target.compiles = self.sampling.cfg_scale, self.compile
        return self.target, self.drafter, self.verification, self.rule, self.sampling

    def baseline(self) -> "Pipeline":
        """Plain AR decoding on the same target with the same picks."""
        return replace(self, drafter=NoDrafter(), verification=SharedNoise(), rule=Exact(), loop=None)

    def entropies(self, prompts: Sequence[str], tokens: Tensor) -> Tensor:
        """Bits [B, L] of p at every position of finished images."""
        return law_entropies(self._prepared()[0], self.sampling, prompts, tokens)

    @property
    def lossless(self) -> bool:
        """Whether the output law is the target's: claimed only for combinations that an exact-law test covers."""
        if self.loop is not None:
            return False
        tree = getattr(self.drafter, "tree", None)
        kind = tree.kind if tree else "none"
        return self.rule.lossless and type(self.verification) in PROVEN_VERIFICATIONS and kind in PROVEN_TREES

    def describe(self) -> dict[str, object]:
        """The setting's keys of a result row (design: model … cfg_scale), then the rule's further parameters under the
        names they have in its config, such as acceptance.eps."""
        tree, rule, sampling = getattr(self.drafter, "tree", None), self.rule, self.sampling
        return {
            "model": self.model,
            "drafter": self.drafter.name,
            "drafter_hash": getattr(self.drafter, "weights_hash", None),
            "tree": tree.name if tree else "none",
            "verification": self.verification.name,
            "acceptance": rule.name,
            "lossless": self.lossless,
            **{key: rule.parameters.get(key) for key in RULE_KEYS},
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "cfg_scale": sampling.cfg_scale,
            **{f"acceptance.{key}": value for key, value in rule.parameters.items() if key not in RULE_KEYS},
            **(self.loop.describe() if self.loop else {}),
        }


@dataclass(frozen=True)
class Pipelines:
    """Pipelines that differ in what is drafted. The drafter may be a partial one, to be told a tree or a shape."""

    plain: Pipeline
    drafter: Drafter | partial

    @property
    def takes(self) -> frozenset[str]:
        """What the drafter can be told, by name."""
        return frozenset(signature(self.drafter.func).parameters) if isinstance(self.drafter, partial) else frozenset()

    def __call__(self, shape: TreePolicy | Shape | None) -> Pipeline:
        """None: the pipeline decodes plainly."""
        if shape is None:
            return self.plain
        drafter, told = self.drafter, shape.settings if isinstance(shape, Shape) else {"tree": shape}
        if isinstance(drafter, partial):
            said = drafter.keywords | {name: told[name] for name in self.takes & set(told)}
            drafter = partial(drafter.func, *drafter.args, **said)
        return replace(self.plain, drafter=completed(drafter, target=self.plain.target, sampling=self.plain.sampling))


def pipelines(
    model: Target,
    drafter: Drafter | partial,
    acceptance: AcceptanceRule | partial,
    verification: Verification | partial,
    sampling: Sampling,
    name: str = "llamagen",
    loop: Loop | None = None,
    compile: bool = False,
) -> Pipelines:
    """Joins the instantiated config groups, what is drafted left open; a partial one is given the parts it lacks."""
    if compile and not isinstance(model, LlamaGenTarget):
        raise LanternError(f"compile=true is for LlamaGen's layers, model={name} has others; leave compile out")
    model.cfg_scale, model.compiles = sampling.cfg_scale, compile
    rule = completed(acceptance, codebook=model.codebook)
    verification = completed(verification, rule=rule, sampling=sampling)
    if sampling.is_greedy and isinstance(verification, Ratio | Block):
        raise LanternError(
            f"verification={verification.name} tosses coins, temperature=0 has none; use verification=shared_noise"
        )

    return Pipelines(Pipeline(model, NoDrafter(), verification, rule, sampling, name, loop, compile), drafter)


def assemble(
    model: Target,
    drafter: Drafter | partial,
    tree: TreePolicy | AutoTree,
    acceptance: AcceptanceRule | partial,
    verification: Verification | partial,
    sampling: Sampling,
    name: str = "llamagen",
    loop: Loop | None = None,
    compile: bool = False,
) -> Pipeline:
    """The pipeline of the instantiated config groups; tree=auto is resolved here, where the drafter can be told."""
    made = pipelines(model, drafter, acceptance, verification, sampling, name, loop, compile)
    is_open = isinstance(tree, AutoTree) and tree.fitting(made.takes)
    return made(tree.resolve(made) if is_open else tree)


def lacking(part: object) -> set[str]:
    """What a partial of a config group is still to be given, by name; nothing for a complete part."""
    if not isinstance(part, partial):
        return set()
    made = signature(part.func)
    try:
        return made.parameters.keys() - made.bind_partial(*part.args, **part.keywords).arguments.keys()
    except TypeError as error:
        settings = ", ".join(made.parameters)
        raise LanternError(f"{part.func.__name__}: {error}; leave it out, the settings are {settings}") from error


def completed(part: object, **others: object) -> object:
    """The part, a partial one called with those of the others that it lacks."""
    return part(**{name: others[name] for name in lacking(part) & set(others)}) if isinstance(part, partial) else part
