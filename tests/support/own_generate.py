"""The models' own generate, greedy, from the ids that a target reads: what its tokens and times are compared with.
python tests/support/own_generate.py prints the times of models of 12 layers of width 768 with random weights."""

import support.as_a_command  # noqa: F401

# isort: split
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from hydra.utils import instantiate
from transformers import LogitsProcessor, PreTrainedModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import families

from lantern.models.hf.target import HuggingFaceTarget

PROMPT = "a red sphere"
REPEATS = 5


def own_tokens(name: str, model: PreTrainedModel, target: HuggingFaceTarget, cfg_scale: float) -> list[int]:
    """The codes that a family's own generate draws."""
    (prefix,) = target.prompts([PROMPT])
    ids, nothing = (torch.tensor([line]) for line in prefix)
    given = {"attention_mask": torch.ones_like(ids), "do_sample": False}
    guided = {"guidance_scale": cfg_scale, "negative_prompt_ids": nothing}
    guided["negative_prompt_attention_mask"] = torch.ones_like(nothing)
    family, count = families.FAMILIES[name], target.num_tokens
    first, codes = family.first, target.vocab_size
    if name == "glm_image":  # ids that are no codes are suppressed, as its layout asks
        others = list(range(codes, model.config.text_config.vision_vocab_size))
        grids = torch.tensor([[1, *target.image_grid], [1, *target.preview]])
        given |= {"image_grid_thw": grids, "images_per_sample": torch.tensor([2]), "suppress_tokens": others}
    elif name == "janus_pro":
        model.generation_config.pad_token_id = nothing[0, 1]
        model.generation_config.generation_kwargs = {"boi_token_id": ids[0, -1]}
        given |= {"generation_mode": "image", "guidance_scale": cfg_scale, "bos_token_id": ids[0, 0]}
        return model.generate(ids, max_new_tokens=count, **given)[0].tolist()
    elif family.row_end is not None:
        if name == "lumina_mgpt2":
            model.model.vocabulary_mapping.image_tokens = []  # which its forward would forbid
        rows, columns = target.grid
        given |= guided | {"logits_processor": [_RowEnds(ids.shape[1], columns, first, codes, family.row_end)]}
        count = rows * (columns + 1) - 1
    else:
        if name == "anole":
            model.model.vocabulary_mapping.image_tokens = []  # which its forward would forbid
        others = [token for token in range(model.config.vocab_size) if not first <= token < first + codes]
        given |= guided | {"suppress_tokens": others}
    made = model.generate(ids, max_new_tokens=count, **given)[0, ids.shape[1] :].tolist()
    return [token - first for token in made if token != family.row_end]


class _RowEnds(LogitsProcessor):
    """As Emu3's layout asks: codes, and behind each row its end."""

    def __init__(self, before: int, columns: int, first: int, codes: int, row_end: int) -> None:
        self.before, self.columns, self.codes, self.row_end = before, columns, slice(first, first + codes), row_end

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        is_end = (ids.shape[1] - self.before + 1) % (self.columns + 1) == 0
        allowed = self.row_end if is_end else self.codes
        kept = torch.full_like(scores, -torch.inf)
        kept[:, allowed] = scores[:, allowed]
        return kept


SIZES = {  # of a tiny body, and what it becomes
    ("hidden_size", 32): 768, ("intermediate_size", 48): 2048, ("num_hidden_layers", 2): 12,
    ("num_attention_heads", 4): 12, ("num_key_value_heads", 2): 12, ("projection_dim", 32): 768,
    ("image_token_embed_dim", 32): 768,
    ("image_size", 8): 16, ("num_image_tokens", 16): 64,
}  # fmt: skip


def grown(config: dict, within: str = "") -> dict:
    made = {}
    for key, value in config.items():
        is_of_vision = within == "vision_config" and key not in ("projection_dim", "image_size", "num_image_tokens")
        made[key] = grown(value, key) if isinstance(value, dict) else value
        if not isinstance(value, dict | list) and not is_of_vision:
            made[key] = SIZES.get((key, value), value)
        if key == "mrope_section":
            made[key] = [4, 6, 6]
    return made


def write_larger() -> None:
    """Makes the tiny sizes of all families those of 12 layers of width 768, and their images 8 x 8 codes."""
    for geometry in (families.JANUS, families.EMU3, families.CHAMELEON, families.GLM_IMAGE, families.SIMPLEAR):
        sizes = grown(geometry)
        geometry.clear()
        geometry.update(sizes)
    families.SIDE = 8


def measure(name: str) -> str:
    """A line: times of an image by the model's own generate, plainly and by a window, and how many tokens are equal."""
    family = families.FAMILIES[name]
    with tempfile.TemporaryDirectory() as place:
        slow = family.make(Path(place))
        loaded = families.Loaded(family, Path(place), instantiate(families.config(family, Path(place)).model), slow)
    scale = 1.0 if name == "glm_image" else 3.0  # its AR stage has no guidance
    settings = ("sampling.temperature=0", "sampling.top_p=1", "sampling.top_k=0", f"sampling.cfg_scale={scale}")
    plain, window = (families.pipeline_of(loaded, f"drafter={drafter}", *settings) for drafter in ("none", "jacobi"))
    calls = {
        "own": lambda: own_tokens(name, slow, loaded.target, scale),
        "plain": lambda: plain.generate([PROMPT], [0], 1).tokens[0].tolist(),
        "window": lambda: window.generate([PROMPT], [0], 1).tokens[0].tolist(),
    }
    made, seconds = {}, {label: [] for label in calls}
    for _ in range(REPEATS):
        for label, call in calls.items():
            start = perf_counter()
            made[label] = call()
            seconds[label].append(perf_counter() - start)
    own, ours, by_window = (median(times) for times in seconds.values())
    equal = sum(a == b == c for a, b, c in zip(*made.values(), strict=True))
    steps = window.generate([PROMPT], [0], 1).tokens_per_step
    return (
        f"{name}: {equal} of {len(made['own'])} tokens equal; its own generate takes {own / ours:.2f} times as long as "
        f"plain decoding ({own:.2f} s), {own / by_window:.2f} times as long as a window of {steps:.2f} tokens a step"
    )


if __name__ == "__main__":
    write_larger()
    with torch.inference_mode():
        for name in sys.argv[1:] or ("janus_pro", "emu3", "anole", "glm_image", "simplear"):
            print(measure(name), flush=True)
