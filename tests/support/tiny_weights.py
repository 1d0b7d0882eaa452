"""A weights folder of the embedded default in miniature, random: everything loads and runs, nothing looks like much."""

from pathlib import Path

import torch

from lantern.api import Model, load
from lantern.data.captions import VOCABULARY
from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.parallel_network import ParallelNetwork
from lantern.models.checkpoints import save_weights, weights_hash
from lantern.models.critic import Critic
from lantern.models.llamagen.tokenizer import VQTokenizer
from lantern.models.llamagen.transformer import Transformer


def write_tiny_weights(folder: Path) -> Path:
    torch.manual_seed(0)
    multipliers = {"encoder_multipliers": [1, 1, 1, 1], "decoder_multipliers": [1, 1, 1, 1]}
    codes = {"codebook_size": 256, "code_dim": 8, "z_channels": 16, "num_res_blocks": 1, "groups": 4, "channels": 8}
    save_weights(folder / "tokenizer", VQTokenizer(**multipliers, **codes).state_dict(), {**multipliers, **codes})
    shape = {"dim": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 256, "grid": [16, 16], "multiple_of": 32}
    shape |= {"caption_dim": 16, "prefix_len": 8}
    words = {"vocabulary": list(VOCABULARY), "word_seed": 0, "tokenizer_hash": weights_hash(folder / "tokenizer")}
    save_weights(folder / "target", Transformer(**shape).state_dict(), {"architecture": shape, **words})
    layer = {"dim": 32, "num_heads": 2, "hidden_dim": 64}
    fit = {"vocab_size": 256, "target_hash": weights_hash(folder / "target")}
    save_weights(folder / "drafter", EagleNetwork(**layer).state_dict(), {**layer, **fit})
    parallel = ParallelNetwork(**layer, levels=6)
    save_weights(folder / "parallel", parallel.state_dict(), {**layer, **fit, "levels": 6})
    critic = Critic(width=8, size=128)
    save_weights(folder / "critic", critic.state_dict(), critic.config)
    return folder


def load_tiny(folder: Path) -> Model:
    """The miniature in double precision."""
    return load("llamagen", [f"paths.weights={write_tiny_weights(folder)}", "dtype=float64", "device=cpu"])
