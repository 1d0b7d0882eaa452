"""A weights folder of the embedded default in miniature, random: everything loads and runs, nothing looks like much;
and captioned pictures to train it on."""

from pathlib import Path

import torch
from PIL import Image

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.jacobi.corrected import WindowNetwork
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer
from lantern.models.llamagen.weights_folder import tokens_hash
from lantern.scenes.captions import VOCABULARY
from lantern.scenes.critic import Critic
from lantern.scenes.rendering import render

PIXELS_PER_TOKEN = 8  # a side


def write_tiny_weights(folder: Path, side: int = 16) -> Path:
    """All parts, for images of `side` x `side` tokens."""
    torch.manual_seed(0)
    multipliers = {"encoder_multipliers": [1, 1, 1, 1], "decoder_multipliers": [1, 1, 1, 1]}
    codes = {"codebook_size": 256, "code_dim": 8, "z_channels": 16, "num_res_blocks": 1, "groups": 4, "channels": 8}
    tokenizer = VQTokenizer(**multipliers, **codes)
    save_weights(folder / "tokenizer", tokenizer.state_dict(), {**multipliers, **codes})
    shape = {"dim": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 256, "grid": [side, side], "multiple_of": 32}
    shape |= {"caption_dim": 16, "prefix_len": 8}
    words = {"vocabulary": list(VOCABULARY), "word_seed": 0, "tokens_hash": tokens_hash(tokenizer)}
    save_weights(folder / "target", Transformer(**shape).state_dict(), {"architecture": shape, **words})
    layer = {"dim": 32, "num_heads": 2, "hidden_dim": 64}
    fit = {"vocab_size": 256, "target_hash": weights_hash(folder / "target")}
    save_weights(folder / "drafter", EagleNetwork(**layer).state_dict(), {**layer, **fit})
    window = {"dim": 32, "hidden_dim": 32, "num_blocks": 1, "layers": [0, 1], "length": 48, "row": side}
    save_weights(folder / "window", WindowNetwork(**window).state_dict(), {**window, **fit})
    critic = Critic(width=8, size=128)
    save_weights(folder / "critic", critic.state_dict(), critic.config)
    return folder


def write_captioned_scenes(folder: Path, count: int, side: int = 16) -> None:
    """Writes `count` pictures of `side` x `side` tokens into a new folder, each with its caption in a text file."""
    folder.mkdir()
    pixels = PIXELS_PER_TOKEN * side
    for seed in range(count):
        image, scene = render(seed)
        Image.fromarray(image).resize((pixels, pixels)).save(folder / f"{seed}.png")
        (folder / f"{seed}.txt").write_text(scene.caption)
