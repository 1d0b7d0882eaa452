"""Calls of generate as transformers' documentation has them, on the tiny models of support.families: two prompts of
different lengths, padded on the left."""

from collections.abc import Callable
from pathlib import Path

import torch
from support.families import CODES, FAMILIES, SIDE
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

IDS = torch.tensor([[0, 0, 3, 5, 7], [2, 8, 6, 4, 9]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
NOTHING, NOTHING_MASK = torch.tensor([[0, 9, 11], [12, 9, 11]]), torch.tensor([[0, 1, 1], [1, 1, 1]])


def make(name: str, folder: Path) -> PreTrainedModel:
    model = FAMILIES[name].make(folder)
    model.generation_config.pad_token_id = 0
    return model


def own_call(
    name: str, model: PreTrainedModel, own: tuple[Tensor, Tensor] = (IDS, MASK),
    nothing: tuple[Tensor, Tensor] = (NOTHING, NOTHING_MASK),
) -> dict[str, object]:  # fmt: skip
    """Arguments of an image's call, greedy, with guidance where the family has some. own, nothing: ids and masks."""
    count, length = own[0].shape
    given = {"input_ids": own[0], "attention_mask": own[1], "do_sample": False}
    first, row_end = FAMILIES[name].first, FAMILIES[name].row_end
    negative = dict(zip(("negative_prompt_ids", "negative_prompt_attention_mask"), nothing, strict=True))
    guided = {"guidance_scale": 3.0} | negative
    if name == "janus_pro":
        model.generation_config.generation_kwargs = {"boi_token_id": 9}
        given["inputs"] = given.pop("input_ids")
        return given | {"generation_mode": "image", "guidance_scale": 3.0, "bos_token_id": 3, "pad_token_id": 1}
    if name == "glm_image":
        model.generation_config.eos_token_id = CODES + 1
        grids = torch.tensor([[1, SIDE, SIDE], [1, 2, 2]]).repeat(count, 1)
        return given | {
            "image_grid_thw": grids, "images_per_sample": torch.tensor([2] * count),
            "max_new_tokens": SIDE * SIDE + 4 + 1,
        }  # fmt: skip
    if name in ("anole", "lumina_mgpt", "lumina_mgpt2"):
        model.model.vocabulary_mapping.image_tokens = []  # whose logits its forward hides
    if row_end is not None:
        model.generation_config.eos_token_id = 26
        return given | guided | {"max_new_tokens": 1000, "prefix_allowed_tokens_fn": rows_of(first, row_end, length)}
    others = [token for token in range(model.config.vocab_size) if not first <= token < first + CODES]
    return given | guided | {"max_new_tokens": SIDE * SIDE, "suppress_tokens": others}


def own_tokens(name: str, model: PreTrainedModel, prefix: tuple[list[int], list[int]]) -> list[int]:
    """The codes that a family's own generate draws behind the ids of a prompt and of none."""
    own, nothing = ((ids, torch.ones_like(ids)) for ids in (torch.tensor([line]) for line in prefix))
    given, first = own_call(name, model, own, nothing), FAMILIES[name].first
    if name == "janus_pro":
        model.generation_config.generation_kwargs = {"boi_token_id": own[0][0, -1]}
        given |= {"bos_token_id": own[0][0, 0], "pad_token_id": nothing[0][0, 1]}
        return model.generate(**given)[0].tolist()
    if name == "glm_image":  # ids that are no codes are suppressed, as its layout asks
        given |= {"max_new_tokens": SIDE * SIDE + 4, "suppress_tokens": [CODES, CODES + 1]}
    made = model.generate(**given)[0, own[0].shape[1] :].tolist()
    return [token - first for token in made if first <= token < first + CODES]


def rows_of(first: int, row_end: int, before: int = IDS.shape[1], end: int = 26) -> Callable:
    """As Emu3's documentation: rows of codes with ends, then three certain tokens."""
    row = [*[range(first, first + CODES)] * SIDE, [row_end]]
    line = [list(ids) for ids in (*row * SIDE, [24], [25], [end])]
    return lambda batch_id, ids: line[len(ids) - before]


class Evens(LogitsProcessor):
    """Of one's own: even codes alone in the first row, then a code that follows `after` is never itself."""

    def __init__(self, first: int, before: int, by: str = "place") -> None:
        self.first, self.before, self.by, self.calls = first, before, by, 0

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores, self.calls = scores.clone(), self.calls + 1
        if {"place": ids.shape[1] - self.before < SIDE, "calls": self.calls <= SIDE}.get(self.by):
            scores[:, self.first + 1 : self.first + CODES : 2] = -torch.inf
        if self.by == "codes" and ids.shape[1] > self.before:
            scores.scatter_(1, ids[:, -1:], -torch.inf)
        if self.by == "scores":
            scores = scores.masked_fill(scores < scores.topk(5).values[:, -1:], -torch.inf)
        return scores * 2 if self.by == "change" else scores
