"""Drafts inside a model's own generate: `lantern.accelerate(model)`, and a script written for transformers or diffusers
decodes images in fewer passes. The law stays the model's, and in greedy decoding the tokens do."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import RLock
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from transformers import JanusForConditionalGeneration, PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

from lantern.api import PARTS, compose, errors_told, overrides_of
from lantern.certificates import class_name, is_ours
from lantern.cli.composing import built
from lantern.drafters.jacobi.jacobi import Jacobi, cut_chain
from lantern.drafters.loading import RANDOM, drafter_folder
from lantern.errors import FirstWarning, LanternError, first_line
from lantern.laws.passes import pass_deviation
from lantern.models.hf.called_target import CalledTarget, NotCoveredError
from lantern.models.hf.generate_calls import ImageCall, read_call, read_janus
from lantern.models.hf.pretrained import IMAGE_INPUTS, model_hash, sharing_weights
from lantern.pipeline import GreedyCoinsError, bind_missing, pipelines
from lantern.sampling import Sampling
from lantern.types import Drafter, DraftTree, Forward, Generation, Proposals, Verdict, abilities_of

ADAPTERS = ("disable_adapters", "active_adapters", "scaling")  # of a layer of peft
REPLACED = {"forward", "prepare_inputs_for_generation"}  # methods, by whom the model is compiled or prompted
OTHER_LOOPS = ("streamer", "assistant_model", "synced_gpus", "custom_generate")  # arguments of generate
WARM, PLAIN, WINDOWS = 2, 4, 16  # rounds of a call: not timed, timed without a window, timed with one at most
LOST = 0.02  # of the time of plain decoding: what a trial may cost
SHORT = 128  # tokens of an image for which a trial takes too long
LOSSLESS = "accelerate takes methods that keep the model's law"
log = logging.getLogger(__name__)


class WhileItPays:
    """Implements lantern.types.Drafter: a window, as long as it commits more tokens a second than plain decoding. Each
    call first times rounds without and with one. Verifications that pick by noise give the same tokens either way."""

    def __init__(self, window: Jacobi, num_tokens: int) -> None:
        self._window, self._num_tokens = window, num_tokens  # of an image

    def __getattr__(self, name: str) -> Any:
        return getattr(self._window, name)

    def allocate(self, batch_size: int) -> None:
        self._window.allocate(batch_size)
        self._starts: list[float] = []  # of rounds
        self._committed: list[int] = []  # tokens of all images
        self.left_out: int | None = None  # from this round on

    def draft(self, roots: Tensor, tokens_left: Tensor, proposals: Proposals) -> DraftTree:
        done = len(self._starts)
        if done <= WARM + PLAIN + WINDOWS:
            self._starts.append(perf_counter())
            if done > WARM + PLAIN and self.left_out is None:
                self._judge(done)
        if done < WARM + PLAIN or self.left_out is not None:
            return cut_chain(tokens_left, roots[:, None])
        return self._window.draft(roots, tokens_left, proposals)

    def _judge(self, done: int) -> None:
        """Leaves the window out where the next round would take what is lost above LOST, and where all have lost."""
        times = [after - before for before, after in pairwise(self._starts)]
        plain, windows = slice(WARM, WARM + PLAIN), slice(WARM + PLAIN, None)
        tokens, alone = (sum(self._committed[part]) / len(self._committed[part]) for part in (windows, plain))
        longer, more, count = median(times[windows]) / median(times[plain]), tokens / alone, done - WARM - PLAIN
        most = 0 if count == WINDOWS else LOST * self._num_tokens * count / (count + 1)
        if count * (longer - more) > most:  # in rounds of plain decoding
            self.left_out = done
            self.reason = f"a pass takes {longer:.1f} times as long with one and commits {more:.1f} times as many codes"

    def observe(self, tree: DraftTree, forward: Forward, probs: Tensor, verdict: Verdict) -> None:
        self._committed.append(sum(verdict.counts))
        if self.left_out is None:
            self._window.observe(tree, forward, probs, verdict)


class Accelerated(AbstractContextManager["Accelerated"]):
    """From now on model.generate, called for images as its documentation calls it, drafts by a lossless method and
    returns what it returned before. Calls that are not covered go to the model's own generate, with a line that says
    why. As a context, restore() ends it. statistics: of the last call, None if the model's own carried it out."""

    def __init__(
        self, model: PreTrainedModel, processor: object = None, method: str = "jacobi",
        drafter: str | Path | Drafter | None = None,
    ) -> None:  # fmt: skip
        """model: of transformers, or a pipeline of diffusers with one in it; processor: not needed, all is read from
        the call; method: of conf/method; drafter: its folder or Hub id, for methods that have one. Raises LanternError
        for what is no such model or method; a drafter of another model is refused by the first call."""
        self.model = model_of(model)
        self.statistics: Generation | None = None
        given = {"drafter.checkpoint": str(drafter)} if isinstance(drafter, str | Path) else {}
        self._config = compose([f"+method={method}", *overrides_of(given)])  # most of a second, so before any call
        if drafter is None and "checkpoint" in self._config.drafter:
            raise LanternError(
                f"method={method} has a drafter that is trained for the model; give its folder as drafter="
            )
        if given and drafter != RANDOM:
            drafter_folder(str(drafter), "drafter", "lantern.fit_drafter")
        made: dict[str, Any] = {group: built(self._config[group]) for group in PARTS}
        kinds = {group: getattr(part, "func", part) for group, part in made.items()}  # what can be told without a model
        if lossy := [group for group, kind in kinds.items() if not getattr(kind, "lossless", group != "acceptance")]:
            raise LanternError(f"the {lossy[0]} of method={method} changes the law; {LOSSLESS}")
        self._parts: dict[str, Any] = {} if given or drafter is None else {"drafter": drafter}
        self._looking: set[object] = set()  # kinds of logits processors that turned out to look at codes
        self._tell, self._warn = cache(log.warning), FirstWarning(log)
        self._lock = RLock()  # one call at a time: they share a cache
        self._last: Any = (None, None)  # what the last Pipeline was made for, and it
        self._compared: tuple[object, float] = (None, 0.0)  # likewise, and the deviation of a foreign network's passes
        restore(self.model)
        self.own, self.model.generate = self.model.generate, self

    def __call__(self, *args: Any, generator: torch.Generator | None = None, **given: Any) -> object:
        """As the model's own, in its own types. generator: draws the seeds, in place of torch's global one."""
        self.statistics, state = None, torch.get_rng_state()
        is_usual = torch.get_default_device().type == "cpu"
        try:
            with self._lock, nullcontext() if is_usual else torch.device("cpu"):
                return self._drafted(args, given, generator)
        except NotCoveredError as reason:
            self._tell("%s.generate is not accelerated: %s", type(self.model).__name__, str(reason))
        torch.set_rng_state(state)  # what was drawn before the reason was found
        with torch.random.fork_rng(enabled=generator is not None):  # the own generate takes no generator
            if generator is not None:
                torch.manual_seed(int(torch.randint(2**63 - 1, (1,), generator=generator, device=generator.device)))
            return self.own(*args, **given)

    def __exit__(self, *_: object) -> None:
        restore(self.model)

    def __reduce__(self) -> tuple:  # a copy of the model, or one that was saved, is not accelerated
        return getattr, (self.model, "generate")

    def _drafted(self, args: tuple, given: dict[str, Any], generator: torch.Generator | None) -> object:
        if not is_plain(self.model):
            raise NotCoveredError("the model is in training mode, or hooks or kinds of weights change what it does")
        if isinstance(self.model, JanusForConditionalGeneration):
            return self._decoded(read_janus(self.model, *args, **given), generator)
        if others := [name for name in OTHER_LOOPS if given.get(name) is not None]:
            raise NotCoveredError(f"{others[0]} is given")

        def loop(model, input_ids, logits_processor, stopping_criteria, generation_config, **kwargs):  # its own names
            of_call = logits_processor, stopping_criteria, generation_config, kwargs
            return self._decoded(read_call(model, input_ids, *of_call, self._looking), generator)

        return self.own(*args, custom_generate=loop, **given)

    def _decoded(self, call: ImageCall, generator: torch.Generator | None) -> object:
        pipeline, count = self._pipeline(call), len(call.prefixes)
        seeds = [0] * count
        if not pipeline.sampling.is_greedy:
            device = generator.device if generator is not None else "cpu"
            seeds = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator, device=device).tolist()
        with _covered(LanternError):
            generation = pipeline.generate(call.prefixes, seeds, count)
        made: Any = call.finish(generation.tokens)
        if left_out := getattr(pipeline.drafter, "left_out", None):
            self._warn("The window does not pay and is left out: %s", pipeline.drafter.reason)
        self.statistics = replace(generation, window_left_out=left_out)
        return GenerateDecoderOnlyOutput(sequences=made) if call.in_dict else made

    def _pipeline(self, call: ImageCall) -> Any:
        """The last Pipeline, if it fits; it takes prefixes."""
        length = max(len(ids) for prefix in call.prefixes for ids in prefix)
        made_of = model_hash(self.model, IMAGE_INPUTS.get(self.model.config.model_type, ()))
        laid_out = [part.tolist() if isinstance(part, Tensor) else part for part in call.layout]
        made_for = made_of, state_of(self.model), call.sampling, laid_out
        if made_for != self._last[0]:
            first: Any = call.prefixes[0]
            with _covered():
                sampling = Sampling(**call.sampling)
                target: Any = CalledTarget(sharing_weights(self.model), call.layout, length, made_of)
                if not isinstance(self.model, JanusForConditionalGeneration):
                    target.check(self.model, call.layout.codes, first)
            if not is_ours(target):
                if made_for[:2] != self._compared[0]:
                    self._compared = made_for[:2], pass_deviation(target, first)[0]
                if apart := self._compared[1]:
                    raise NotCoveredError(f"tree passes of {class_name(target)} are {apart:.1g} off single ones")
            with errors_told(self._config):
                parts: dict[str, Any] = {group: built(self._config[group]) for group in PARTS} | self._parts
                tree = bind_missing(parts.pop("tree"))
                with _covered(GreedyCoinsError):
                    joined = pipelines(target, **parts, sampling=sampling)(tree)
            if not joined.of_parts.lossless:
                raise LanternError(f"{joined.of_parts.reason}; {LOSSLESS}")
            picks = abilities_of(joined.verification).picks_by_noise
            if picks and type(joined.drafter) is Jacobi and target.num_tokens >= SHORT:
                joined = replace(joined, drafter=WhileItPays(joined.drafter, target.num_tokens))
            self._last = made_for, joined
        self._last[1].target.take(length)
        return self._last[1]


@contextmanager
def _covered(kind: type[Exception] = Exception) -> Iterator[None]:
    """Has the model's own generate carry out what fails within it: bodies are built in many ways."""
    try:
        yield
    except kind as error:
        what = "" if isinstance(error, LanternError) else "its body is built otherwise than those that are read: "
        raise NotCoveredError(f"{what}{first_line(error)}") from error


def restore(model: PreTrainedModel) -> None:
    """Gives the model its own generate back, and frees what drafts held. Nothing else of it was changed."""
    own = model_of(model)
    if isinstance(accelerated := own.__dict__.get("generate"), Accelerated):
        del own.generate
        if own.generate != accelerated.own:  # it was an attribute of this object
            own.generate = accelerated.own
        accelerated._last = (None, None)


accelerate = accelerated = Accelerated


def model_of(given: object) -> Any:
    model: Any = getattr(given, "vision_language_encoder", given)  # GLM-Image's pipeline
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of peft
    if not isinstance(model, nn.Module) or not hasattr(model, "generate") or not hasattr(model, "config"):
        raise LanternError(f"{str(model)[:80]} has no generate; give a model of transformers, or a pipeline with one")
    return model


def is_plain(model: nn.Module) -> bool:
    """Whether modules over the same weights do what the model does. Hooks of transformers only read."""
    parts = [*model.modules()]
    hooks = [hook for part in parts for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values())]
    others = [hook for hook in hooks if not getattr(hook, "__module__", "").startswith("transformers.")]
    is_replaced = REPLACED & vars(model).keys() or any(hasattr(part, "_hf_hook") for part in parts)
    is_wrapped = any(hasattr(weight, "__tensor_flatten__") for weight in model.parameters())  # torchao's, DTensor
    return not (model.training or others or is_replaced or is_wrapped)


def state_of(model: nn.Module) -> list:
    """What differs when weights have changed in place, `.data` left out, and when other adapters of peft are active."""
    adapted = [part for part in model.modules() if hasattr(part, "base_layer")]
    active = [[str(getattr(one, name, "")) for name in ADAPTERS] for one in adapted]
    return [active, [(weight.data_ptr(), weight.is_inference() or weight._version) for weight in model.parameters()]]
