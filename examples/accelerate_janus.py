"""transformers' own example of Janus-Pro, and one line."""

from PIL import Image
from transformers import JanusForConditionalGeneration, JanusProcessor

import lantern

processor = JanusProcessor.from_pretrained("deepseek-community/Janus-Pro-1B")
model = JanusForConditionalGeneration.from_pretrained("deepseek-community/Janus-Pro-1B", dtype="auto")
lantern.accelerate(model)  # the line
inputs = processor(text="A red sphere on wood.", generation_mode="image", return_tensors="pt").to(model.device)
model.generation_config.num_return_sequences = 2
outputs = model.generate(**inputs, generation_mode="image", do_sample=True, use_cache=True)
pixels = (model.decode_image_tokens(outputs).detach().float().cpu().clamp(-1, 1) + 1) * 127.5
Image.fromarray(pixels[0].byte().numpy()).save("janus.png")
