"""Drafts inside a model's own generate: `lantern.accelerate(model)`, and a script written for transformers or diffusers
decodes images in fewer passes. The law stays the model's, and in greedy decoding the tokens do."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import JanusForConditionalGeneration, PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

from lantern.api import compose, load
from lantern.errors import LanternError, first_line
from lantern.models.hf.called_target import CalledTarget
from lantern.models.hf.generate_calls import ImageCall, Layout, NotCoveredError, read_call, read_janus
from lantern.models.hf.pretrained import IMAGE_INPUTS, model_hash, sharing_weights
from lantern.types import Drafter, Generation

OTHER_LOOPS = ("streamer", "assistant_model", "synced_gpus", "custom_generate")  # arguments of generate
log = logging.getLogger(__name__)


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
        self.statistics = None
        try:
            return self._drafted(args, given, generator)
        except NotCoveredError as reason:
            if str(reason) not in self._told:
                log.warning("%s.generate is not accelerated: %s", type(self.model).__name__, reason)
            self._told.add(str(reason))
        return self.own(*args, **given, **({} if generator is None else {"generator": generator}))

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
