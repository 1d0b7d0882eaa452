"""Targets with weights in int8: the model with rounded weights, by its own forward, is the target; what is lossless is
so with respect to it."""

from copy import deepcopy

import pytest
import torch
from hydra.utils import instantiate
from support.evaluations import evaluation
from support.families import FAMILIES, PROMPTS, Loaded, config, pipeline_of
from support.tiny_weights import write_tiny_weights
from torch import nn

from lantern.drafters.eagle.network import EagleNetwork
from lantern.drafters.loading import load_eagle
from lantern.errors import CheckpointError, LanternError
from lantern.models.checkpoints import save_weights
from lantern.models.hf.layers import Int8Linear
from lantern.models.llamagen.weights_folder import load_target
from lantern.runtime.memory import num_bytes
from lantern.sampling import Sampling
from lantern.trees.static import chain

CHOSEN = ["janus_pro", "simplear", "glm_image", "liquid"]  # projections without and with biases, and joined ones


def rounded_by_hand(model: nn.Module) -> nn.Module:
    """A copy whose decoder layers have the weights that int8 stands for, row by row."""
    copied = deepcopy(model)
    for name, part in copied.named_modules():
        if isinstance(part, nn.Linear) and ".layers." in name:
            for row in part.weight.data:
                step = row.abs().max().clamp(min=1e-7) / 127.5
                row.copy_(torch.stack([(value * (1 / step)).round().clamp(-128, 127) * step for value in row]))
    return copied


@pytest.fixture(scope="module", params=CHOSEN)
def pair(request, tmp_path_factory) -> tuple[Loaded, Loaded]:
    """A target in float32, and the same with weights in int8."""
    family, folder = FAMILIES[request.param], tmp_path_factory.mktemp(request.param)
    slow = family.make(folder)
    whole = Loaded(family, folder, instantiate(config(family, folder).model), slow)
    target = instantiate(config(family, folder, "dtype=int8:float32").model)
    return whole, Loaded(family, folder, target, rounded_by_hand(slow))


def laws(loaded: Loaded, codes: torch.Tensor) -> torch.Tensor:
    """[L, V] guided logits of an image by teacher forcing."""
    target = loaded.target
    features = target.teach(codes[None], PROMPTS[:1])
    return target.head(target.guide(features[:, :, target.prefix_len - 1 :]))[0]


@torch.inference_mode()
def test_it_is_the_model_with_rounded_weights(pair):
    """Catches scales of other rows, also behind joined projections, a lost bias, and layers that were left out."""
    whole, rounded = pair
    codes = torch.randint(24, (rounded.target.num_tokens,), generator=torch.Generator().manual_seed(0))
    (prefix,) = rounded.target.prompts(PROMPTS[:1])
    found = laws(rounded, codes)
    for place in (0, 3, 11):
        own, other = (rounded.family.logits(rounded.slow, ids, codes[:place].tolist()) for ids in prefix)
        torch.testing.assert_close(found[place], other + rounded.target.cfg_scale * (own - other), rtol=0, atol=1e-4)
    assert (found - laws(whole, codes)).abs().max() > 1e-3


def test_its_layers_take_a_quarter_of_the_memory_and_a_dry_run_knows_it(pair):
    whole, meta = pair[0], ["device=meta", "dtype=int8:float32"]
    sizes = [num_bytes(loaded.target.transformer.layers) for loaded in pair]
    assert sizes[1] < 0.4 * sizes[0]  # with scales, norms and biases
    assert num_bytes(instantiate(config(whole.family, whole.folder, *meta).model).transformer.layers) == sizes[1]


def test_a_window_is_lossless_with_respect_to_it_and_rows_say_so(pair, tmp_path):
    """Catches a row that takes the rounded model for the whole one, and records that both would share."""
    whole, rounded = pair
    pipeline = pipeline_of(rounded, "drafter=jacobi", "drafter.length=4")
    plain, method = (part.row for part in evaluation(tmp_path, PROMPTS, 1, 0, 1).run(pipeline))
    found, expected = (part.generate(PROMPTS, [1, 2, 3], 2).tokens for part in (pipeline, pipeline.baseline()))
    assert torch.equal(found, expected)
    assert plain["lossless"]
    assert method["lossless"]
    assert "int8" in plain["law"]
    assert "int8" in method["law"]
    assert rounded.target.weights_hash != whole.target.weights_hash
    assert "int8" not in pipeline_of(whole, "drafter=jacobi").guarantee.reason


def test_a_drafter_of_the_whole_model_drafts_for_the_rounded_one_and_for_no_other(pair, tmp_path):
    whole, rounded = pair
    dim = whole.target.embed_weight.shape[1]
    fit = {"dim": dim, "num_heads": 4, "hidden_dim": 48, "vocab_size": 24, "target_hash": whole.target.weights_hash}
    save_weights(tmp_path, EagleNetwork(dim, 4, 48).state_dict(), fit)
    assert load_eagle(tmp_path, rounded.target, chain(2), Sampling()).depth == 2
    save_weights(tmp_path, EagleNetwork(dim, 4, 48).state_dict(), fit | {"target_hash": "another-int8"})
    with pytest.raises(CheckpointError, match="target_hash=another-int8"):
        load_eagle(tmp_path, rounded.target, chain(2), Sampling())


@pytest.mark.parametrize("dtype", ["int8", "int8:float32", "int4"])
def test_llamagens_layers_and_an_unknown_dtype_are_refused(dtype, tmp_path):
    weights = write_tiny_weights(tmp_path)
    with pytest.raises(LanternError, match=f"dtype={dtype} is unknown here; .* int8"):
        load_target(weights / "target", weights / "tokenizer", dtype=dtype, device="cpu")


def test_rounding_equals_torchaos():
    """torchao is no dependency: skipped where it is not installed."""
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    layer = nn.Linear(64, 48)
    layer.weight.data[3] = 0
    own, x = Int8Linear.rounded(layer), torch.randn(2, 5, 64)
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig())
    assert torch.equal(own.weight, layer.weight.qdata)
    torch.testing.assert_close(own(x), layer(x), rtol=1e-6, atol=1e-6)
