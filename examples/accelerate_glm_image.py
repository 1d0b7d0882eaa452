"""diffusers' own example of GLM-Image, and one line: python examples/accelerate_glm_image.py [checkpoint] [prompt]"""

import sys

from diffusers import GlmImagePipeline

import lantern

checkpoint, prompt = [*sys.argv[1:], *("zai-org/GLM-Image", "A red sphere on wood")[len(sys.argv) - 1 :]]
pipe = GlmImagePipeline.from_pretrained(checkpoint, torch_dtype="auto")
lantern.accelerate(pipe)  # the line
pipe(prompt, height=1024, width=1024).images[0].save("glm_image.png")
