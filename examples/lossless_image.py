"""The same image in fewer passes: python examples/lossless_image.py ["a red sphere on wood"]"""

import sys

import torch

import lantern

prompt = sys.argv[1] if len(sys.argv) > 1 else "a red sphere on wood"
model = lantern.load("llamagen", dtype="float32")  # in bfloat16 rounding flips three to nine tokens in a thousand
plain = model.generate([prompt], seed=1, drafter="none")
fast = model.generate([prompt], seed=1, method="refined_jacobi")
print(f"the same tokens: {torch.equal(plain.tokens, fast.tokens)}")
print(f"passes of the model: {len(plain.statistics.rounds)}, {len(fast.statistics.rounds)}")
fast.pil()[0].save("lossless.png")
