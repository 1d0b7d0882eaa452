"""A call of transformers' generate, read as it is given: the ids before an image, guidance, sampling, and constraints.
NotCoveredError says in a few words what cannot be drafted."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from math import isqrt
from types import CellType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import GenerationConfig
from transformers.generation import logits_process as known
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from lantern.errors import explaining
from lantern.models.hf.called_target import Layout, NotCoveredError
from lantern.models.hf.prompt_format import Prefix
from lantern.models.token_grid import grid_positions

BY_PLACE = (  # transformers' processors that mask ids by their place alone
    known.SuppressTokensLogitsProcessor, known.SuppressTokensAtBeginLogitsProcessor, known.MinLengthLogitsProcessor,
    known.MinNewTokensLengthLogitsProcessor, known.ForcedBOSTokenLogitsProcessor, known.ForcedEOSTokenLogitsProcessor,
)  # fmt: skip
WARPERS = {  # in the order in which they are applied: class and the name in Sampling, which its attribute has, too
    known.TemperatureLogitsWarper: "temperature", known.TopKLogitsWarper: "top_k", known.TopPLogitsWarper: "top_p",
}  # fmt: skip
EXTRAS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
ARGUMENTS = {  # of a forward, that decoding reads or has its own of
    "attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position",
    "image_grid_thw", "images_per_sample", "image_sizes",
}  # fmt: skip
MASKED = -1e30  # a score below it is masked
ASKED = 16  # places at which masks are asked with other codes before them


class ImageCall(NamedTuple):
    """One prefix an image; sampling: arguments of Sampling; finish: tokens [B, L] -> the sequences that generate
    returns, or NotCoveredError if the codes drawn turn out to change what may be drawn; in_dict: they are in one."""

    prefixes: list[Prefix]
    layout: Layout
    sampling: dict[str, Any]
    finish: Callable[[Tensor], Tensor]
    in_dict: bool


def read_janus(
    model: Any, inputs: Tensor | None = None, attention_mask: Tensor | None = None,
    logits_processor: Sequence | None = None, generation_mode: str = "text",
    generation_config: GenerationConfig | None = None, **given: Any,
) -> ImageCall:  # fmt: skip
    """Of JanusForConditionalGeneration, whose generate is its own for images."""
    if generation_mode != "image":
        raise NotCoveredError(f"generation_mode={generation_mode} makes no image")
    config, kwargs = model._prepare_generation_config(generation_config, **given)
    inputs, _, kwargs = model._prepare_model_inputs(inputs, config.bos_token_id, kwargs)
    _check_prompt(config, inputs, kwargs)
    scale, config.guidance_scale = 5 if config.guidance_scale is None else config.guidance_scale, None
    if scale <= 1 or attention_mask is None:
        raise NotCoveredError(f"Janus asks for an attention mask and guidance above 1, not guidance_scale={scale}")
    model._prepare_special_tokens(config, True, device=inputs.device)
    sampling, masks, _ = _read_processors(config, model._get_logits_processor(config, inputs.shape[1]))
    if before := [*(logits_processor or []), *masks]:
        raise NotCoveredError(f"Janus applies {type(before[0]).__name__} before its guidance")
    ids, mask = (part.repeat_interleave(config.num_return_sequences or 1, 0) for part in (inputs, attention_mask))
    is_kept = (ids == config.bos_token_id) | (ids == config.generation_kwargs["boi_token_id"])
    nothing = ids.masked_fill(~is_kept, config.pad_token_id)
    count, codes = model.model.vision_model.config.num_image_tokens, model.config.vq_config.num_embeddings
    prefixes = [Prefix(*pair) for pair in zip(unpadded(ids, mask), unpadded(nothing, mask), strict=True)]
    layout = Layout(torch.arange(codes), count, square(count))
    finish, in_dict = partial(Tensor.to, dtype=ids.dtype, device=ids.device, copy=True), config.return_dict_in_generate
    return ImageCall(prefixes, layout, sampling | {"cfg_scale": float(scale)}, finish, bool(in_dict))


def read_call(
    model: Any, ids: Tensor, logits_processor: Sequence, stopping_criteria: Sequence, config: Any,
    kwargs: dict[str, Any], looking: set[object],
) -> ImageCall:  # fmt: skip
    """The arguments, such as ids [B, P], are those that generate gives to its decoding loop, but for `looking`: kinds
    of processors that have been found to look at codes, which grow."""
    _check_prompt(config, ids, kwargs)
    if others := {type(one) for one in stopping_criteria} - {MaxLengthCriteria, EosTokenCriteria}:
        raise NotCoveredError(f"{others.pop().__name__} may stop it anywhere")
    sampling, masks, guidance = _read_processors(config, logits_processor)
    ends = [] if config._eos_token_tensor is None else config._eos_token_tensor.tolist()
    grids, count = kwargs.get("image_grid_thw"), config.max_length - ids.shape[1]
    vocabulary = len(model.get_output_embeddings().weight)
    with explaining("a logits processor cannot be copied", "what it keeps would change", NotCoveredError):
        rules = [getattr(one, "_prefix_allowed_tokens_fn", None) for one in masks]
        held = {id(rule): _with_own_cells(rule) for rule in rules if getattr(rule, "__closure__", None)}
        masks = deepcopy(masks, {id(part): part for part in model.modules()} | held)
    plan = Plan(masks, ids, vocabulary, ends, looking)
    free = Layout(torch.arange(vocabulary), count, square(count), None, torch.zeros(count), torch.arange(count))
    free = free._replace(ends=torch.tensor(ends) if ends else None)
    layout = plan.layout(count, makes_images=grids is not None) if masks or grids is None else free
    if grids is not None:
        layout = _with_positions(model, layout, ids, grids, kwargs.get("images_per_sample"))
    own, before = unpadded(ids, kwargs.get("attention_mask")), layout.line[: int(layout.places[0])].tolist()
    nothing = own if guidance is None else _unconditional(guidance, ids)

    def finish(tokens: Tensor) -> Tensor:
        drawn = layout.line.to(ids).repeat(len(tokens), 1)
        drawn[:, layout.places] = layout.codes.to(ids)[tokens.to(ids.device)]
        made = _ended(drawn, ends, 0 if config._pad_token_tensor is None else int(config._pad_token_tensor))
        plan.check(torch.cat([ids, drawn], 1), range(made.shape[1]))
        return torch.cat([ids, made], 1)

    prefixes = [Prefix([*line, *before], [*other, *before]) for line, other in zip(own, nothing, strict=True)]
    return ImageCall(prefixes, layout, sampling, finish, bool(config.return_dict_in_generate))


def _with_own_cells(rule: Any) -> FunctionType:
    """A copy of a function whose counters are its own: a deep copy would share what a closure holds."""
    cells = [
        CellType(deepcopy(cell.cell_contents)) if isinstance(cell.cell_contents, int | list | dict | set) else cell
        for cell in rule.__closure__ or ()
    ]
    copied = FunctionType(rule.__code__, rule.__globals__, rule.__name__, rule.__defaults__, tuple(cells))
    copied.__kwdefaults__ = rule.__kwdefaults__
    return copied


class Plan:
    """What masks leave at each place behind ids [B, P]. It is found by asking them with codes made up. Processors that
    may also look at the codes are checked with others at some places, and with those that were drawn."""

    def __init__(self, masks: Sequence, ids: Tensor, vocabulary: int, ends: Sequence[int], looking: set) -> None:
        self.masks, self.ids, self.ends, self.looking = masks, ids, set(ends), looking
        rules = [getattr(one, "_prefix_allowed_tokens_fn", one) for one in masks]
        self.kinds = {getattr(rule, "__code__", type(rule)) for rule in rules} - {*BY_PLACE}
        scores = torch.randn(2, vocabulary, generator=torch.Generator().manual_seed(0)).to(ids.device)
        self.scores = scores[:, None].expand(-1, len(ids), -1)  # two: a mask that depends on scores is none
        self.sets: list[Tensor] = []  # [V] bool
        self.at: list[int] = []  # the set of each place

    def layout(self, count: int, makes_images: bool) -> Layout:
        """Of `count` places, or up to a certain end. Codes made up are no ends: behind one masks may be others."""
        length, line = self.ids.shape[1], pad(self.ids, (0, count))
        other, found = line.clone(), dict[bytes, int]()
        self.check(line, [])
        for place in range(count):
            allowed = self._allowed(line[:, : length + place])
            if (allowed != allowed[:1]).any():
                raise NotCoveredError("the images of the batch have different constraints")
            self.at.append(found.setdefault(allowed[0].cpu().numpy().tobytes(), len(found)))
            self.sets += [allowed[0].clone()] * (len(found) - len(self.sets))
            left = self.sets[self.at[-1]].nonzero()[:, 0]
            if 2 * len(left) > allowed.shape[1] and not makes_images:
                raise NotCoveredError(f"it may draw {len(left)} of {allowed.shape[1]} ids, over half, as text does")
            if len(left) == 1 and int(left) in self.ends:
                break
            codes = left[~torch.isin(left, left.new_tensor([*self.ends]))] if len(left) > len(self.ends) else left
            number = place % len(codes)
            line[:, length + place], other[:, length + place] = codes[number], codes[-1 - number]
        self.check(other, range(0, len(self.at), 1 + len(self.at) // ASKED))
        return self._laid_out()

    def check(self, line: Tensor, places: Sequence[int]) -> None:
        """NotCoveredError if others may be drawn at these places behind ids [B, P + L], or were in a call before."""
        start = self.ids.shape[1]
        is_behind = behind_ends(line[:, start:], [*self.ends])
        for place in places if self.kinds else []:
            same = (self._allowed(line[:, : start + place]) == self.sets[self.at[place]]).all(1)
            if not (same | is_behind[:, place]).all():
                self.looking |= self.kinds
                break
        if self.kinds & self.looking:
            raise NotCoveredError("a logits processor masks codes by the codes before them")

    def _allowed(self, line: Tensor) -> Tensor:
        """[B, V] the ids that may follow line [B, T]."""
        is_foreign = any(type(one).__module__ != known.__name__ for one in self.masks)
        kept: list[Tensor] = []
        for scores in self.scores if is_foreign else self.scores[:1]:
            made = scores
            for one in self.masks:
                made = one(line, made.clone())
            kept.append(made > MASKED)
            if (((made != scores) & kept[-1]).any(1) & (kept[-1].sum(1) > 1)).any():
                raise NotCoveredError("a logits processor changes scores that it does not mask")
        if not torch.equal(kept[0], kept[-1]):
            raise NotCoveredError("a logits processor masks by scores")
        return kept[0]

    def _laid_out(self) -> Layout:
        sets, at = torch.stack(self.sets).cpu(), torch.tensor(self.at)  # [K, V], [T]
        ids, is_free = sets.int().argmax(1), sets.sum(1) > 1  # an id is certain where there is one
        drawn = is_free[at].nonzero()[:, 0]  # places
        if not (count := len(drawn)):
            raise NotCoveredError("its constraints leave nothing to draw")
        first, last = int(drawn[0]), int(drawn[-1]) + 1
        inner = at[first:last]
        row_ends = ids[inner[~is_free[inner]]].unique().tolist()
        width = int((drawn.diff() > 1).int().argmax()) + 1 if row_ends else count
        places = torch.arange(count)
        if not torch.equal(drawn, first + places + places // width) or len(row_ends) > 1:
            raise NotCoveredError("its constraints lay out no rows of codes")
        codes = sets[is_free].any(0).nonzero()[:, 0]
        grid = (-(-count // width), width) if row_ends else square(count)
        where = (sets[:, codes], at[drawn]) if len(at[drawn].unique()) > 1 else (None, None)
        ends = torch.isin(codes, codes.new_tensor([*self.ends])).nonzero()[:, 0]
        laid_out = Layout(codes, count, grid, row_ends[0] if row_ends else None, ids[at], drawn, *where)
        return laid_out._replace(ends=ends if len(ends) else None)


def unpadded(ids: Tensor, mask: Tensor | None) -> list[list[int]]:
    """ids [B, P] -> those that a mask [B, P] attends to, which has zeros on the left at most; None: all."""
    mask = torch.ones_like(ids) if mask is None else mask
    if mask.shape != ids.shape or (mask.diff(dim=1) < 0).any() or not mask[:, -1].all():
        raise NotCoveredError("its attention mask has zeros that are not on the left")
    return [line[keep].tolist() for line, keep in zip(ids, mask.bool(), strict=True)]


def _check_prompt(config: Any, ids: Tensor, kwargs: dict[str, Any]) -> None:
    """Raises NotCoveredError for more than one sampled image an answer, and for a prompt that is more than ids."""
    if (mode := config.get_generation_mode()) not in ("sample", "greedy_search"):
        raise NotCoveredError(f"its mode is {mode.value}")
    if config.return_dict_in_generate and (asked := [name for name in EXTRAS if getattr(config, name, None)]):
        raise NotCoveredError(f"{asked[0]} is asked for")
    cache, places, mask = (kwargs.get(name) for name in ("past_key_values", "position_ids", "attention_mask"))
    if unknown := [name for name, value in kwargs.items() if name not in ARGUMENTS and value not in (None, {})]:
        raise NotCoveredError(f"{unknown[0]} is given")
    if cache is not None and cache.get_seq_length():
        raise NotCoveredError("it goes on from a cache")
    if ids.dim() != 2 or ids.is_floating_point():
        raise NotCoveredError("its prompt is no ids")
    mask = torch.ones_like(ids) if mask is None else mask
    if places is not None and places.dim() == 2 and ((places != mask.cumsum(1) - 1) & mask.bool()).any():
        raise NotCoveredError("position_ids are given")


def _read_processors(config: Any, given: Sequence) -> tuple[dict[str, float], list, Any]:
    """-> arguments of Sampling, processors that mask, and the one that guides."""
    sampling: dict[str, float] = {}
    masks, guidance, order = [], None, list(WARPERS)
    for one in given:
        kind = type(one)
        may_mask = kind in (*BY_PLACE, known.PrefixConstrainedLogitsProcessor) or kind.__module__ != known.__name__
        if kind in order:
            sampling[WARPERS[kind]] = getattr(one, WARPERS[kind])
            order = order[order.index(kind) + 1 :]
        elif kind is known.UnbatchedClassifierFreeGuidanceLogitsProcessor and guidance is None and not sampling:
            guidance = one
        elif may_mask and not sampling:
            masks.append(one)
        elif kind is not known.LogitNormalization:  # which changes no law
            raise NotCoveredError(f"{kind.__name__} is applied")
    sampling |= {} if config.do_sample else {"temperature": 0.0}
    return {"cfg_scale": 1.0 if guidance is None else float(guidance.guidance_scale)} | sampling, masks, guidance


def _unconditional(guidance: Any, ids: Tensor) -> list[list[int]]:
    told = guidance.unconditional_context
    nothing = ids[:, -1:] if told["input_ids"] is None else told["input_ids"]
    if len(nothing) != len(ids) or not told["use_cache"]:
        raise NotCoveredError(f"{len(ids)} images have {len(nothing)} negative prompts, or no cache")
    return unpadded(nothing, told["attention_mask"])


def _with_positions(model: Any, layout: Layout, ids: Tensor, grids: Tensor, counts: Tensor | None) -> Layout:
    """Of GLM-Image: grids [G, 3], the image's and its preview's of each prompt."""
    each = grids.split(counts.tolist()) if counts is not None else [grids] * len(ids)
    if len(each) != len(ids) or any(not torch.equal(one, each[0]) for one in each):
        raise NotCoveredError("the images of the batch have different sizes")
    if (ids == model.config.image_end_token_id).any():
        raise NotCoveredError("its prompt has images")
    sizes = [(height, width) for _, height, width in each[0].tolist()]
    places = grid_positions(*sizes[::-1], (1, 1))  # the last: of the end behind the image
    if layout.row_end is not None or layout.places[0] or len(places) < layout.num_tokens:
        raise NotCoveredError(f"{len(places)} ids are an image, {layout.num_tokens} are asked for")
    return layout._replace(grid=sizes[0], positions=places)


def _ended(drawn: Tensor, ends: Sequence[int], filler: int) -> Tensor:
    """Drawn ids [B, L] -> with filler behind the first end of each line, up to the last of these ends."""
    behind = behind_ends(drawn, ends)
    return drawn.masked_fill(behind, filler)[:, : int((~behind).sum(1).max())]


def behind_ends(drawn: Tensor, ends: Sequence[int]) -> Tensor:
    """Drawn ids [B, L] -> [B, L] which lie behind an end."""
    is_end = torch.isin(drawn, drawn.new_tensor(ends))
    return is_end.cumsum(1) - is_end.long() > 0


def square(count: int) -> tuple[int, int]:
    """The grid of an image whose rows are unknown: a square, or one row."""
    side = isqrt(count)
    return (side, side) if side * side == count else (1, count)
