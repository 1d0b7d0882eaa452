"""Every family that runs through transformers, on tiny random checkpoints read from disk as its yaml says."""

import pytest
import torch
from hydra.utils import instantiate
from support.evaluations import evaluation
from support.families import FAMILIES, LENGTH, PROMPTS, SIDE, Loaded, config, pipeline_of, save_text_tokenizer
from support.recorded_passes import Recorder
from support.tree_rounds import tree_rounds
from transformers import AutoTokenizer

from lantern.drafters.eagle.network import EagleNetwork
from lantern.engine.graphs import PassGraphs
from lantern.models.checkpoints import save_weights
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.families import LIQUID_NAMES, LIQUID_UNCONDITIONAL
from lantern.types import DraftTree


def slow_logits(loaded: Loaded, prompt: str, codes: list[int]) -> torch.Tensor:
    """[V] guided, behind a prompt and codes: two passes of the model as transformers runs it."""
    (prefix,) = loaded.target.prompts([prompt])
    conditional, unconditional = (loaded.family.logits(loaded.slow, ids, codes) for ids in prefix)
    return unconditional + loaded.target.cfg_scale * (conditional - unconditional)


def worst_difference(loaded: Loaded, seed: int) -> float:
    """Of a prefill and the passes of tree_rounds, past the ends of image rows, to `slow_logits`."""
    target = loaded.target
    target.allocate(3, 7)
    first = target.prefill(PROMPTS, torch.arange(3)).logits

    def difference(logits: torch.Tensor, row: int, line: list[int]) -> float:
        return float((logits - slow_logits(loaded, PROMPTS[row], line)).abs().max())

    worst, committed = tree_rounds(
        target, PROMPTS, 7, 5, seed, lambda forward, row, node, line: difference(forward.logits[row, node], row, line)
    )
    assert max(map(len, committed)) > SIDE
    return max(worst, *(difference(first[row, 0], row, []) for row in range(3)))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@torch.inference_mode()
def test_tree_passes_and_commits_equal_the_models_own_forward(loaded):
    """Catches wrong positions, visible pads or siblings, a misplaced row end, a cache compacted wrongly."""
    assert worst_difference(loaded, seed=0) < 1e-5


@pytest.mark.parametrize("family", [FAMILIES["lumina_mgpt"], FAMILIES["janus_pro"]], ids=str)
@torch.inference_mode()
def test_recorded_passes_equal_the_models_own_forward(loaded, monkeypatch):
    """Catches what transformers works out on the host: it would stay what it was when the pass was recorded."""
    recorder = Recorder()
    monkeypatch.setattr(loaded.target, "passes", PassGraphs(recorder))
    assert max(worst_difference(loaded, seed) for seed in range(2)) < 1e-4
    assert sum(recording.replays for recording in recorder.made) > 2


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@torch.inference_mode()
def test_teacher_forcing_equals_the_models_own_forward(loaded):
    """Catches row ends in the wrong places and features of the wrong rows in what drafters are trained on."""
    target = loaded.target
    tokens = torch.randint(24, (2, target.num_tokens), generator=torch.Generator().manual_seed(0))
    features = target.teach(tokens, PROMPTS[:2])
    assert features.shape == (2, 2, LENGTH + target.num_tokens - 1, 32)
    logits = target.head(target.guide(features[:, :, LENGTH - 1 :]))
    for row, place in ((0, 0), (0, 3), (1, 4), (1, 11), (0, 15)):
        slow = slow_logits(loaded, PROMPTS[row], tokens[row, :place].tolist())
        torch.testing.assert_close(logits[row, place], slow, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
@torch.inference_mode()
def test_the_inputs_of_layers_are_handed_out_on_request(loaded, monkeypatch):
    """Against a body's own record of them. Catches outputs in the place of inputs, and another order."""
    target, layers = loaded.target, (1, 0)
    monkeypatch.setattr(target, "passes", PassGraphs(Recorder()))
    tokens = torch.randint(24, (2, target.num_tokens), generator=torch.Generator().manual_seed(0))
    given, run = [], target.transformer.forward

    def recorded(**inputs):
        given.append(run(**inputs, output_hidden_states=True))
        return given[-1]

    monkeypatch.setattr(target.transformer, "forward", recorded)
    plain, found = target.teach(tokens, PROMPTS[:2]), target.teach(tokens, PROMPTS[:2], layers)
    (*inputs, _) = given[-1].hidden_states  # the last one is behind the norm
    assert torch.equal(found[..., :32], plain)
    for part, layer in enumerate(layers, start=1):
        own, row = inputs[layer].unflatten(0, (2, 2)), slice(LENGTH + SIDE - 1)  # up to the first row end
        taught = found[:, :, row, 32 * part : 32 * (part + 1)]
        torch.testing.assert_close(taught, own[:, :, row], rtol=0, atol=1e-5)
    parents = torch.arange(-1, target.num_tokens - 2).expand(2, -1)
    target.allocate(2, target.num_tokens - 1)
    target.hand_out(layers)
    prefix = target.prefill(PROMPTS[:2], torch.arange(2)).features
    for _ in range(4):  # the last ones are recorded
        chained = torch.cat([prefix, target.verify(DraftTree(tokens[:, :-1], parents)).features], dim=2)
        torch.testing.assert_close(chained[:, :, LENGTH - 1 :], found[:, :, LENGTH - 1 :], rtol=0, atol=1e-4)
    target.allocate(2, 1)
    assert target.prefill(PROMPTS[:2], torch.arange(2)).features.shape[-1] == 32


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES["lumina_mgpt"]], ids=str)
@torch.inference_mode()
def test_a_row_end_that_is_not_committed_is_caught(loaded, monkeypatch):
    """The mutant: accepted codes are kept, the structural tokens between them are not."""
    monkeypatch.setattr("lantern.models.hf.structure.StructuredTree.expand", lambda self, verdict: verdict)
    assert worst_difference(loaded, seed=0) > 1e-2


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_evaluating_a_random_drafter_gives_the_tokens_of_plain_decoding(loaded, tmp_path):
    """Catches a family that the evaluation, the drafter, batching or the image decoder cannot run."""
    target, dim = loaded.target, loaded.target.embed_weight.shape[1]
    heads = dim // target.rotation.shape[-1]
    fit = {"dim": dim, "num_heads": heads, "hidden_dim": 48, "vocab_size": 24, "target_hash": target.weights_hash}
    torch.manual_seed(1)
    save_weights(tmp_path / "drafter", EagleNetwork(dim, heads, 48).state_dict(), fit)
    pipeline = pipeline_of(loaded, "tree=static", f"drafter.checkpoint={tmp_path / 'drafter'}")
    assert pipeline.target.cfg_scale > 1
    baseline, method = evaluation(tmp_path, PROMPTS, 1, 4, 2).run(pipeline)
    assert (baseline.row["drafter"], method.row["drafter"]) == ("none", "eagle")
    side = (8 if isinstance(target.tokenizer, CodeColors) else 2) * SIDE
    assert method.images.shape == (4, 3, side, side)
    hashes = [{record["seed"]: record["tokens"] for record in part.records} for part in (baseline, method)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0].values())) == 4


@pytest.mark.full
@pytest.mark.parametrize("family", [FAMILIES["lumina_mgpt"]], ids=str)
def test_plain_decoding_with_row_ends_is_what_the_prompt_alone_decides(loaded):
    """Catches state that leaks between images: batches of one and of three, admitted and finished in any order."""
    pipeline = pipeline_of(loaded, "drafter=none")
    alone = torch.cat([pipeline.generate([prompt], [seed], 1).tokens for seed, prompt in enumerate(PROMPTS)])
    assert torch.equal(pipeline.generate(PROMPTS, range(3), 3).tokens, alone)
    assert torch.equal(pipeline.generate(PROMPTS[::-1], [2, 1, 0], 2).tokens, alone.flip(0))


@pytest.mark.parametrize("family", [FAMILIES["lumina_mgpt"]], ids=str)
def test_a_window_longer_than_a_row_of_the_image_gives_the_tokens_of_plain_decoding(loaded):
    """Catches paths with several row ends, of which each must be read and kept; the drafter needs no weights."""
    pipeline = pipeline_of(loaded, "drafter=jacobi")
    found, plain = (part.generate(PROMPTS, [1, 2, 3], 2) for part in (pipeline, pipeline.baseline()))
    assert torch.equal(found.tokens, plain.tokens)
    assert max(max(entry.accepted) for entry in found.rounds) > SIDE


@pytest.mark.full
def test_liquids_unconditional_prompt_is_a_text_that_its_tokenizer_may_split(tmp_path):
    """Catches a demand for one token of a name that the released code passes as text."""
    family = FAMILIES["liquid"]
    family.make(tmp_path)
    save_text_tokenizer(tmp_path, list(LIQUID_NAMES))
    text = AutoTokenizer.from_pretrained(tmp_path)
    (prefix,) = instantiate(config(family, tmp_path).model).prompts(["a red ring"])
    begin, image = text.convert_tokens_to_ids(LIQUID_NAMES)
    assert prefix.unconditional == [begin, *text.encode(LIQUID_UNCONDITIONAL, add_special_tokens=False), image]
    assert len(prefix.unconditional) > 3
