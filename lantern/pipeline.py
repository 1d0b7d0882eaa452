"""A target with everything it takes to decode on it, described by the keys of a result row."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import signature
from typing import Any

from lantern import decoding
from lantern.acceptance.exact import Exact
from lantern.certificates import Guarantee, certified, certified_target, foreign_parts, is_ours
from lantern.continuous.gaussian_ratio import GaussianRatio
from lantern.continuous.gaussian_shared import GaussianShared
from lantern.continuous.latent_sampling import LatentDrafter, LatentSampling
from lantern.decoding import DecodingSetup
from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError, unknown_setting
from lantern.models.token_grid import has_latents
from lantern.sampling import Sampling
from lantern.types import AcceptanceRule, Drafter, Target, TreePolicy, Verification, abilities_of
from lantern.verification import Ratio, SharedLaw, SharedNoise
from lantern.verification.block import Block
from lantern.verification.traversal import Traversal

# Tests show, by enumeration, token by token or by moments, that with these parts the output law is the target's:
# tests/test_laws.py and the tests of verification/, drafters/jacobi/ and continuous/.
PROVEN_VERIFICATIONS = (Ratio, SharedNoise, SharedLaw, Block, Traversal, GaussianRatio, GaussianShared)
PROVEN_TREES = ("none", "static", "eagle2", "ddd", "adaptive", "window")
OF_A_RULE = ("name", "verification", "lossless", "parameters", "judge")
RULE_KEYS = ("k", "delta", "lam")  # parameters that have a column of their own in every row
FILLED_IN = ("codebook", "rule", "sampling", "target", "tree")  # arguments of parts that are no settings
DrafterOverrides = Mapping[str, object]  # arguments of a drafter's constructor, such as its tree or a window's length


@dataclass(frozen=True)
class Pipeline(DecodingSetup):
    """A setup under its model's name."""

    model: str = "llamagen"

    generate, first_rounds, steps = decoding.generate, decoding.first_rounds, decoding.steps  # as methods

    def baseline(self) -> "Pipeline":
        """Plain AR decoding on the same target with the same picks."""
        plain = getattr(self.verification, "plain", SharedNoise)()  # verifications of latents name their own
        return replace(self, drafter=NoDrafter(), verification=plain, rule=Exact())

    def compiled_baseline(self) -> "Pipeline":
        """The same with torch.compile; LanternError from a target that cannot be compiled."""
        return replace(self.baseline(), target=self.target.configured(self.sampling.cfg_scale, True))

    @cached_property
    def guarantee(self) -> Guarantee:
        """That of the parts, or of the target's passes where it, or its network, is somebody else's and they fail."""
        if not self.of_parts.lossless or self.drafter.num_nodes <= 1 or is_ours(self.target):
            return self.of_parts
        of_target = certified_target(self.target)
        return self.of_parts if of_target.lossless else of_target

    @cached_property
    def of_parts(self) -> Guarantee:
        """Lantern's own parts are lossless together if its tests cover them, others if certificates say so."""
        rule, verification, drafter = self.rule, self.verification, self.drafter
        parts = {"rule": rule, "verification": verification, "tree": drafter.tree, "drafter": drafter}
        if not rule.lossless:
            settings = ", ".join(f"acceptance.{name}={value}" for name, value in rule.parameters.items())
            told = certified(parts, self.sampling.is_greedy).reason if not is_ours(rule) else ""
            told = f"is lossy, says its class; {told}" if told else "changes the law"
            return Guarantee(False, f"{settings or f'acceptance={rule.name}'} {told}")
        if lossy := [part.name for part in (verification, drafter) if not getattr(part, "lossless", True)]:
            return Guarantee(False, f"{' and '.join(lossy)} changes the law")
        if foreign_parts(parts):
            return certified(parts, self.sampling.is_greedy)
        is_proven = type(verification) in PROVEN_VERIFICATIONS and drafter.tree.kind in PROVEN_TREES
        shown = "proven by Lantern's tests" if is_proven else "no test of Lantern's shows that the law is kept"
        return Guarantee(is_proven, f"{rule.name} rule, {verification.name} on {drafter.tree.kind}: {shown}")

    @property
    def lossless(self) -> bool:
        """Whether the output law is the target's."""
        return self.guarantee.lossless

    def describe(self) -> dict[str, object]:
        """The setting's entries of a result row (model … cfg_scale), then the rule's other parameters under their names
        in its config, such as acceptance.eps."""
        rule, sampling = self.rule, self.sampling
        return {
            "model": self.model, "drafter": self.drafter.name, "drafter_hash": self.drafter.weights_hash,
            "tree": self.drafter.tree.name, "verification": self.verification.name, "acceptance": rule.name,
            "lossless": self.lossless, **{key: rule.parameters.get(key) for key in RULE_KEYS},
            "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p,
            "cfg_scale": sampling.cfg_scale,
            **{f"acceptance.{key}": value for key, value in rule.parameters.items() if key not in RULE_KEYS},
        }  # fmt: skip


class GreedyCoinsError(LanternError):
    """A verification that tosses coins cannot decode at temperature 0."""


@dataclass(frozen=True)
class PipelineFactory:
    """Makes pipelines that differ only in what is drafted, from a drafter that may still lack its tree."""

    plain: Pipeline
    drafter: Drafter | partial

    @property
    def drafter_parameters(self) -> frozenset[str]:
        """The arguments that may still be set; none if the drafter is complete."""
        return frozenset(signature(self.drafter.func).parameters) if isinstance(self.drafter, partial) else frozenset()

    def __call__(self, shape: TreePolicy | DrafterOverrides | None) -> Pipeline:
        """Plain decoding for shape None or a drafter that drafts nothing, whatever the rule."""
        if shape is None:
            return self.plain.baseline()
        drafter, given = self.drafter, shape if isinstance(shape, Mapping) else {"tree": shape}
        if isinstance(drafter, partial):
            settings = drafter.keywords | {name: given[name] for name in self.drafter_parameters & set(given)}
            drafter = partial(drafter.func, *drafter.args, **settings)
        drafter = bind_missing(drafter, target=self.plain.target, sampling=self.plain.sampling)
        if isinstance(drafter, NoDrafter):
            return self(None)
        if has_latents(self.plain.target) and not isinstance(drafter, LatentDrafter):
            raise LanternError(f"drafter={drafter.name} drafts codes, tokens are latents; use drafter=latent_jacobi")
        return replace(self.plain, drafter=drafter)


def pipelines(
    model: Target, drafter: Drafter | partial, acceptance: AcceptanceRule | partial,
    verification: Verification | partial, sampling: Sampling, name: str = "llamagen", compile: bool = False,
) -> PipelineFactory:  # fmt: skip
    """Joins the instantiated config groups, with their missing arguments, on the target configured for them. What is
    drafted stays open. LanternError for parts that do not go together."""
    target = model.configured(sampling.cfg_scale, compile)
    rule = bind_missing(acceptance, codebook=target.codebook)
    if absent := [name for name in OF_A_RULE if not hasattr(rule, name)]:
        kind = type(rule).__name__
        raise LanternError(f"{kind} is no AcceptanceRule of lantern/types.py; give it {', '.join(absent)}")
    verifier: Verification = bind_missing(verification, rule=rule, sampling=sampling, target=target)
    if sampling.is_greedy and abilities_of(verifier).tosses_coins:
        given = f"verification={verifier.name}"
        raise GreedyCoinsError(f"{given} tosses coins; at temperature=0 use verification=shared_noise")
    if has_latents(target) and not (isinstance(verifier, GaussianShared) and isinstance(sampling, LatentSampling)):
        raise LanternError(
            f"verification={verifier.name} or sampling= is of codes and the model's tokens are latents; use "
            "verification=gaussian_ratio, gaussian_shared or cspd, and the sampling of its yaml"
        )
    return PipelineFactory(Pipeline(target, NoDrafter(), verifier, rule, sampling, name), drafter)


def check_skip(pipeline: Pipeline) -> None:
    """LanternError if the rule skips all that is drafted: the images would be the drafter's."""
    depth, skip = pipeline.drafter.depth, pipeline.rule.parameters.get("skip", 0)
    if 0 < depth <= skip:
        raise LanternError(f"acceptance.skip={skip} leaves no draft to judge, {depth} deep; give {depth - 1} at most")


def missing_arguments(part: object) -> set[str]:
    """The names of the arguments that a partial still lacks; none for a complete part."""
    if not isinstance(part, partial):
        return set()
    expected = signature(part.func)
    try:
        return expected.parameters.keys() - expected.bind_partial(*part.args, **part.keywords).arguments.keys()
    except TypeError as error:
        known = [name for name in expected.parameters if name not in FILLED_IN]
        unknown = [f"{name}={value}" for name, value in part.keywords.items() if name not in expected.parameters]
        raise LanternError(unknown_setting(", ".join(unknown), part.func.__name__, known)) from error


def bind_missing(part: Any, **available: object) -> Any:
    """Calls a partial with the available arguments that it lacks; returns a complete part unchanged. A TypeError, such
    as for a word in place of a number, becomes a LanternError that names the settings."""
    if not isinstance(part, partial):
        return part
    lacking = {name: available[name] for name in missing_arguments(part) & set(available)}
    try:
        return part(**lacking)
    except TypeError as error:
        kind = part.func.__name__
        given = ", ".join(f"{name}={value}" for name, value in part.keywords.items()) or kind
        raise LanternError(f"{given}: {error}; give what {kind} takes, or leave it out") from error
