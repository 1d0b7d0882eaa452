"""Drafts inside a model's own generate: `lantern.accelerate(model)`, and a script written for transformers or diffusers
decodes images in fewer passes. The law stays the model's, and in greedy decoding the tokens do."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from transformers import JanusForConditionalGeneration, PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

from lantern.api import compose, load
from lantern.drafters.jacobi.jacobi import Jacobi, cut_chain
from lantern.errors import LanternError, first_line
from lantern.models.hf.called_target import CalledTarget
from lantern.models.hf.generate_calls import ImageCall, Layout, NotCoveredError, read_call, read_janus
from lantern.models.hf.pretrained import IMAGE_INPUTS, model_hash, sharing_weights
from lantern.types import Drafter, DraftTree, Forward, Generation, Proposals, Verdict

OTHER_LOOPS = ("streamer", "assistant_model", "synced_gpus", "custom_generate")  # arguments of generate
WARM, PLAIN, WINDOWS = 2, 4, 16  # rounds of a call: not timed, timed without a window, timed with one
SHORT = 128  # tokens of an image for which a trial takes too long
log = logging.getLogger(__name__)


class WhileItPays:
    """Implements lantern.types.Drafter: a window, as long as it commits more tokens a second than plain decoding. Each
    call first times rounds without and with one. Tokens are the same either way, since one draw is allowed a place."""

    def __init__(self, window: Jacobi) -> None:
        self._window = window

    def __getattr__(self, name: str) -> Any:
        return getattr(self._window, name)

    def allocate(self, batch_size: int) -> None:
        self._window.allocate(batch_size)
        self._starts: list[float] = []  # of rounds
        self._committed: list[int] = []  # tokens of all images
        self._pays = True

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        done = len(self._starts)
        if done <= WARM + PLAIN + WINDOWS:
            self._starts.append(perf_counter())
        if done == WARM + PLAIN + WINDOWS:
            self._pays = self._is_faster()
        if done < WARM + PLAIN or not self._pays:
            return cut_chain(tokens_left, roots[:, None])
        return self._window.draft(roots, tokens_left, proposals)

    def _is_faster(self) -> bool:
        times = [after - before for before, after in pairwise(self._starts)]
        plain, windows = slice(WARM, WARM + PLAIN), slice(WARM + PLAIN, None)
        tokens, alone = (sum(self._committed[part]) / len(self._committed[part]) for part in (windows, plain))
        return tokens / median(times[windows]) > alone / median(times[plain])

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        self._committed.append(sum(verdict.counts) + len(verdict.counts))
        if self._pays:
            self._window.observe(tree, forward, probs, verdict)


class Accelerated:
    """Takes the place of a model's generate. statistics: of the last call, None if the model's own carried it out."""

    def __init__(self, model: Any, method: str, drafter: str | Path | Drafter | None) -> None:
        self.model, self.own = model, model.generate
        self.statistics: Generation | None = None
        self._parts: dict[str, Any] = {"method": method}
        if isinstance(drafter, str | Path):
            self._parts["settings"] = {"drafter.checkpoint": str(drafter)}
        elif drafter is not None:
            self._parts["drafter"] = drafter
        self._told: set[str] = set()
        self._weights: object = None  # those that the target was made of
        self._layout: Layout

    def __call__(self, *args: Any, generator: torch.Generator | None = None, **given: Any) -> object:
        """As the model's own, in its own types. generator: draws the seeds, in place of torch's global one."""
        self.statistics, state = None, torch.get_rng_state()
        try:
            return self._drafted(args, given, generator)
        except NotCoveredError as reason:
            if str(reason) not in self._told:
                log.warning("%s.generate is not accelerated: %s", type(self.model).__name__, reason)
            self._told.add(str(reason))
        torch.set_rng_state(state)  # what was drawn before the reason was found
        with torch.random.fork_rng(enabled=generator is not None):  # the own generate takes no generator
            if generator is not None:
                torch.manual_seed(int(torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)))
            return self.own(*args, **given)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        copied = memo[id(self.model)]  # a copy of the model is not accelerated
        return type(self.model).generate.__get__(copied)

    def _drafted(self, args: tuple, given: dict[str, Any], generator: torch.Generator | None) -> object:
        if self.model.training or any(hasattr(part, "_hf_hook") for part in self.model.modules()):
            raise NotCoveredError("the model is in training mode, or hooks move its weights")
        if isinstance(self.model, JanusForConditionalGeneration):
            return self._decoded(read_janus(self.model, *args, **given), generator)
        if others := [name for name in OTHER_LOOPS if given.get(name) is not None]:
            raise NotCoveredError(f"{others[0]} is given")

        def loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):  # its own names
            call = read_call(model, input_ids, logits_processor, stopping_criteria, generation_config, kwargs)
            return self._decoded(call, generator)

        return self.own(*args, custom_generate=loop, **given)

    def _decoded(self, call: ImageCall, generator: torch.Generator | None) -> object:
        pipeline, count = self._pipeline(call), len(call.prefixes)
        seeds = [0] * count
        if not pipeline.sampling.is_greedy:
            device = generator.device if generator is not None else "cpu"
            seeds = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator, device=device).tolist()
        try:
            generation = pipeline.generate(call.prefixes, seeds, count)
        except LanternError as error:
            raise NotCoveredError(first_line(error)) from error
        made: Any = call.finish(generation.tokens)
        self.statistics = generation
        return GenerateDecoderOnlyOutput(sequences=made) if call.in_dict else made

    def _pipeline(self, call: ImageCall) -> Any:
        """The last Pipeline, if it fits; it takes prefixes."""
        length = max(len(ids) for prefix in call.prefixes for ids in prefix)
        weights = [(weight.data_ptr(), weight._version) for weight in self.model.parameters()]
        if self._weights != weights or not call.layout.equals(self._layout):
            drafts = "settings" in self._parts or "drafter" in self._parts
            made_of = model_hash(self.model, IMAGE_INPUTS.get(self.model.config.model_type, ())) if drafts else ""
            target: Any = CalledTarget(sharing_weights(self.model), call.layout, length, made_of)
            if not isinstance(self.model, JanusForConditionalGeneration):
                target.check(self._logits(call), call.prefixes[0])
            self._weights, self._layout, self._target, self._sampling = weights, call.layout, target, None
        if self._sampling != call.sampling:
            settings = {f"sampling.{name}": value for name, value in call.sampling.items()}
            parts = self._parts | {"settings": self._parts.get("settings", {}) | settings}
            model = load(self._target, {"tf32": torch.backends.cuda.matmul.allow_tf32})  # which stays as it is
            joined: Any = model.pipeline(**parts)
            if not joined.lossless:
                raise LanternError(f"{joined.guarantee.reason}; accelerate takes methods that keep the model's law")
            if type(joined.drafter) is Jacobi and self._target.num_tokens >= SHORT:
                joined = replace(joined, drafter=WhileItPays(joined.drafter))
            self._joined, self._sampling = joined, call.sampling
        self._joined.target.take(length)
        return self._joined

    def _logits(self, call: ImageCall) -> Tensor:
        """[V] of the first code, by the model's own forward."""
        ids = torch.tensor([call.prefixes[0].conditional], device=self.model.device)
        with torch.no_grad():
            logits = self.model(input_ids=ids).logits[0, -1]
        return logits[call.layout.codes.to(logits.device)]


def accelerate(
    model: PreTrainedModel, processor: object = None, method: str = "jacobi",
    drafter: str | Path | Drafter | None = None,
) -> None:  # fmt: skip
    """From now on model.generate, called for images as its documentation calls it, drafts by a lossless method and
    returns what it returned before. Calls that are not covered go to the model's own generate, with a line that says
    why. model: of transformers, or a pipeline of diffusers with one in it; processor: not needed, all is read from the
    call; method: of conf/method; drafter: its folder or Hub id, for methods that have one. Raises LanternError for
    what is no such model or method; a drafter of another model is refused by the first call."""
    own = model_of(model)
    restore(own)
    compose([f"+method={method}"])  # LanternError if there is none
    own.generate = Accelerated(own, method, drafter)


def restore(model: PreTrainedModel) -> None:
    """Gives the model its own generate back, and frees what drafts held. Nothing else of it was changed."""
    own = model_of(model)
    if isinstance(accelerated := own.__dict__.get("generate"), Accelerated):
        del own.generate
        if own.generate != accelerated.own:  # it was an attribute of this object
            own.generate = accelerated.own


@contextmanager
def accelerated(
    model: PreTrainedModel, processor: object = None, method: str = "jacobi",
    drafter: str | Path | Drafter | None = None,
) -> Iterator[None]:  # fmt: skip
    """accelerate() within the context."""
    accelerate(model, processor, method, drafter)
    try:
        yield
    finally:
        restore(model)


def model_of(given: object) -> Any:
    model: Any = getattr(given, "vision_language_encoder", given)  # GLM-Image's pipeline
    if not isinstance(model, nn.Module) or not hasattr(model, "generate") or not hasattr(model, "config"):
        raise LanternError(f"{str(model)[:80]} has no generate; give a model of transformers, or a pipeline with one")
    return model
