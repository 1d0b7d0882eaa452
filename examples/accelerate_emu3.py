"""transformers' own example of Emu3, and one line."""

from transformers import Emu3ForConditionalGeneration, Emu3Processor

import lantern

processor = Emu3Processor.from_pretrained("Emu3-community/Emu3-Gen-hf")
model = Emu3ForConditionalGeneration.from_pretrained("Emu3-community/Emu3-Gen-hf", dtype="auto")
lantern.accelerate(model)  # the line
inputs = processor(text=["A red sphere on wood."], return_tensors="pt", return_for_image_generation=True)
negative = processor(text=["lowres, bad anatomy, worst quality, blurry."], return_tensors="pt").input_ids
(height, width), before = inputs.pop("image_sizes")[0], inputs.input_ids.shape[1]
row_end, *ends = map(processor.tokenizer.encode, ("<|extra_200|>", "<|extra_201|>", "<|image end|>", "<|extra_204|>"))
allowed = [*[*[model.vocabulary_mapping.image_tokens] * width, row_end] * height, *ends]
limits = {"max_new_tokens": len(allowed), "prefix_allowed_tokens_fn": lambda _, ids: allowed[len(ids) - before]}
outputs = model.generate(**inputs, **limits, guidance_scale=3.0, negative_prompt_ids=negative)
images = model.decode_image_tokens(image_tokens=outputs[:, before:], height=height, width=width).detach().float()
processor.postprocess(list(images), return_tensors="PIL.Image.Image")["pixel_values"][0].save("emu3.png")
