"""transformers' own example of Janus-Pro, and one line: python examples/accelerate_janus.py [checkpoint] [prompt]"""

import sys

from PIL import Image
from transformers import JanusForConditionalGeneration, JanusProcessor

import lantern

checkpoint, prompt = [*sys.argv[1:], *("deepseek-community/Janus-Pro-1B", "A red sphere on wood.")[len(sys.argv) - 1 :]]
processor = JanusProcessor.from_pretrained(checkpoint)
model = JanusForConditionalGeneration.from_pretrained(checkpoint, dtype="auto", device_map=None)
lantern.accelerate(model, processor)  # the line
inputs = processor(text=prompt, generation_mode="image", return_tensors="pt").to(model.device)
outputs = model.generate(**inputs, generation_mode="image", do_sample=True, use_cache=True, num_return_sequences=2)
pixels = (model.decode_image_tokens(outputs).detach().float().cpu().clamp(-1, 1) + 1) * 127.5
Image.fromarray(pixels[0].byte().numpy()).save("janus.png")
