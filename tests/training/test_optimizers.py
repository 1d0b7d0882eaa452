import pytest
import torch
from torch import nn

from lantern.training import optimizers
from lantern.training.optimizers import ChainedOptimizer, Muon, matrices, muon_with_adamw, orthogonalise

SHAPES = [(6, 9), (9, 6), (7, 7)]
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315), 5, 1e-7  # Jordan's coefficients, steps and least norm


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x).tanh()
        return x.square().mean()


def trained(optimizer_of, steps: int, reload_at: int | None = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    body = Body()
    optimizer = optimizer_of(body)
    for step in range(steps):
        if step == reload_at:
            state = optimizer.state_dict()
            optimizer = optimizer_of(body)
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        body(torch.arange(5)).backward()
        optimizer.step()
    return [weight.detach() for weight in body.parameters()]


def combined(body: Body) -> ChainedOptimizer:
    return muon_with_adamw(body, matrices(body.layers), lr=1e-2, muon_lr=1e-2, weight_decay=0.1)


def test_a_reloaded_optimizer_continues_bit_by_bit():
    """Catches parts that keep their state or groups from before loading."""
    assert all(map(torch.equal, trained(combined, 5), trained(combined, 5, reload_at=3)))


def test_a_run_goes_on_with_the_rates_it_is_given():
    """Catches rates of the checkpoint in place of those that the run's files name."""
    former = combined(Body())
    for group in former.param_groups:
        group["initial_lr"] = group["lr"]  # the schedule's
    body = Body()
    optimizer = muon_with_adamw(body, matrices(body.layers), lr=3e-3, muon_lr=4e-3, weight_decay=0.5)
    optimizer.load_state_dict(former.state_dict())
    found = [tuple(group[key] for key in ("lr", "initial_lr", "weight_decay")) for group in optimizer.param_groups]
    assert found == [(4e-3, 4e-3, 0.5), (3e-3, 3e-3, 0.0)]
    assert [part.param_groups[0]["lr"] for part in optimizer.parts] == [4e-3, 3e-3]


def test_every_parameter_belongs_to_exactly_one_group_and_hidden_matrices_to_muon():
    body = Body()
    optimizer = combined(body)
    grouped = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, body.parameters()))
    assert {id(w) for w in optimizer.parts[0].param_groups[0]["params"]} == {id(layer.weight) for layer in body.layers}


def stepped(make) -> list[torch.Tensor]:
    """Matrices after four steps along random gradients."""
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    optimizer = make(weights)
    for _ in range(4):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        optimizer.step()
    return [weight.detach() for weight in weights]


def test_muon_is_that_of_torch_where_bfloat16_is_fast(monkeypatch):
    monkeypatch.setattr(optimizers, "is_bf16_fast", lambda device: True)
    ours = stepped(lambda weights: Muon(weights, 1e-2, 0.1))
    theirs = stepped(lambda weights: torch.optim.Muon(weights, 1e-2, 0.1, adjust_lr_fn="match_rms_adamw"))
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonalised_keeps_the_singular_vectors_and_levels_the_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    x, share = values / values.norm(), NEWTON_SCHULZ[0]
    for _ in range(NEWTON_SCHULZ[1]):  # the same polynomial of each singular value
        x = share[0] * x + share[1] * x**3 + share[2] * x**5
    torch.testing.assert_close(orthogonalise(matrix, *NEWTON_SCHULZ), left @ x.diag() @ right)
    assert x.min() > 0.5
    assert x.max() < 1.3
