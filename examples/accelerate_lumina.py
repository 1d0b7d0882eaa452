"""Lumina-mGPT in transformers' Chameleon, and one line. Lantern reads the checkpoint: transformers refuses its norms,
which have one row for all heads. transformers has no decoder of the codes, which are written."""

import torch
from transformers import ChameleonForConditionalGeneration

import lantern
from lantern.models.chameleon import HEAD_NORMS
from lantern.models.hf.pretrained import load_pretrained

kind, given = ChameleonForConditionalGeneration, {"ignored": ["model.vqmodel"], "per_head": HEAD_NORMS}
model, text, _ = load_pretrained(kind, "Alpha-VLLM/Lumina-mGPT-7B-768", "auto", "auto", **given)
lantern.accelerate(model)  # the line
model.model.vocabulary_mapping.image_tokens = []  # else its forward hides them
words = "Generate an image of 768x768 according to the following prompt:\nA red sphere on wood."
ids = [0, *text(words, add_special_tokens=False).input_ids, 8710, 8197, 8828, 8828]  # the last three: image, sizes
inputs, allowed = torch.tensor([ids], device=model.device), [*[*[[*range(4, 8196)]] * 48, [8803]] * 48, [8196]]
limits = {"max_new_tokens": len(allowed), "prefix_allowed_tokens_fn": lambda _, line: allowed[len(line) - len(ids)]}
outputs = model.generate(inputs, **limits, negative_prompt_ids=inputs[:, -3:], guidance_scale=3.0, do_sample=True)
torch.save(outputs[:, len(ids) :], "lumina.pt")
