import torch
from torch import nn

from lantern.training.optimizers import Together, matrices, muon_with_adamw


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


def combined(body: Body) -> Together:
    return muon_with_adamw(body, matrices(body.layers), lr=1e-2, muon_lr=1e-2, weight_decay=0.1)


def test_together_is_its_parts_stepped_one_after_the_other():
    class Apart:
        def __init__(self, body):
            self.parts = combined(body).parts

        def zero_grad(self):
            [part.zero_grad() for part in self.parts]

        def step(self):
            [part.step() for part in self.parts]

    for a, b in zip(trained(combined, 4), trained(Apart, 4), strict=True):
        assert torch.equal(a, b)


def test_a_reloaded_optimizer_continues_bit_by_bit():
    """Catches parts that keep their state or groups from before loading."""
    for a, b in zip(trained(combined, 5), trained(combined, 5, reload_at=3), strict=True):
        assert torch.equal(a, b)


def test_every_parameter_belongs_to_exactly_one_group_and_hidden_matrices_to_muon():
    body = Body()
    optimizer = combined(body)
    grouped = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, body.parameters()))
    assert {id(w) for w in optimizer.parts[0].param_groups[0]["params"]} == {id(layer.weight) for layer in body.layers}


def test_a_changed_rate_reaches_the_parts():
    optimizer = combined(Body())
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    assert all(group["lr"] == 0 for part in optimizer.parts for group in part.param_groups)
