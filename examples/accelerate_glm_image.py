"""diffusers' own example of GLM-Image, and one line."""

import torch
from diffusers import GlmImagePipeline

import lantern

pipe = GlmImagePipeline.from_pretrained("zai-org/GLM-Image", dtype=torch.bfloat16)
lantern.accelerate(pipe)  # the line
generator = torch.Generator().manual_seed(42)
sizes = {"height": 1024, "width": 1024, "num_inference_steps": 30, "guidance_scale": 1.5}
outputs = pipe(prompt="A red sphere on wood.", **sizes, generator=generator).images
outputs[0].save("glm_image.png")
