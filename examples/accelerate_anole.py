"""Anole in transformers' Chameleon, and one line. transformers has no decoder of its codes, which are written."""

import torch
from transformers import ChameleonForConditionalGeneration, ChameleonProcessor

import lantern

processor = ChameleonProcessor.from_pretrained("leloy/Anole-7b-v0.1-hf")
model = ChameleonForConditionalGeneration.from_pretrained("leloy/Anole-7b-v0.1-hf", dtype="auto")
lantern.accelerate(model)  # the line
begin, codes = processor.image_start_token, set(model.model.vocabulary_mapping.image_tokens)
model.model.vocabulary_mapping.image_tokens = []  # else its forward hides them
text = f"A red sphere on wood.{processor.tokenizer.sep_token}{begin}"
inputs, nothing = (processor(text=each, return_for_text_completion=True, return_tensors="pt") for each in (text, begin))
others = [token for token in range(model.config.vocab_size) if token not in codes]
limits = {"max_new_tokens": 1024, "suppress_tokens": others, "negative_prompt_ids": nothing.input_ids}
outputs = model.generate(**inputs, **limits, guidance_scale=3.0, do_sample=True)
torch.save(outputs[:, inputs.input_ids.shape[1] :], "anole.pt")
