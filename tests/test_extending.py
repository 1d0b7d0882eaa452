"""Each row of the documentation's extension table, carried out outside the repository."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.commands import run_script
from support.tiny_weights import write_tiny_weights

from lantern.evaluation.rows import read_rows


class Extension(NamedTuple):
    group: str
    name: str
    code: str
    yaml: str
    overrides: tuple[str, ...] = ()


RULE = Extension(
    "acceptance", "mixture",
    '''
import torch
from lantern.acceptance.relaxed import relaxed

class Mixture:
    name, verification, lossless = "mixture", "ratio", False

    def __init__(self, share):
        self.share, self.parameters = share, {"share": share}

    def judge(self, p, q, x, site):
        return relaxed((1 - self.share) * p + self.share / p.shape[-1], q, x)
''',
    "_target_: my_parts.Mixture\nshare: 0.5\n",
    ("acceptance.share=0.25",),
)  # fmt: skip

TREE = Extension(
    "tree", "fan",
    '''
import torch
from lantern.types import DraftTree, PADDING

class Fan:
    name = kind = "fan"
    depth = num_expanded = 1

    def __init__(self, width):
        self.width, self.num_nodes = width, width + 1

    def grow(self, roots, tokens_left, expand, proposals):
        root = roots[:, None]
        parents = torch.zeros(len(roots), self.num_nodes, dtype=torch.long)
        parents[:, 1:] = torch.where(tokens_left[:, None] > 1, 0, PADDING)
        parents[:, 0] = -1
        scores = proposals.topk_scores(expand(root, torch.full_like(root, -1), 0), 0)
        children = scores[:, 0].topk(self.width).indices
        return DraftTree(torch.cat([root, children], 1), parents.to(roots.device))
''',
    "_target_: my_parts.Fan\nwidth: 4\n",
)  # fmt: skip

DRAFTER = Extension(
    "drafter", "repeat",
    '''
from lantern.types import TreeLabel, TreeTopology

class Repeat:
    name, num_nodes, depth, forwards, forward_s = "repeat", 2, 1, 0, 0.0
    weights_hash, tree = None, TreeLabel("last_token", "repeat")

    def allocate(self, batch_size): ...
    def begin(self, prefill, rows): ...
    def observe(self, tree, forward, probs, verdict): ...
    def keep(self, rows): ...

    def draft(self, roots, tokens_left, proposals):
        length = min(self.depth, int(tokens_left.min()) - 1)
        return TreeTopology.chain(length, roots.device).tree(roots[:, None].repeat(1, 1 + length))
''',
    "_target_: my_parts.Repeat\n",
)  # fmt: skip

TARGET = Extension(
    "model", "noise",
    '''
import torch
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import Transformer

def load_noise(side):
    torch.manual_seed(0)
    body = Transformer(32, 2, 2, 24, (side, side), caption_dim=8, prefix_len=4, multiple_of=16)
    return LlamaGenTarget(body, read_lengths, Greys(side), 2.0, "noise")

def read_lengths(prompts):
    lengths = torch.tensor([len(prompt) for prompt in prompts], dtype=torch.float32)
    return lengths[:, None, None].expand(-1, 4, 8) / 20, torch.ones(len(prompts), 4, dtype=torch.bool)

class Greys:
    def __init__(self, side):
        self.side, self.codebook = side, torch.linspace(0, 1, 24)[:, None]

    def decode(self, tokens):
        return self.codebook[tokens].view(-1, 1, self.side, self.side).expand(-1, 3, -1, -1)
''',
    "_target_: my_parts.load_noise\nside: 4\n",
    ("drafter=jacobi", "acceptance=exact", "prompts=[a,bcd]", "speed.num_prompts=2"),
)  # fmt: skip

METRIC = Extension(
    "metrics", "brightness",
    '''
class Brightness:
    def prepare(self, prompts): ...

    def __call__(self, images, prompts):
        return {"brightness": float(images.mean())}

    def against(self, images, plain, prompts):
        return {"brightness_diff": float(images.mean() - plain.mean())}

    def protocol(self, prompts):
        return {"brightness_of": len(prompts)}

    def warnings(self, prompts):
        return []
''',
    "brightness:\n  _target_: my_parts.Brightness\n",
    ("quality.num_images=2", "speed.num_prompts=0", "acceptance=exact", "verification=shared_noise"),
)  # fmt: skip
VERIFICATION = Extension(
    "verification", "refuse",
    '''
import torch
from lantern.types import Verdict
from lantern.verification.ratio import RatioProposals

class Refuse:
    name, head_s, proposals = "refuse", 0.0, RatioProposals

    def __call__(self, tree, probs, rule, noise):
        root = torch.zeros_like(tree.tokens[:, 0])
        return Verdict(root[:, None], root, noise.draw(probs[:, 0]))
''',
    "_target_: my_parts.Refuse\n",
    ("acceptance=exact",),
)  # fmt: skip

START = Extension(
    "drafter", "from_zero",
    '''
import torch

class Zero:
    def __call__(self, unread):
        certain = torch.zeros_like(unread.laws)
        certain[..., 0] = 1
        return torch.where(unread.unseen[..., None], certain, unread.laws)
''',
    "defaults: [jacobi]\nstart: {_target_: my_parts.Zero}\n",
    ("acceptance=exact", "verification=ratio"),
)  # fmt: skip

LOOP = Extension(
    "drafter", "own_loop",
    '''
from dataclasses import replace
from lantern.decoding import generate
from lantern.drafters.none import NoDrafter
from lantern.types import TreeLabel

class OwnLoop:
    name, num_nodes, depth, forwards, forward_s = "own_loop", 1, 1, 0, 0.0
    weights_hash, tree = None, TreeLabel("rows", "own")

    def decode(self, setup, prompts, seeds, batch_size=1):
        return generate(replace(setup, drafter=NoDrafter()), prompts, seeds, batch_size)
''',
    "_target_: my_parts.OwnLoop\n",
    ("acceptance=exact",),
)  # fmt: skip

EXPECTED = {
    RULE: {
        "acceptance": "mixture", "acceptance.share": 0.25, "verification": "ratio", "lossless": False,
        "law": "acceptance.share=0.25 is lossy, says its class; no certificate for my_parts.Mixture; "
        "run lantern.check_law(rule=...)",
    },
    TREE: {
        "tree": "fan", "lossless": False, "drafter": "eagle",
        "law": "no certificate for my_parts.Fan; run lantern.check_law(tree=...)",
    },
    DRAFTER: {"drafter": "repeat", "tree": "last_token", "lossless": False},
    TARGET: {"model": "noise", "drafter": "jacobi", "lossless": True, "target_hash": "noise"},
    METRIC: {"brightness_of": 2, "brightness_diff": 0.0},
    VERIFICATION: {
        "verification": "refuse", "tokens_per_step": 1.0, "drafter": "eagle", "lossless": False,
        "law": "no certificate for my_parts.Refuse; run lantern.check_law(verification=...)",
    },
    START: {
        "drafter": "jacobi", "drafter.start": "zero", "verification": "ratio", "lossless": False,
        "law": "no certificate for my_parts.Zero; run lantern.check_law(start=...)",
    },
    LOOP: {"drafter": "own_loop", "tokens_per_step": 1.0, "lossless": False},
}  # fmt: skip
SMALL = ["speed.num_prompts=1", "quality.num_images=0", "output_tv.num_positions=0", "tracking.mode=disabled"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return write_tiny_weights(tmp_path_factory.mktemp("weights"), side=8)


def command(extension: Extension, folder: Path, weights: Path) -> list[str]:
    """Writes the two files and returns the arguments of evaluate.py."""
    yaml = folder / "conf" / extension.group / f"{extension.name}.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text(extension.yaml)
    (folder / "my_parts.py").write_text(extension.code)
    name = f"[{extension.name}]" if extension.group == "metrics" else extension.name
    small = [*SMALL, f"paths.weights={weights}", f"hydra.run.dir={folder}/run", "dtype=float32", "device=cpu"]
    return ["--config-dir", f"{folder}/conf", f"{extension.group}={name}", *small, *extension.overrides]


def evaluate(monkeypatch: pytest.MonkeyPatch, folder: Path, words: list[str]) -> None:
    """evaluate.py in this process, which imports my_parts anew."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    sys.modules.pop("my_parts", None)
    try:
        run_script(monkeypatch, "evaluate.py", *words)
    finally:
        sys.modules.pop("my_parts", None)


PARTS = [METRIC, *(pytest.param(part, marks=pytest.mark.full) for part in EXPECTED if part is not METRIC)]


@pytest.mark.parametrize("extension", PARTS, ids=lambda extension: extension.name)
def test_an_external_part_is_one_file_and_one_yaml(extension, weights, tmp_path, monkeypatch):
    """Catches a part that is known by a list, a type or a folder of the repository. Runs in this process."""
    evaluate(monkeypatch, tmp_path, command(extension, tmp_path, weights))
    row = read_rows(tmp_path / "run" / "results.jsonl")[-1]
    assert {key: row[key] for key in EXPECTED[extension]} == EXPECTED[extension]


EDITS = [
    pytest.param(RULE, "(1 - self.share) * p", "(1 - self.share / 2) * p", id="rule", marks=pytest.mark.full),
    pytest.param(METRIC, "float(images.mean())}", "float(images.std())}", id="metric"),
]


@pytest.mark.parametrize(("extension", "before", "after"), EDITS)
def test_edited_code_gives_a_new_row_in_its_folder(extension, before, after, weights, tmp_path, monkeypatch, capsys):
    """Catches the old table of an edited rule or metric, whose settings are the same."""
    words = command(extension, tmp_path, weights)
    words += ["output_tv.num_positions=8", "output_tv.num_images=1"] if extension is RULE else []
    place, rows = tmp_path / "my_parts.py", []
    for code in (extension.code, "# a comment\n" + extension.code, extension.code.replace(before, after, 1)):
        place.write_text(code)
        evaluate(monkeypatch, tmp_path, words)
        rows.append((read_rows(tmp_path / "run" / "results.jsonl")[-1], "is finished" in capsys.readouterr().out))
    (first, _), (second, was_finished), (third, was_edited_finished) = rows
    assert was_finished
    assert not was_edited_finished
    assert first == second
    assert first["user_code"].startswith("my_parts ")
    assert first["user_code"] != third["user_code"]
    figure = "output_tv" if extension is RULE else "brightness"
    assert first[figure] != third[figure]
    assert (first["fingerprint"] != third["fingerprint"]) == (extension is RULE)  # a metric decodes nothing anew
