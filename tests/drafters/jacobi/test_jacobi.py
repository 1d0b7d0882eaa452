"""Jacobi windows: what is decoded stays plain decoding's, whatever is guessed."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from support.toy import CODES, PROMPTS, decode, plain_tokens, random_verdict, tiny_target

from lantern.drafters.jacobi.jacobi import Jacobi, cut_chain, redraw, redraw_coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.starts import Left, Nearest, Uniform
from lantern.drafters.jacobi.window import Unread, stale_nodes
from lantern.errors import LanternError
from lantern.sampling import Sampling
from lantern.types import PADDING, DraftTree, TreeTopology
from lantern.verification import Ratio, SharedNoise

STARTS = {"nearest": Nearest(), "uniform": Uniform(), "left": Left()}
SAMPLINGS = [pytest.param(Sampling(), id="sampled"), pytest.param(Sampling(0.0), id="greedy")]
SAMPLINGS += [pytest.param(Sampling(top_k=5), id="top_k")]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_window_decodes_the_tokens_of_plain_decoding(sampling, start):
    """Catches guesses at the wrong position, laws of another row, windows that run past the image."""
    target = tiny_target()
    found = decode(target, Jacobi(target, 6, STARTS[start], redraw_coupled, sampling), sampling, 3)
    assert torch.equal(found.tokens, plain_tokens(sampling))
    assert found.drafter_forwards == 0
    if sampling == Sampling():
        assert found.tokens_per_step > 2


@pytest.mark.parametrize("start", STARTS)
def test_a_start_guesses_what_it_is_named_for(start):
    """Against lists, since verification hides a wrong guess. Row 0 has no law of its own position."""
    width, codes, generator = 5, 7, torch.Generator().manual_seed(0)
    laws = torch.rand(3, width, codes, generator=generator)
    seen, last = torch.tensor([0, 2, 3]), torch.tensor([4, 0, 6])
    found = STARTS[start](Unread(laws, seen, last))
    for row in range(3):
        for offset in range(width):
            wanted = laws[row, offset]
            if offset >= seen[row] and start == "uniform":
                wanted = torch.full((codes,), 1 / codes)
            elif offset >= seen[row] and start == "left":
                wanted = torch.eye(codes)[last[row]]
            torch.testing.assert_close(found[row, offset], wanted)


@pytest.mark.parametrize("needs_draft_law", [True, False])
def test_a_start_is_given_the_newest_guess_or_else_the_root(needs_draft_law):
    """The slow twin writes down the token of every position of three images. Catches the guess of another position or
    row, or of a former image, and a guess where the pass has left none."""
    generator, given = torch.Generator().manual_seed(0), []
    draw, proposals = partial(torch.randint, generator=generator), SimpleNamespace(needs_draft_law=needs_draft_law)

    def start(unread):
        given.append(unread)
        return unread.laws

    target = SimpleNamespace(codebook=tiny_target().codebook, vocab_size=CODES)
    window = Jacobi(target, 4, start, lambda *_: draw(CODES, (len(images), 4)), Sampling())
    window.allocate(3)
    window.begin(SimpleNamespace(logits=torch.zeros(3, 1, CODES)), torch.arange(3))
    images, roots_at, read_to = [{}, {}, {}], [0, 0, 0], [0, 0, 0]
    for number in range(40):
        if number == 10:
            window.begin(SimpleNamespace(logits=torch.zeros(1, 1, CODES)), torch.tensor([1]))
            images[1], roots_at[1], read_to[1] = {}, 0, 0
        if number == 20:
            window.keep(torch.tensor([2, 0]))
            images, roots_at, read_to = ([kept[2], kept[0]] for kept in (images, roots_at, read_to))
        roots, tokens_left = draw(CODES, (len(images),)), draw(2, 7, (len(images),))
        guess = window.guess(roots, proposals)
        tree = cut_chain(tokens_left, torch.cat([roots[:, None], guess.tokens], 1))
        verdict = random_verdict(generator, tree)
        window.observe(tree, None, torch.rand(*tree.tokens.shape, CODES, generator=generator), verdict)
        for row, image in enumerate(images):
            image[roots_at[row]] = int(roots[row])
            assert int(given[-1].last[row]) == image[max(roots_at[row], read_to[row])]
            image |= {roots_at[row] + 1 + place: int(token) for place, token in enumerate(guess.tokens[row])}
            read_to[row] = roots_at[row] + int(tree.depths[row].max())
            roots_at[row] += int(verdict.num_committed[row])


@pytest.mark.parametrize(("levels", "width"), [(1, 5), (3, 2), (6, 3)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_window_with_runners_up_decodes_the_tokens_of_plain_decoding(sampling, levels, width):
    """Catches a runner-up under the wrong parent or past the image; it commits more than the window alone."""
    target = tiny_target()
    drafter = ProactiveJacobi(target, 6, levels, width, Nearest(), redraw_coupled, sampling)
    found = decode(target, drafter, sampling, 3)
    assert torch.equal(found.tokens, plain_tokens(sampling))
    alone = decode(target, Jacobi(target, 6, Nearest(), redraw_coupled, sampling), sampling, 3)
    assert found.steps.sum() < alone.steps.sum()


def test_runners_up_are_the_next_in_order_at_the_window_s_first_positions():
    """Catches the guess itself among them, scores of another position, and parents one level off."""
    target, sampling = tiny_target(), Sampling()
    drafter, seen = ProactiveJacobi(target, 5, 2, 3, Nearest(), redraw_coupled, sampling), []

    class Watched(SharedNoise):
        def __call__(self, tree, probs, rule, noise):
            if len(tree.tokens[0]) > 1:
                order = (drafter.laws * noise.noise_of_chain(5)).argsort(-1, descending=True)
                seen.append((tree.tokens, tree.parents, order))
            return super().__call__(tree, probs, rule, noise)

    decode(target, drafter, sampling, 1, Watched())
    for tokens, parents, order in seen:
        assert torch.equal(tokens[:, 1:6], order[:, :, 0])
        assert torch.equal(tokens[:, 6:], order[:, :2, 1:3].flatten(1))
        below = zip(parents[0, 6:].tolist(), [0, 0, 1, 1], strict=True)
        assert all(parent in (above, PADDING) for parent, above in below)
    assert len(seen) > 10


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, top_k=3)], ids=["plain", "top_k"])
def test_the_first_window_is_guessed_from_the_law_that_tokens_are_drawn_from(sampling):
    """Catches a first law without temperature and top-k, or rounded to another precision than those of later rounds."""
    target = tiny_target()
    drafter, seen = Jacobi(target, 4, Nearest(), redraw_coupled, sampling), []
    begin = drafter.begin

    def watched(prefill, rows):
        begin(prefill, rows)
        seen.append((drafter._laws[rows], sampling.law(prefill.logits)))

    drafter.begin = watched
    decode(target, drafter, sampling, 3, Ratio())
    assert sum(len(laws) for laws, _ in seen) == len(PROMPTS)
    for laws, expected in seen:
        assert laws.dtype == torch.float64
        assert torch.equal(laws, expected.expand_as(laws))


def test_coupling_keeps_more_than_drawing_anew():
    """Catches a coupling that never keeps anything; on this target it accepts clearly more."""
    target = tiny_target()
    together, apart = (
        decode(target, Jacobi(target, 6, Uniform(), redraw, Sampling()), Sampling(), 8, Ratio()).tokens_per_step
        for redraw in (redraw_coupled, redraw)
    )
    assert together > 1.1 * apart


def test_what_a_pass_leaves_behind_is_found_by_depth_and_shared_path():
    """The slow twin: for every depth behind the verdict's token, the node that shares most of the accepted path."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(30):
        parents = torch.stack([random_parents(generator) for _ in range(4)])
        tree = DraftTree(torch.zeros_like(parents), parents)
        verdict = random_verdict(generator, tree)
        nodes, seen = stale_nodes(tree, verdict, length=5)
        for row, accepted in enumerate(verdict.paths):
            expected = slow_stale_nodes(parents[row].tolist(), accepted)
            assert int(seen[row]) == min(len(expected), 5)
            assert nodes[row].tolist() == (expected + [expected[-1] if expected else accepted[-1]] * 5)[:5]


def random_parents(generator: torch.Generator) -> torch.Tensor:
    """[9] of a tree whose last nodes may be missing."""
    parents = torch.tensor([-1, *(int(torch.randint(node, (), generator=generator)) for node in range(1, 9))])
    return parents.masked_fill(torch.arange(9) > torch.randint(5, 9, (), generator=generator), PADDING)


def slow_stale_nodes(parents: list[int], accepted: list[int]) -> list[int]:
    def path(node):
        return [node] if node == 0 else [*path(parents[node]), node]

    found = []
    for depth in range(len(accepted), len(parents)):
        there = [n for n in range(len(parents)) if parents[n] != PADDING and len(path(n)) - 1 == depth]
        if not there:
            return found
        found.append(max(there, key=lambda n: (len(set(path(n)) & set(accepted)), -n)))
    return found


def test_a_window_that_cannot_be_drafted_is_one_clear_error():
    """Catches SJD's independent draws under shared noise, an empty window, and runners-up out of range."""
    target = tiny_target()
    with pytest.raises(LanternError, match="use drafter=jacobi, or verification=ratio"):
        decode(target, Jacobi(target, 4, Nearest(), redraw, Sampling()), Sampling(), 1)
    with pytest.raises(LanternError, match=r"drafter\.length=0"):
        Jacobi(target, 0, Nearest(), redraw_coupled, Sampling())
    for levels, width, said in ((0, 2, "levels=0"), (2, 1, "width=1")):
        with pytest.raises(LanternError, match=f"{said} is out of range"):
            ProactiveJacobi(target, 4, levels, width, Nearest(), redraw_coupled, Sampling())
    short = ProactiveJacobi(target, 2, 3, 2, Nearest(), redraw_coupled, Sampling())  # tree=auto may ask for any length
    assert (short.levels, short.num_nodes, short.tree.name) == (2, 5, "window_2+2x1")


@pytest.mark.parametrize("parents", [(-1, 0, 0, 1, 1, 3, 5, 6), tuple(range(-1, 7)), tuple(range(-1, 2)), (-1,)])
def test_a_chain_leaves_behind_what_any_tree_of_its_form_would(parents):
    """Catches a chain's shorter way where the chain is longer or shorter than the window, and its use on trees."""
    generator = torch.Generator().manual_seed(4)
    topology = TreeTopology.of(parents, torch.device("cpu"))
    tree = topology.tree(torch.zeros(6, len(parents), dtype=torch.long))
    for _ in range(5):
        verdict = random_verdict(generator, tree)
        expected = stale_nodes(DraftTree(tree.tokens, tree.parents), verdict, 5)
        assert all(torch.equal(*parts) for parts in zip(stale_nodes(tree, verdict, 5), expected, strict=True))
