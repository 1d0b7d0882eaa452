"""Whether a target's pass over a tree says of each node what passes over single tokens say of the same prefix."""

import torch
from torch import Tensor

from lantern.trees.static import StaticTree
from lantern.types import Target, TreeTopology, Verdict

TREE = StaticTree([[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]])
PATH = (0, 1, 3)  # of the first tree's nodes, committed before the second tree


@torch.inference_mode()
def pass_deviation(target: Target, prompt: str) -> tuple[float, str]:
    """The largest total variation between the laws of a node, over two rounds of random tokens; 0 for what may be
    rounding. And how it was found."""
    device, size = target.codebook.device, TREE.num_nodes
    rounds = torch.randint(target.vocab_size, (2, size), generator=torch.Generator().manual_seed(0)).to(device)
    order = [(), *TREE.paths]
    topology = TreeTopology.of((-1, *(order.index(path[:-1]) for path in TREE.paths)), device)
    path, accepted = torch.tensor([PATH], device=device), torch.tensor([len(PATH) - 1], device=device)
    found = []
    _begin(target, prompt)
    for tokens in rounds:
        found.append(target.verify(topology.tree(tokens[None])).logits.float().softmax(-1)[0])
        target.commit(Verdict(path, accepted, rounds[1, :1]))
    first, second = rounds.tolist()
    worst, before = 0.0, [first[node] for node in PATH]
    for laws, tokens, committed in zip(found, (first, second), ([], before), strict=True):
        for node in range(size):
            steps = [tokens[step] for step in topology.paths[node].tolist() if step >= 0]
            alone = _law_behind(target, prompt, [*committed, *steps])
            worst = max(worst, float((laws[node] - alone).abs().sum().nan_to_num(2.0)) / 2)
    bound = torch.finfo(target.embed_weight.dtype).eps ** 0.5
    told = f"of {2 * size} nodes compared with single passes: {worst:.1g} of a law apart at most"
    return (worst if worst > bound else 0.0), f"{told}, up to {bound:.1g} counts as rounding"


def _begin(target: Target, prompt: str) -> None:
    target.allocate(1, TREE.num_nodes)
    target.prefill([prompt], torch.zeros(1, dtype=torch.long, device=target.codebook.device))


def _law_behind(target: Target, prompt: str, tokens: list[int]) -> Tensor:
    """[V] behind these tokens, read one by one."""
    device = target.codebook.device
    _begin(target, prompt)
    root = TreeTopology.chain(0, device)
    for place, token in enumerate(tokens):
        law = target.verify(root.tree(torch.tensor([[token]], device=device))).logits.float().softmax(-1)[0, 0]
        if place + 1 < len(tokens):
            zero = torch.zeros(1, 1, dtype=torch.long, device=device)
            target.commit(Verdict(zero, zero[0], torch.tensor([tokens[place + 1]], device=device)))
    return law
