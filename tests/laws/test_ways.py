"""Each way in which a wrong part of a user's own once had lossless=yes, tried again: it ends without."""

import sys
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest
import torch
from support.families import BODY
from support.toy import tiny_eagle, tiny_target
from transformers import Qwen2Config, Qwen2Model

import lantern
from lantern.acceptance.exact import Exact
from lantern.certificates import Guarantee
from lantern.drafters.jacobi.jacobi import Jacobi, redraw_coupled
from lantern.drafters.jacobi.starts import Nearest
from lantern.laws import certificate
from lantern.laws.tables import TableTarget
from lantern.models.hf.called_target import GivenPrefixes
from lantern.models.hf.code_colors import CodeColors
from lantern.models.hf.prompt_format import Prefix
from lantern.models.hf.target import HuggingFaceTarget, ImageVocabulary
from lantern.pipeline import Pipeline
from lantern.sampling import Sampling
from lantern.trees.static import StaticTree, chain
from lantern.verification import Ratio, SharedNoise

BRANCHES = StaticTree([[0], [1], [0, 0]])
DEEP = StaticTree([[0], [1], [2], [0, 0], [0, 1], [0, 0, 0], [0, 0, 0, 0]])
PARTS = '''
import numpy as np
import torch
from transformers import Qwen2Model

from lantern.acceptance.exact import Exact
from lantern.acceptance.relaxed import relaxed
from lantern.laws.tables import TableDrafter
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.trees.static import StaticTree
from lantern.types import PADDING, DraftTree
from lantern.verification.ratio import Ratio

class Power(Exact):
    name, verification, lossless = "power", "ratio", True

    def exponent(self):
        return 1.0

    def judge(self, p, q, x, site):
        p = p ** self.exponent()
        return relaxed(p / p.sum(-1, keepdim=True), q, x)

class Rare(Power):
    """Takes every draft that its law hardly drafts."""

    def judge(self, p, q, x, site):
        accept, residual = super().judge(p, q, x, site)
        return accept if q is None else accept.masked_fill(q.gather(1, x[:, None])[:, 0] < 1e-3, 1), residual

class Held(Power):
    """`keep` says what it makes of its setting, `read` the setting of that."""

    def __init__(self, power, keep, read=float):
        self.kept, self.read = keep(power), read

    def exponent(self):
        return float(self.read(self.kept))

class InTensor(Held):
    def __init__(self, power):
        super().__init__(power, torch.tensor)

class Box:
    def __init__(self, power):
        self.power = np.float64(power)

KINDS = {
    "A": InTensor,
    "array": lambda power: Held(power, lambda power: np.array([power]), lambda kept: kept[0]),
    "nested": lambda power: Held(power, lambda power: [{"inner": Box(power)}], lambda kept: kept[0]["inner"].power),
    "closed": lambda power: Held(power, lambda power: lambda: power, lambda kept: kept()),
    "H": lambda power: Slotted(power),
}

class Slotted:
    __slots__ = ("power",)
    name, verification, lossless, parameters = "slotted", "ratio", True, {}

    def __init__(self, power):
        self.power = power

    def judge(self, p, q, x, site):
        p = p**self.power
        return relaxed(p / p.sum(-1, keepdim=True), q, x)

class FromFile(Power):
    def __init__(self, path):
        self.path = path

    def exponent(self):
        return float(open(self.path).read())

class Eager(Ratio):
    """A verification that lets more drafts pass than the rule does."""

    def __init__(self, bonus):
        self.bonus = torch.tensor(bonus)

    def __call__(self, tree, probs, rule, noise):
        honest = noise.accepts
        noise.accepts = lambda chance, node: honest((float(self.bonus) * chance).clamp(max=1), node)
        try:
            return super().__call__(tree, probs, rule, noise)
        finally:
            del noise.accepts

class Sharpened(TableDrafter):
    def __init__(self, target, tree, sampling, power):
        super().__init__(target, tree, sampling)
        self.power = power

    def draft(self, roots, tokens_left, proposals):
        tree = super().draft(roots, tokens_left, proposals)
        if tree.draft_probs is None:
            return tree
        said = tree.draft_probs**self.power
        return DraftTree(tree.tokens, tree.parents, said / said.sum(-1, keepdim=True))

class Pruning(StaticTree):
    def __init__(self, prune):
        super().__init__([[0], [1]])
        self.prune = prune

    def grow(self, roots, tokens_left, expand, proposals):
        tree = super().grow(roots, tokens_left, expand, proposals)
        if not self.prune or tree.draft_probs is None or tree.parents.shape[1] < 2:
            return tree
        parents = tree.parents.clone()
        parents[:, 2] = torch.where(tree.tokens[:, 2] == 0, PADDING, parents[:, 2])
        return DraftTree(tree.tokens, parents, tree.draft_probs)

class Sum:
    """A start that is no law."""

    def __call__(self, unread):
        index = unread.last[:, None, None].expand(-1, unread.laws.shape[1], 1)
        last = torch.zeros_like(unread.laws).scatter_(2, index, 1)
        return unread.laws + last

class Heavy:
    """Not normalised where no pass has read."""

    def __call__(self, unread):
        return torch.where(unread.unseen[..., None], 2 * unread.laws, unread.laws)

def keep_all(proposals, laws, former, known):
    drawn = proposals.redraw(laws)
    seen = torch.arange(laws.shape[1]) < known[:, None]
    return torch.where(seen, former.tokens, drawn)

class Insistent:
    """keep_all that calls itself lossless."""

    lossless = True

    def __call__(self, *given):
        return keep_all(*given)

class ChainTarget(LlamaGenTarget):
    """Its pass over a tree is that over a chain."""

    def verify(self, tree):
        size = tree.tokens.shape[1]
        parents = torch.arange(-1, size - 1).expand(len(tree.tokens), -1)
        return super().verify(DraftTree(tree.tokens, parents))

class RightTarget(LlamaGenTarget):
    """As its parent."""

class SeesAll(Qwen2Model):
    """Behind a prompt its tokens see all that are given with them."""

    def forward(self, attention_mask=None, **given):
        length, seen = attention_mask.shape[2:]
        return super().forward(attention_mask=attention_mask * (length in (1, seen)), **given)

class SeesAbove(Qwen2Model):
    """As its parent."""

def see_all(body):
    """SeesAll for one object of transformers' class."""
    own = body.forward

    def forward(attention_mask=None, **given):
        length, seen = attention_mask.shape[2:]
        return own(attention_mask=attention_mask * (length in (1, seen)), **given)

    body.forward = forward

class LaterSiblings(Power):
    """Judges later siblings by the law before any rejection."""

    def judge(self, p, q, x, site):
        p = torch.where((site.rank > 0)[:, None], site.law, p)
        return super().judge(p, q, x, site)

class FromDepth(Power):
    """Accepts all from a depth on, or from a sibling on."""

    def __init__(self, depth=9, rank=9):
        self.depth, self.rank = depth, rank

    def judge(self, p, q, x, site):
        accept, residual = super().judge(p, q, x, site)
        wrong = (site.depth >= self.depth) | (site.rank >= self.rank)
        return torch.where(wrong, torch.ones_like(accept), accept), residual

class Hasty(Power):
    """Cuts the residual to its four largest codes, to save time."""

    def judge(self, p, q, x, site):
        accept, residual = super().judge(p, q, x, site)
        if residual.shape[-1] > 4:
            least = residual.topk(4, dim=-1).values[:, -1:]
            residual = residual.masked_fill(residual < least, 0)
        return accept, residual / residual.sum(-1, keepdim=True)

class Merging(Power):
    """Takes codes nearer than 0.05 for one."""

    def __init__(self, codebook):
        apart = torch.cdist(codebook, codebook)
        self.near = ((apart < 0.05) / (apart < 0.05).sum(1, keepdim=True)).double()

    def judge(self, p, q, x, site):
        return super().judge(p @ self.near.to(p.dtype), q, x, site)

class Cut(Power):
    """Wrong where codes are cut."""

    def exponent(self):
        return self.power

    def judge(self, p, q, x, site):
        self.power = 1.5 if bool((p == 0).any()) and bool((site.law == 0).any()) else 1.0
        return super().judge(p, q, x, site)

class Forgetful(TableDrafter):
    """Says a law without the temperature that it drew by."""

    def draft(self, roots, tokens_left, proposals):
        tree = super().draft(roots, tokens_left, proposals)
        if tree.draft_probs is None or self.sampling.temperature == 1:
            return tree
        said = tree.draft_probs**self.sampling.temperature
        return DraftTree(tree.tokens, tree.parents, said / said.sum(-1, keepdim=True))
'''


@pytest.fixture
def parts(tmp_path, monkeypatch) -> ModuleType:
    """Parts of a user, in a file; the check at its smallest, except for what a test is about."""
    (tmp_path / "my_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(certificate, "LONG_SIZES", ())
    monkeypatch.setattr(certificate, "SIZES", ((3, 4, 0.0),))
    monkeypatch.setattr(certificate, "SAMPLINGS", (Sampling(),))
    monkeypatch.setattr(certificate, "COUNTED", 500)
    yield import_module("my_parts")
    sys.modules.pop("my_parts", None)


@pytest.fixture
def counts_many_codes(parts, monkeypatch) -> None:
    monkeypatch.setattr(certificate, "LONG_SIZES", ((40, 6),))
    monkeypatch.setattr(certificate, "COUNTED", 4_000)


def guarantee(rule=None, verification=None, tree=BRANCHES, drafter=None, target=None) -> Guarantee:
    target = target or tiny_target()
    drafter = drafter or tiny_eagle(target, tree, Sampling())
    return Pipeline(target, drafter, verification or Ratio(), rule or Exact(), Sampling()).guarantee


@pytest.mark.parametrize("kept", ["A", "array", "nested", "closed", "H"])
def test_a_certificate_at_one_setting_is_none_at_another_wherever_the_setting_is(parts, kept):
    kind = parts.KINDS[kept]
    assert lantern.check_law(rule=kind(1.0), verification=Ratio(), tree=BRANCHES).lossless
    assert guarantee(kind(1.0)).lossless
    other = guarantee(kind(1.7))
    assert not other.lossless
    assert "is of other settings" in other.reason


def test_a_file_that_a_rule_reads_is_a_setting(parts, tmp_path):
    file = tmp_path / "power.txt"
    file.write_text("1.0")
    assert lantern.check_law(rule=parts.FromFile(str(file)), verification=Ratio(), tree=BRANCHES).lossless
    assert guarantee(parts.FromFile(str(file))).lossless
    file.write_text("1.7")
    assert not guarantee(parts.FromFile(str(file))).lossless


def test_what_a_function_calls_is_code_of_a_setting(parts, tmp_path):
    file = tmp_path / "what_it_calls.py"
    file.write_text("def inner(kept):\n    return kept\n\n\ndef outer(kept):\n    return inner(kept)\n")
    rule = parts.Held(1.0, float, import_module("what_it_calls").outer)
    assert lantern.check_law(rule=rule, verification=Ratio(), tree=BRANCHES).lossless
    assert guarantee(rule).lossless
    file.write_text(file.read_text().replace("return kept", "return 2 * kept"))
    assert "is of other settings" in guarantee(rule).reason


def test_what_cannot_be_described_has_no_certificate(parts):
    with pytest.raises(lantern.errors.LanternError, match="no certificate can hold"):
        lantern.check_law(rule=parts.Held(1.0, lambda power: memoryview(bytes(8))), verification=Ratio(), tree=BRANCHES)


def test_settings_of_verifications_drafters_and_trees_are_settings(parts):
    """B, B2 of the audit, and a verification."""
    assert lantern.check_law(verification=parts.Eager(1.0), tree=BRANCHES).lossless
    assert guarantee(verification=parts.Eager(1.0)).lossless
    assert not guarantee(verification=parts.Eager(1.2)).lossless
    assert lantern.check_law(drafter=partial(parts.Sharpened, power=1.0), verification=Ratio(), tree=BRANCHES).lossless
    made = [parts.Sharpened(TableTarget(24, 2, 2.0), BRANCHES, Sampling(), power) for power in (1.0, 2.0)]
    assert [guarantee(drafter=drafter).lossless for drafter in made] == [True, False]
    assert lantern.check_law(tree=partial(parts.Pruning, prune=False), verification=Ratio()).lossless
    assert [guarantee(tree=parts.Pruning(prune)).lossless for prune in (False, True)] == [True, False]


def window(start, redraw=redraw_coupled) -> Jacobi:
    return Jacobi(tiny_target(), 2, start, redraw, Sampling())


def test_a_start_of_a_user_needs_a_certificate(parts):
    """F of the audit: it also moves the laws of positions that were read."""
    assert guarantee(drafter=window(parts.Sum())).reason.startswith("no certificate for my_parts.Sum")
    assert not lantern.check_law(start=parts.Sum(), verification=Ratio()).lossless
    assert not guarantee(drafter=window(parts.Sum())).lossless
    assert lantern.check_law(start=parts.Heavy, verification=Ratio()).lossless
    assert guarantee(drafter=window(parts.Heavy())).lossless


def test_what_a_start_of_a_user_returns_is_normalised(parts):
    """Catches a draft law that sums to more than 1, by which drafts would be judged."""
    drafter, target = window(parts.Heavy()), tiny_target()
    target.allocate(1, 3)
    drafter.allocate(1)
    drafter.begin(target.prefill(["a"], torch.zeros(1, dtype=torch.long)), torch.zeros(1, dtype=torch.long))
    likeliest = SimpleNamespace(needs_draft_law=True, redraw_coupled=lambda laws, *_: laws.argmax(-1))
    drafter.guess(torch.zeros(1, dtype=torch.long), likeliest)
    torch.testing.assert_close(drafter.laws.sum(-1), torch.ones_like(drafter.laws[..., 0]))


def test_a_redraw_of_a_user_is_lossy_unless_it_says_otherwise_and_has_a_certificate(parts):
    """G of the audit."""
    assert "changes the law" in guarantee(drafter=window(Nearest(), parts.keep_all)).reason
    insistent = window(Nearest(), parts.Insistent())
    assert guarantee(drafter=insistent).is_open
    assert not lantern.check_law(redraw=parts.Insistent, verification=Ratio()).lossless
    assert (guarantee(drafter=insistent).lossless, guarantee(drafter=insistent).is_open) == (False, False)


def around(kind) -> HuggingFaceTarget:
    """Lantern's target around a network."""
    torch.manual_seed(0)
    body, embed, side = kind(Qwen2Config(vocab_size=8, **BODY)), torch.randn(24, 32), (4, 4)
    return HuggingFaceTarget(body, ImageVocabulary(embed, embed), GivenPrefixes(3), CodeColors(embed, side), side, 2.0)


def test_a_target_or_a_network_of_a_user_needs_tree_passes_that_are_its_single_passes(parts):
    """J of the audit; also of a network within Lantern's own target."""
    known, prefix, drafter = tiny_target(), Prefix([1, 2], [3]), window(Nearest())
    kinds = parts.ChainTarget, parts.RightTarget
    made = [(kind(known.transformer, known.conditioner, known.tokenizer), "a b") for kind in kinds]
    made += [(around(kind), prefix) for kind in (parts.SeesAll, parts.SeesAbove)]
    of = [partial(guarantee, target=target, verification=SharedNoise(), drafter=drafter) for target, _ in made]
    assert all(claim().is_open for claim in of)
    found = [lantern.check_law(target=target, prompt=prompt).lossless for target, prompt in made]
    assert found == [claim().lossless for claim in of] == [False, True] * 2
    assert guarantee(target=around(Qwen2Model), verification=SharedNoise(), drafter=drafter).lossless


def test_a_network_of_transformers_with_a_method_of_a_users_own_needs_a_certificate(parts):
    """Catches an object whose `forward` was replaced, judged by its class."""
    target, layered = around(Qwen2Model), around(Qwen2Model)
    parts.see_all(target.transformer)
    attention = layered.transformer.layers[1].self_attn
    attention.forward = partial(parts.keep_all, attention)
    drafted = {"verification": SharedNoise(), "drafter": window(Nearest())}
    of = [partial(guarantee, target=one, **drafted) for one in (target, layered)]
    names = "see_all.<locals>.forward", "keep_all"
    assert [claim().reason.split(";")[0] for claim in of] == [f"no certificate for my_parts.{name}" for name in names]
    assert not lantern.check_law(target=target, prompt=Prefix([1, 2], [3])).lossless
    assert (of[0]().lossless, of[0]().is_open) == (False, False)


def test_a_chains_certificate_is_no_branching_trees_and_replaces_no_failure(parts):
    """C of the audit."""
    rule = parts.LaterSiblings()
    assert lantern.check_law(rule=rule, verification=Ratio(), tree=chain(2)).lossless
    assert "siblings" in guarantee(rule).reason
    assert not lantern.check_law(rule=rule, verification=Ratio(), tree=BRANCHES).lossless
    lantern.check_law(rule=rule, verification=Ratio(), tree=chain(2))
    assert not guarantee(rule).lossless
    assert guarantee(rule, tree=chain(2)).lossless


WRONG = {
    "D": lambda parts: parts.FromDepth(depth=3), "D3": lambda parts: parts.FromDepth(rank=2),
    "E": lambda parts: parts.Hasty(), "N": lambda parts: partial(parts.Merging),
}  # fmt: skip


@pytest.mark.usefixtures("counts_many_codes")
@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_what_small_tables_cannot_show_is_counted(parts, make, monkeypatch, capsys):
    """D, D3, E and N of the audit. Without counting they are certified. Catches a claim beyond what was tried."""
    found = lantern.check_law(rule=make(parts), verification=Ratio(), tree=DEEP)
    assert not found.lossless
    rule = make(parts)
    rule = rule(codebook=tiny_target().codebook) if isinstance(rule, partial) else rule
    assert not guarantee(rule, tree=DEEP).lossless
    monkeypatch.setattr(certificate, "UNLIKELY", 0)
    found.path.unlink()
    assert lantern.check_law(rule=make(parts), verification=Ratio(), tree=DEEP).lossless
    alone = "at most; beyond depth 3 and 3 siblings only counted in 4000 images of 40 codes (a share off by under 0.04"
    assert alone in capsys.readouterr().out
    assert alone.partition("; ")[2] in guarantee(rule, tree=DEEP).reason


@pytest.mark.parametrize(("role", "name"), [("rule", "Cut"), ("drafter", "Forgetful"), ("rule", "Rare")])
def test_another_temperature_alone_cuts_alone_and_rare_codes_are_tried(parts, role, name, monkeypatch):
    """Catches samplings and tables that are taken out of the check."""
    own = {role: getattr(parts, name), "verification": Ratio(), "tree": BRANCHES}
    assert lantern.check_law(**own).lossless
    monkeypatch.undo()
    sys.path.insert(0, str(parts.__file__).rpartition("/")[0])
    monkeypatch.setattr(certificate, "LONG_SIZES", ())
    assert not lantern.check_law(**own).lossless


def test_a_certificate_ends_with_lanterns_code_and_with_torch(parts, monkeypatch):
    """K of the audit."""
    lantern.check_law(rule=parts.InTensor(1.0), verification=Ratio(), tree=BRANCHES)
    assert guarantee(parts.InTensor(1.0)).lossless
    monkeypatch.setattr(torch, "__version__", "0.1")
    assert "with torch" in guarantee(parts.InTensor(1.0)).reason
