"""The LlamaGen target against the golden miniatures, and its tree passes against passes one token at a time."""

import json
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from support import toy
from support.paths import GOLDEN
from support.toy import PROMPTS, tiny_target
from support.tree_rounds import tree_rounds
from torch import Tensor

from lantern.drafters.none import NoDrafter
from lantern.errors import LanternError
from lantern.models.checkpoints import load_strictly, read_weights, save_weights
from lantern.models.conditioners import ClassLabels, WordFeatures
from lantern.models.llamagen.fused import linear
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import FeedForward, Transformer
from lantern.sampling import Sampling
from lantern.types import Drafter, Forward, Generation


class Golden:
    """A miniature checkpoint and what the reference implementation computes from it."""

    def __init__(self, name: str) -> None:
        with safe_open(GOLDEN / f"llamagen_{name}_tiny_expected.safetensors", "pt") as file:
            config, self.cfg_scale = json.loads(file.metadata()["config"]), float(file.metadata()["cfg_scale"])
            self.tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        side = int(config["block_size"] ** 0.5)
        sizes = {name: config.get(name) for name in ("dim", "vocab_size", "caption_dim", "num_classes", "multiple_of")}
        sizes |= {"num_layers": config["n_layer"], "num_heads": config["n_head"]}
        self.transformer = Transformer(**sizes, grid=(side, side), prefix_len=config["cls_token_num"])
        weights = GOLDEN / f"llamagen_{name}_tiny.pt"
        load_strictly(self.transformer, read_weights(weights), weights, "copy the golden data again")
        self.condition = self.tensors["cond"]
        self.visible = self.tensors.get("caption_mask", torch.ones(len(self.condition), 1)).bool()

    def conditioner(self, prompts: list[str]) -> tuple[Tensor, Tensor]:
        """Prompts are the numbers of the stored conditions."""
        rows = [int(prompt) for prompt in prompts]
        return self.condition[rows], self.visible[rows]

    def target(self) -> LlamaGenTarget:
        images = SimpleNamespace(codebook=torch.zeros(self.transformer.vocab_size, 2))
        return LlamaGenTarget(self.transformer, self.conditioner, images, self.cfg_scale)


@pytest.fixture(scope="module", params=["c2i", "t2i"])
def golden(request) -> Golden:
    return Golden(request.param)


@torch.inference_mode()
def test_teacher_forced_logits_are_those_of_the_reference(golden):
    """Catches a wrong epsilon, rotation, prefix, mask, unconditional row or guidance: all move logits by far more."""
    tokens, logits = golden.tensors["tokens"], []
    for dropped in (False, True):
        features = golden.transformer(tokens, golden.condition, golden.visible, torch.full((len(tokens),), dropped))
        logits.append(golden.transformer.output(features))
    guided = logits[1] + golden.cfg_scale * (logits[0] - logits[1])
    torch.testing.assert_close(guided, golden.tensors["guided_logits"], rtol=0, atol=2e-5)


def decode(golden: Golden, drafter: Drafter, batch_size: int) -> Generation:
    sampling = Sampling(temperature=0, cfg_scale=golden.cfg_scale)
    return toy.decode(golden.target(), drafter, sampling, batch_size, prompts=["0", "1"])


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_engine_decodes_the_greedy_tokens_of_the_reference(golden, batch_size):
    """Catches a prefill, cache, position or guidance unlike the released code's, in the loop that users run."""
    assert torch.equal(decode(golden, NoDrafter(), batch_size).tokens, golden.tensors["tokens"])


def sequential(target: LlamaGenTarget, prompt: str, tokens: list[int]) -> Forward:
    """The pass of the last of these tokens by teacher forcing, without any cache."""
    body = target.transformer
    condition, visible = target.conditioner([prompt] * target.guidance)
    ids = torch.tensor([[*tokens, 0]] * target.guidance)
    dropped = torch.arange(target.guidance).bool()
    features = body(ids, condition.to(body.output.weight.dtype), visible, dropped)[None, :, -1:]
    return Forward(target.head(target.guide(features)), features)


def worst_difference(target: LlamaGenTarget, seed: int) -> float:
    """Of the passes of tree_rounds to `sequential`."""
    prompts = PROMPTS[:3]
    target.allocate(3, 8)
    target.prefill(prompts, torch.arange(3))

    def difference(forward: Forward, row: int, node: int, line: list[int]) -> float:
        slow = sequential(target, prompts[row], line)
        logits = (forward.logits[row, node] - slow.logits[0, 0]).abs().max()
        return float(max(logits, (forward.features[row, :, node] - slow.features[0, :, 0]).abs().max()))

    return tree_rounds(target, prompts, 8, 4, seed, difference)[0]


@pytest.mark.parametrize("cfg_scale", [0.5, -1.0, 3.0])
@torch.inference_mode()
def test_every_scale_but_one_guides(cfg_scale):
    """Catches scales below 1 taken for 1, as LlamaGen's code does and the docs say is not done here."""

    def logits(scale: float) -> torch.Tensor:
        target = tiny_target(scale)
        target.allocate(1, 1)
        return target.prefill(["a b"], torch.arange(1)).logits

    without, plain = logits(0.0), logits(1.0)
    torch.testing.assert_close(logits(cfg_scale), without + cfg_scale * (plain - without))
    assert not torch.allclose(logits(cfg_scale), plain)


@pytest.mark.parametrize("cfg_scale", [2.0, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
@torch.inference_mode()
def test_tree_passes_and_commits_equal_recomputing_without_a_cache(cfg_scale, seed):
    """Catches nodes that attend to siblings, wrong positions, mixed guidance rows, entries moved to a wrong slot."""
    assert worst_difference(tiny_target(cfg_scale), seed) < 1e-10


@torch.inference_mode()
def test_a_stale_cache_row_after_commit_is_caught(monkeypatch):
    """The mutant: lengths advance, but the accepted nodes' keys and values stay where the tree pass wrote them."""
    target = tiny_target()
    monkeypatch.setattr("lantern.engine.cache.KVCache.compact", lambda self, path, stand: None)
    assert worst_difference(target, seed=0) > 1e-3


def test_a_label_that_is_no_class_is_one_clear_error():
    """Catches the unconditional row, or a crash, for class 7 of 7."""
    assert ClassLabels(7)(["6", "0"])[0].tolist() == [6, 0]
    for prompt in ("7", "-1", "a cat", ""):
        with pytest.raises(ValueError, match="no class of this model"):
            ClassLabels(7)([prompt])


def test_gate_and_up_are_held_once():
    """Catches a second or third copy of every feed-forward layer: 2.5 GiB each of LlamaGen-3B."""
    part = FeedForward(6, 16)
    gate, up, x = part.w1.weight.clone(), part.w3.weight.clone(), torch.randn(3, 6)
    expected = part(x)
    joined, again = part.gate_up(), part.gate_up()
    assert torch.equal(joined, torch.cat([gate, up]))
    assert torch.equal(again, joined)
    assert torch.equal(part(x), expected)
    places = {weight.untyped_storage().data_ptr() for weight in (joined, again, part.w1.weight, part.w3.weight)}
    assert len(places) == 1
    part.to(torch.float64)  # which parts them
    assert torch.equal(part.gate_up(), torch.cat([gate, up]).double())


def test_weights_that_lie_side_by_side_are_not_taken_for_one():
    """Catches a test of addresses alone: on a GPU two tensors of their own may be neighbours in memory."""
    part, buffer = FeedForward(6, 16), bytearray(torch.arange(192.0).numpy().tobytes())
    for weight, start in ((part.w1.weight, 0), (part.w3.weight, 4 * 96)):
        weight.data = torch.frombuffer(buffer, dtype=torch.float32, count=96, offset=start).view(16, 6)
    assert part.w3.weight.data_ptr() == part.w1.weight.data_ptr() + part.w1.weight.nbytes
    assert torch.equal(part.gate_up().flatten(), torch.arange(192.0))


def test_joined_weights_are_saved_trained_and_copied_as_before(tmp_path):
    """Catches a format that refuses tensors of one memory, and an optimizer that loses them."""
    part = FeedForward(6, 16)
    part.gate_up()
    stored = read_weights(save_weights(tmp_path, part.state_dict(), {}))
    assert all(torch.equal(stored[name], weight) for name, weight in part.named_parameters())
    before, optimizer = deepcopy(part), torch.optim.SGD(part.parameters(), lr=0.1)
    part(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    for name, weight in before.named_parameters():
        assert not torch.equal(weight, part.get_parameter(name))
    assert torch.equal(part.gate_up(), torch.cat([part.w1.weight, part.w3.weight]))


WEIGHT = torch.randn(5, 8, generator=torch.Generator().manual_seed(5))
X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def test_bfloat16_is_not_packed_where_the_processor_cannot(monkeypatch):
    """Catches the end of every model in bf16 on a processor without AVX-512, where torch's own products work."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda *_: pytest.fail("packed"))
    weight = WEIGHT.bfloat16()
    assert linear(weight)(X.bfloat16()).dtype == torch.bfloat16


def test_punctuation_around_a_known_word_is_passed_over():
    """Catches a prompt as people type it, and a word of the captions that has punctuation of its own."""
    reader = WordFeatures(["red", "apple", "fluent:"], 4, 3)
    known, _ = reader(["red apple"])
    assert torch.equal(reader(['Red, "apple" !'])[0], known)
    assert reader(["fluent: apple"])[0][0, -2].tolist() == reader.table[2].tolist()
    reader.check(["red - apple.", "fluent: red"])
    with pytest.raises(LanternError, match=r"unknown word 'pear' in 'red pear\.'"):
        reader(["red pear."])
