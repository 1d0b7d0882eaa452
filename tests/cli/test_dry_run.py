"""Memory from shapes: against what is really allocated for a model that exists, and against arithmetic for 7B ones."""

import pytest
from hydra.utils import instantiate
from support.configs import composed
from transformers import ChameleonConfig

from lantern.cli.dry_run import largest_tree
from lantern.runtime.memory import Estimate, num_bytes
from lantern.types import Target

GIB = 2**30


def on_meta(model: str, *overrides: str, dtype: str = "bfloat16") -> Target:
    return instantiate(composed("evaluate", f"model={model}", "device=meta", f"dtype={dtype}", *overrides).model)


@pytest.fixture
def chameleon_7b(tmp_path) -> str:
    """A folder that holds its config.json alone."""
    ChameleonConfig(vocabulary_map={}).save_pretrained(tmp_path)
    return f"model.checkpoint={tmp_path}"


def test_the_embedded_model_takes_what_was_estimated():
    """Catches a cache or weights counted in another precision than they are kept in."""
    real = instantiate(composed("evaluate", "device=cpu", "dtype=float32").model)
    found = Estimate.of(on_meta("llamagen", dtype="float32"), 26, 4)
    assert num_bytes(real.transformer) + num_bytes(real.tokenizer) <= found.weights
    real.allocate(4, 26)
    assert found.caches == real.cache.store.nbytes


@pytest.mark.parametrize(("settings", "nodes"), [
    (["drafter=none"], 1), (["tree=static"], 26), (["tree=auto"], 64), (["drafter=jacobi"], 16),
    (["+method=refined_branches"], 61),
])  # fmt: skip
def test_what_a_round_drafts_is_known_before_anything_is_loaded(settings, nodes):
    """Catches a dry run that reckons with a tree that is not grown, or forgets the window."""
    cfg = composed("evaluate", *settings)
    assert largest_tree(instantiate(cfg.drafter), instantiate(cfg.tree)) == nodes


def test_a_7b_models_estimate_equals_the_arithmetic(chameleon_7b):
    """Keys and values of Anole: 2 x 32 layers x 4,096 x 2 rows x 2 bytes a slot, 1 MiB."""
    found = Estimate.of(on_meta("anole", chameleon_7b), 26, 1)
    assert found.caches == (128 + 1024 + 26) * 2**20
    assert 12.4 * GIB < found.weights < 13.5 * GIB
