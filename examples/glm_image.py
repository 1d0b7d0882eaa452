"""GLM-Image's AR stage, loaded by transformers and decoded by a window that needs no training:
python examples/glm_image.py [checkpoint, a folder or a Hub id] [prompt] [SETTING=VALUE ...]
Not run on the released weights yet. The picture shows each code as a colour: the diffusion stage, which makes pixels of
them, is not run."""

import sys

import torch
from transformers import AutoTokenizer, GlmImageForConditionalGeneration

import lantern

given, settings = sys.argv[1:3], sys.argv[3:]
checkpoint, prompt = [*given, *("zai-org/GLM-Image", "a red sphere on wood")[len(given) :]]
device, dtype = ("cuda", "bfloat16") if torch.cuda.is_available() else ("cpu", "float32")
own = GlmImageForConditionalGeneration.from_pretrained(checkpoint, subfolder="vision_language_encoder", dtype=dtype)
words = AutoTokenizer.from_pretrained(checkpoint, subfolder="processor")
model = lantern.wrap(own.to(device), words, settings=[f"device={device}", f"dtype={dtype}", *settings])
plain = model.generate([prompt], seed=1, drafter="none")
fast = model.generate([prompt], seed=1, method="jacobi")
print(f"the same tokens: {torch.equal(plain.tokens, fast.tokens)}")
print(f"passes of the model: {len(plain.statistics.rounds)}, {len(fast.statistics.rounds)}")
fast.pil()[0].save("glm_image.png")
