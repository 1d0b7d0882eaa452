"""lantern.check_law finds what keeps the law and what does not, and a pipeline is called lossless for its certificate
alone, as long as that is of these parts."""

import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from types import ModuleType

import pytest
import torch
from support.paths import ROOT
from support.toy import tiny_eagle, tiny_target

import lantern
from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.errors import LanternError
from lantern.laws import certificate
from lantern.laws.enumeration import law_of_images
from lantern.laws.tables import TableTarget, sequence_law
from lantern.pipeline import Guarantee, Pipeline
from lantern.sampling import Sampling
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.static import StaticTree, chain
from lantern.types import Drafter
from lantern.verification import Ratio, SharedNoise

BRANCHES = StaticTree([[0], [1], [0, 0]])
PARTS = '''
from dataclasses import dataclass

import torch

from lantern.acceptance.exact import Exact
from lantern.acceptance.relaxed import relaxed
from lantern.laws.tables import TableDrafter
from lantern.trees.static import StaticTree
from lantern.types import DraftTree, TreeLabel, TreeTopology, Verdict
from lantern.verification import Ratio, SharedNoise

class Power:
    """Exact at power 1."""

    name, verification, lossless = "power", "ratio", True

    def __init__(self, power):
        self.power, self.parameters = power, {"power": power}

    def judge(self, p, q, x, site):
        p = p**self.power
        return relaxed(p / p.sum(-1, keepdim=True), q, x)

class Copied(SharedNoise):
    """Shared noise under another name."""

class Unknown(Ratio):
    """Draws its last token by noise of its own kind."""

    def __call__(self, tree, probs, rule, noise):
        noise.uniform  # what an enumeration does not know
        return super().__call__(tree, probs, rule, noise)

class Twice(Ratio):
    """Lets a draft pass that either of two coins lets pass: exact, since the two are one."""

    def __call__(self, tree, probs, rule, noise):
        honest = noise.accepts
        noise.accepts = lambda chance, node: honest(chance, node) | honest(chance, node)
        try:
            return super().__call__(tree, probs, rule, noise)
        finally:
            del noise.accepts

class Nothing(Exact):
    """Leaves NaN behind a rejected draft."""

    name, lossless = "nothing", True

    def judge(self, p, q, x, site):
        accept, residual = super().judge(p, q, x, site)
        return accept, residual * torch.nan

class Sharpened(TableDrafter):
    """Says that it drew its children from another law than it did, in a tree that calls itself static."""

    def draft(self, roots, tokens_left, proposals):
        tree = super().draft(roots, tokens_left, proposals)
        said = None if tree.draft_probs is None else tree.draft_probs**2
        return DraftTree(tree.tokens, tree.parents, None if said is None else said / said.sum(-1, keepdim=True))

class Honest(TableDrafter):
    """As Sharpened, without the lie, in single precision as most drafters."""

    def _expand(self, tokens, parents, depth):
        return super()._expand(tokens, parents, depth).float()

class Last:
    """Drafts the last token again."""

    name, num_nodes, depth, forwards, forward_s = "last", 2, 1, 0, 0.0
    weights_hash, tree = None, TreeLabel("last", "static")

    def allocate(self, batch_size): ...
    def begin(self, prefill, rows): ...
    def observe(self, tree, forward, probs, verdict): ...
    def keep(self, rows): ...

    def draft(self, roots, tokens_left, proposals):
        topology = TreeTopology.chain(1, roots.device)
        tokens = roots[:, None].repeat(1, 2)
        return DraftTree(tokens, topology.cut_to(tokens_left), width=1)

class Fan(StaticTree):
    """Two siblings."""

    def __init__(self):
        super().__init__([[0], [1]])
'''


@pytest.fixture
def parts(tmp_path, monkeypatch) -> Iterator[ModuleType]:
    """Classes of a user, in a file."""
    (tmp_path / "my_parts.py").write_text(PARTS)
    (tmp_path / "my_traversal.py").write_text((ROOT / "tests" / "support" / "traversal.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(certificate, "LONG_SIZES", ())  # test_ways.py tries them
    monkeypatch.setattr(certificate, "SAMPLINGS", (Sampling(), Sampling(temperature=0)))
    monkeypatch.setattr(certificate, "COUNTED", 1_000)
    yield import_module("my_parts")
    for name in ("my_parts", "my_traversal"):
        sys.modules.pop(name, None)


def law(
    rule=None, verification=None, tree=BRANCHES, drafter: Drafter | None = None, sampling: Sampling | None = None
) -> Guarantee:
    """Of a pipeline, on a real target."""
    target, sampling = tiny_target(), sampling or Sampling()
    drafter = drafter or tiny_eagle(target, tree, sampling)
    return Pipeline(target, drafter, verification or Ratio(), rule or Exact(), sampling).guarantee


def test_a_users_verification_is_lossless_with_a_certificate_and_names_what_to_call_without(parts, tmp_path, capsys):
    """Catches a right method that nobody can show to be right, one that is right by its word, and a certificate that
    reaches to trees and windows on which nothing was tried."""
    traversal = import_module("my_traversal").Traversal()
    assert law(verification=traversal) == (
        False, "no certificate for my_traversal.Traversal; run lantern.check_law(verification=...)", True
    )  # fmt: skip
    found = lantern.check_law(verification=traversal, tree=BRANCHES)
    assert found.lossless
    assert found.deviation < 1e-12
    assert found.path == tmp_path / "my_traversal.law.json"
    assert f"lossless, {found.deviation:.1g} from the target's law at most" in capsys.readouterr().out
    known = law(verification=traversal)
    assert known.lossless
    assert known.reason.startswith("my_traversal.law.json: ")
    greedy, other_rule = Sampling(temperature=0), Lantern(torch.eye(24), 0, 0.1)
    for other in ({"tree": Eagle2Tree(4, 2, 2)}, {"sampling": greedy}, {"rule": other_rule}):
        assert not law(verification=traversal, **other).lossless
    window = Jacobi(tiny_target(), 3, Nearest(), redraw_coupled, Sampling())
    assert "does not cover" in law(verification=traversal, drafter=window).reason


def test_a_verdict_names_the_settings_and_a_rule_that_changes_nothing_at_them_is_not_said_to(parts, capsys):
    """Catches a verdict of all settings of a class, and a row's word against its own certificate."""
    mild = parts.Power(1)
    mild.lossless = False
    assert "no certificate for my_parts.Power" in law(mild).reason
    assert lantern.check_law(rule=mild, verification=Ratio(), tree=BRANCHES).lossless
    assert "my_parts.Power(power=1): lossless" in capsys.readouterr().out
    known = law(mild)
    assert (known.lossless, "changes the law" in known.reason, "my_parts.law.json: " in known.reason) == (
        False, False, True
    )  # fmt: skip


def test_a_verification_that_accepts_too_much_is_found_out(parts, capsys):
    """Catches a check that anything passes, and a certificate of a deviation that is read for one of the law."""
    wrong = import_module("my_traversal").Traversal(bonus=1.1)
    found = lantern.check_law(verification=wrong, tree=chain(2))
    assert not found.lossless
    assert found.deviation > 1e-3
    assert "NOT lossless" in capsys.readouterr().out
    known = law(verification=wrong, tree=chain(3))
    assert (known.lossless, known.is_open) == (False, False)
    assert f"{found.deviation:.1g} from the target's law over" in known.reason


def test_a_window_coupled_to_tokens_that_the_verification_has_looked_at_is_found_out(parts):
    """Catches an enumeration that couples guesses in its own way, whatever the verification's proposals do."""
    traversal, sampling = import_module("my_traversal").Traversal, Sampling()

    class Coupled(traversal):
        proposals = Ratio.proposals

    target = TableTarget(3, 4, sampling.cfg_scale)
    window = Jacobi(target, 2, Nearest(), redraw_coupled, sampling)
    independent, coupled = (law_of_images(target, window, kind(), Exact(), sampling) for kind in (traversal, Coupled))
    wanted = sequence_law(target, sampling)
    assert (independent - wanted).abs().max() < 1e-12
    assert (coupled - wanted).abs().max() > 1e-4


def test_a_drafter_that_lies_about_its_laws_is_found_out_whatever_its_tree_is_called(parts):
    """Catches a drafter that is lossless by the spelling of its tree's kind."""
    lies = parts.Sharpened(TableTarget(24, 2, 2.0), BRANCHES, Sampling())
    assert lies.tree.kind == "static"
    reason = "no certificate for my_parts.Sharpened; run lantern.check_law(drafter=...)"
    assert law(drafter=lies) == (False, reason, True)
    found = lantern.check_law(drafter=parts.Sharpened, tree=BRANCHES)
    assert found.results["exact rule, ratio on static"].deviation > 1e-3
    assert found.results["exact rule, shared_noise on static"].deviation == 0  # which reads no draft law
    assert not law(drafter=lies).lossless
    assert law(drafter=lies, verification=SharedNoise()).lossless
    assert lantern.check_law(drafter=parts.Honest, tree=BRANCHES).lossless
    assert law(drafter=parts.Honest(TableTarget(24, 2, 2.0), BRANCHES, Sampling())).lossless


def test_a_drafter_with_a_tree_of_its_own_and_a_tree_are_checked_under_every_verification(parts):
    """Catches a drafter that is tried under shared noise alone, where whatever it drafts keeps the law, and one whose
    tree, a name, must be Lantern's."""
    found = lantern.check_law(drafter=parts.Last)
    assert found.lossless
    assert {name.split()[2] for name in found.results} == {"ratio", "shared_noise", "block"}
    assert law(drafter=parts.Last()).lossless
    assert lantern.check_law(tree=parts.Fan).lossless
    assert law(tree=parts.Fan()).lossless
    greedy = Sampling(temperature=0)
    assert law(tree=parts.Fan(), verification=SharedNoise(), sampling=greedy).lossless


def test_edited_code_ends_a_certificate_and_an_edited_comment_does_not(parts, tmp_path):
    """Catches the claim of code that is gone."""
    lantern.check_law(tree=parts.Fan)
    file = tmp_path / "my_parts.py"
    file.write_text(PARTS + "\n# the end\n")
    assert law(tree=parts.Fan()).lossless
    file.write_text(PARTS + "\nONE = 1\n")
    assert law(tree=parts.Fan()).reason.startswith("my_parts.law.json is of other code; run ")


def test_two_parts_of_a_user_need_one_certificate_of_both(parts):
    """Catches the law of a combination inferred from its parts."""
    rule, tree = parts.Power(1.0), parts.Fan
    lantern.check_law(rule=rule, tree=chain(1))
    lantern.check_law(tree=tree)
    assert law(rule, tree=tree()).reason.startswith("no certificate for my_parts.Power with my_parts.Fan; run ")
    lantern.check_law(rule=rule, tree=tree)
    assert law(rule, tree=tree()).lossless


def test_shared_noise_is_compared_and_other_noise_is_no_proof(parts, capsys):
    """Catches picks that are judged by counting, and a proof by statistics."""
    shared = lantern.check_law(verification=parts.Copied(), tree=BRANCHES)
    assert shared.lossless
    assert shared.deviation == 0
    assert law(verification=parts.Copied(), sampling=Sampling(temperature=0)).lossless
    assert not lantern.check_law(verification=parts.Unknown(), tree=chain(1)).lossless
    assert "NOT PROVEN lossless" in capsys.readouterr().out
    known = law(verification=parts.Unknown(), tree=chain(1))
    assert not known.lossless
    assert "counted" in known.reason


def test_one_coin_for_two_decisions_is_not_taken_for_two(parts):
    """Catches an enumeration whose coins are independent where those of decoding are one."""
    found = lantern.check_law(verification=parts.Twice(), tree=chain(1))
    assert "enumerated" not in {way for result in found.results.values() for way in result.ways}
    assert not found.lossless


def test_a_law_without_mass_is_a_deviation(parts):
    """Catches NaN, which is neither above nor below a bound."""
    found = lantern.check_law(rule=parts.Nothing(), verification=Ratio(), tree=chain(1))
    assert found.deviation == 1.0
    assert not law(parts.Nothing(), tree=chain(1)).lossless


def test_what_cannot_be_checked_is_one_clear_error(parts):
    """Catches a traceback out of topk, and a certificate of nothing."""
    with pytest.raises(LanternError, match=r"the tree has 4 children a node, the tables 3 codes; give it 3 at most"):
        lantern.check_law(tree=StaticTree([[rank] for rank in range(4)]))
    with pytest.raises(LanternError, match=r"rule=exact is a name; give the part itself"):
        lantern.check_law(rule="exact")
    typed = type("Typed", (parts.Fan,), {"__module__": "nowhere"})
    with pytest.raises(LanternError, match=r"nowhere\.Typed is in no file; save its class in one"):
        lantern.check_law(tree=typed)


def test_a_part_of_lanterns_own_is_checked_without_a_certificate(capsys):
    """Catches a file written into the package, and a relaxed rule that passes."""
    found = lantern.check_law(rule=partial(Lantern, k=2, delta=0.3), tree=chain(2))
    assert found.path is None
    assert lantern.check_law(target=tiny_target(), prompt="a").path is None
    assert found.deviation > 1e-3
