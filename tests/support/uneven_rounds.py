"""Rounds decoded by hand on the tiny target, with random verdicts, so that rows advance unevenly."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from support.toy import CODES, PROMPTS, ByLikelihood, random_verdict
from torch import Tensor

from lantern.models.llamagen.target import LlamaGenTarget
from lantern.models.llamagen.transformer import causal_mask
from lantern.types import Drafter, DraftTree, Forward, Verdict
from lantern.verification.shared_noise import SharedProposals


class Drafted(NamedTuple):
    """What a round drafted from."""

    prompts: list[str]
    committed: list[list[int]]  # tokens by row, the root last
    forwards: int  # of the drafter, for this draft


def uneven_rounds(target: LlamaGenTarget, drafter: Drafter, rotary: int) -> Iterator[Drafted]:
    """Drafts for three images, then yields, then goes on behind a random node. In turn 2 a row gets another image, in
    turn 3 a row leaves and the others change places."""
    generator = torch.Generator().manual_seed(0)
    prompts, rows = PROMPTS[:3], torch.arange(3)
    target.allocate(3, drafter.num_nodes)
    drafter.allocate(3)
    drafter.begin(target.prefill(prompts, rows), rows)
    committed = [[token] for token in torch.randint(CODES, (3,), generator=generator).tolist()]
    for turn in range(rotary):
        if turn == 2:
            drafter.begin(target.prefill(PROMPTS[4:5], torch.tensor([1])), torch.tensor([1]))
            prompts, committed[1] = [prompts[0], PROMPTS[4], prompts[2]], [7]
        if turn == 3:
            target.keep(torch.tensor([2, 1]))
            drafter.keep(torch.tensor([2, 1]))
            prompts, committed = [prompts[2], prompts[1]], [committed[2], committed[1]]
        roots = torch.tensor([tokens[-1] for tokens in committed])
        tokens_left = torch.tensor([target.num_tokens - len(tokens) for tokens in committed])
        before = drafter.forwards
        tree = drafter.draft(roots, tokens_left, ByLikelihood())
        yield Drafted(prompts, committed, drafter.forwards - before)
        forward, verdict = target.verify(tree), random_verdict(generator, tree)
        target.commit(verdict)
        drafter.observe(tree, forward, drafter.sampling.law(forward.logits), verdict)
        for row, accepted in enumerate(verdict.accepted.tolist()):
            committed[row] += tree.tokens[row, verdict.path[row, 1 : accepted + 1]].tolist()
            committed[row].append(int(verdict.next_token[row]))
    assert len({len(tokens) for tokens in committed}) > 1  # uneven


def target_features(target: LlamaGenTarget, prompt: str, tokens: list[int], layers: Sequence[int] = ()) -> Tensor:
    """[R, P + T, F] of the prefix and these tokens, without any cache; behind them the inputs of layers, each from the
    embeddings anew."""
    body, guidance = target.transformer, target.guidance
    condition, visible = target.conditioner([prompt] * guidance)
    prefix = body.cls_embedding(condition.to(body.output.weight.dtype), torch.arange(guidance).bool())
    x = torch.cat([prefix, target.embed(torch.tensor([tokens] * guidance, dtype=torch.long))], dim=1)
    rotation, mask = body.rotation[None, : x.shape[1]], causal_mask(visible, x.shape[1])
    parts = [body.body(x, rotation, mask)]
    for layer in layers:
        rows = x
        for block in body.layers[:layer]:
            rows = block(rows, rotation, mask)
        parts.append(rows)
    return torch.cat(parts, dim=-1)


class Likeliest(SharedProposals):
    """Proposals without noise."""

    def pick(self, laws: Tensor) -> Tensor:
        return laws.argmax(-1)


def judge_at_random(
    target: LlamaGenTarget, drafter: Drafter, tree: DraftTree, generator: torch.Generator, some_stand: bool
) -> tuple[Forward, Verdict]:
    """A round behind a drafted window: a random path is accepted, with random picks. some_stand: of the guesses, as the
    pass has read them."""
    forward, verdict = target.verify(tree), random_verdict(generator, tree)
    picks = torch.randint(CODES, tree.tokens.shape, generator=generator)
    if some_stand:
        picks[:, 1:-1:2] = tree.tokens[:, 2::2]
    verdict = replace(verdict, picks=picks)
    target.commit(verdict)
    drafter.observe(tree, forward, drafter.sampling.law(forward.logits), verdict)
    return forward, verdict
