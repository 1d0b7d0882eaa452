"""Rounds on a device that is not there. Tensors on it have shapes and no values, so that an operation which mixes it
with the processor fails, and so that whoever reads a value from it is counted. Prints how many times each method waits
for it in a round, and how many kernels and graphs it launches there, with and without graphs, as JSON."""

import json
from functools import cached_property, partial
from itertools import cycle

import torch
from support.toy import DIM, tiny_eagle, tiny_target
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from lantern import decoding
from lantern.acceptance.exact import Exact
from lantern.acceptance.lantern import Lantern
from lantern.acceptance.lantern_pp import LanternPP
from lantern.acceptance.transport import Transport
from lantern.acceptance.tv_budget import TvBudget
from lantern.decoding import DecodingSetup
from lantern.drafters.eagle.eagle import Eagle
from lantern.drafters.eagle.network import ParallelNetwork
from lantern.drafters.jacobi.branches import BranchingJacobi
from lantern.drafters.jacobi.jacobi import Jacobi
from lantern.drafters.jacobi.jacobi import redraw_coupled as coupled
from lantern.drafters.jacobi.proactive import ProactiveJacobi
from lantern.drafters.jacobi.refined import RefinedJacobi
from lantern.drafters.jacobi.starts import Nearest
from lantern.drafters.none import NoDrafter
from lantern.drafters.parallel import Parallel
from lantern.models import graphs
from lantern.models.graphs import PassGraphs, Recording
from lantern.models.llamagen.target import LlamaGenTarget
from lantern.sampling import Sampling
from lantern.trees.adaptive import AdaptiveTree
from lantern.trees.ddd import DDDTree
from lantern.trees.eagle2 import Eagle2Tree
from lantern.trees.sampled import SampledTree
from lantern.trees.static import StaticTree, chain
from lantern.types import Verdict
from lantern.verification import Ratio, SharedLaw, SharedNoise
from lantern.verification.block import Block

DEVICE = "pretend"
SAMPLING, STATIC, DYNAMIC = Sampling(), StaticTree([[0], [1], [0, 0]], name="static"), Eagle2Tree(4, 2, 2)
CHAIN, ADAPTIVE = chain(2), AdaptiveTree(4, 2, 2, 2)
GROWN, SAMPLED = DDDTree(4, 2, 2, -1.0, [1]), SampledTree(4, 2, 2, 2, 0.1)
READS = [getattr(torch.ops.aten, name).default for name in ("_local_scalar_dense", "item", "is_nonzero")]
GOES_ON = [True, True, False]  # what is told to whoever asks whether to go on
NO_KERNEL = {"empty", "empty_strided", "new_empty", "empty_like", "lift_fresh"}
SIZES = {"adaptive": 2, "sampled, ratio": 2}  # and to those who ask how large a tree has grown


class Host(TorchDispatchMode):
    """What has no tensor of the device is the processor's own work; values asked of the device are made up."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.waits, self.launches, self._answers, self._size = 0, 0, cycle(GOES_ON), size

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs or {}))
        if operation in READS and isinstance(args[0], FakeTensor):
            self.waits += 1
            return next(self._answers) if args[0].dtype == torch.bool else self._size
        if any(isinstance(leaf, FakeTensor) for leaf in leaves):
            self.waits += crosses(leaves)
            self.launches += has_kernel(operation)
            return operation(*args, **(kwargs or {}))
        if not any(isinstance(leaf, torch.device) and leaf.type == DEVICE for leaf in leaves):
            with _disable_current_modes():
                return operation(*args, **(kwargs or {}))
        if args and isinstance(args[0], Tensor):  # moved there, which waits for all that was asked of the device before
            self.waits += 1
            dtype = next((leaf for leaf in leaves if isinstance(leaf, torch.dtype)), args[0].dtype)
            return torch.empty(args[0].shape, dtype=dtype, device=DEVICE)
        self.launches += has_kernel(operation)
        return operation(*args, **(kwargs or {}))


def crosses(leaves: list) -> bool:
    """Whether an operation on the device also has values of the processor, such as indices, or makes such values."""
    there = [isinstance(leaf, Tensor) and leaf.dim() > 0 and not isinstance(leaf, FakeTensor) for leaf in leaves]
    return any(there) or any(isinstance(leaf, torch.device) and leaf.type == "cpu" for leaf in leaves)


def has_kernel(operation: torch._ops.OpOverload) -> bool:
    is_kernel = operation.namespace == "aten" and not operation.is_view
    return is_kernel and operation.overloadpacket.__name__ not in NO_KERNEL


def made_there(data, *, device=None, make=torch.tensor, **others) -> Tensor:
    """torch.tensor, which knows no pretended device. What is uploaded can be told without asking."""
    here = make(data, **others)
    if device is None or torch.device(device).type == "cpu":
        return here
    there = here.to(device)
    there.tolist = lambda: data
    return there


def moved(module: nn.Module) -> nn.Module:
    for part in module.modules():
        for kept in (part._parameters, part._buffers):
            for name, old in kept.items():
                if old is not None:
                    new = torch.empty(old.shape, dtype=old.dtype, device=DEVICE)
                    kept[name] = nn.Parameter(new, requires_grad=False) if kept is part._parameters else new
    return module


class PretendGraphs(PassGraphs):
    """Recordings without values, made at the first meeting; a replay is one launch."""

    def __init__(self, host: Host) -> None:
        super().__init__(lambda run: lambda: None)
        self._host = host

    def _recorded(self, record, run, inputs, result) -> Recording:
        return Recording(self._like("read", inputs), self._launch, self._like("written", result))

    def _launch(self) -> None:
        self._host.launches += 1


def moved_target(target: LlamaGenTarget, host: Host) -> LlamaGenTarget:
    target.tokenizer.codebook = target.tokenizer.codebook.to(DEVICE)
    there = LlamaGenTarget(moved(target.transformer), target.conditioner, target.tokenizer)
    there.graphs = PretendGraphs(host)
    return there


def counts(
    target: LlamaGenTarget, network: nn.Module, heads: nn.Module, make, verification, rule, size: int, has_graphs: bool
) -> tuple[float, float]:
    """Waits and launches of a round, the first of which is not counted: forms and tables come to the device in it."""
    rule = rule(target.codebook)
    with FakeTensorMode(allow_non_fake_inputs=True), Host(size) as host, torch.inference_mode():
        target = moved_target(target, host)
        target = target if has_graphs else target.launched()
        drafter = make(target, moved(network), moved(heads))
        for name, kept in vars(rule).items():
            setattr(rule, name, kept.to(DEVICE) if isinstance(kept, Tensor) else kept)
        batch = decoding._Batch(DecodingSetup(target, drafter, verification, rule, SAMPLING), 3)
        batch.admit([0, 1, 2], [0, 1, 2], ["a", "b c", "d"], [1, 2, 3])
        batch.step()
        host.waits = host.launches = 0
        for _ in range(4):
            batch.step()
        counted = host.waits / 4, host.launches / 4
        batch.images[0] = -1
        batch.shrink()
        batch.step()
        return counted


def paths(verdict: Verdict) -> list[list[int]]:
    torch.empty(1, device=DEVICE).item()  # which counts it
    return [[0, 1] if row else [0] for row in range(len(verdict.path))]


LAUNCHED = ["plain decoding", "static", "eagle2", "parallel", "jacobi", "refined_jacobi"]  # without graphs, too


def exact(codebook: Tensor) -> Exact:
    return Exact()


def budget(codebook: Tensor) -> TvBudget:
    return TvBudget(0.2)


METHODS = {
    "plain decoding": (lambda target, eagle, heads: NoDrafter(), SharedNoise(), exact),
    "static": (lambda target, eagle, heads: Eagle(eagle, target, STATIC, SAMPLING), SharedNoise(), exact),
    "eagle2": (lambda target, eagle, heads: Eagle(eagle, target, DYNAMIC, SAMPLING), SharedNoise(), exact),
    "parallel": (lambda target, eagle, heads: Parallel(heads, target, STATIC, SAMPLING), SharedNoise(), exact),
    "jacobi": (lambda target, eagle, heads: Jacobi(target, 4, Nearest(), coupled, SAMPLING), SharedNoise(), exact),
    "sjd_pac": (
        lambda target, eagle, heads: ProactiveJacobi(target, 4, 2, 2, Nearest(), coupled, SAMPLING),
        SharedNoise(),
        exact,
    ),
    "refined_jacobi": (
        lambda target, eagle, heads: RefinedJacobi(eagle, target, SAMPLING, 4, 2, 0.75), SharedNoise(), exact,
    ),
    "branching_jacobi": (
        lambda target, eagle, heads: BranchingJacobi(target, 4, 5, Nearest(), coupled, SAMPLING), SharedNoise(), exact,
    ),
    "refined_branches": (
        lambda target, eagle, heads: RefinedJacobi(eagle, target, SAMPLING, 4, 1, 0.75, 5), SharedNoise(), exact,
    ),
    "refined_jacobi, lantern_pp": (
        lambda target, eagle, heads: RefinedJacobi(eagle, target, SAMPLING, 4, 2, 0.75),
        SharedNoise(),
        partial(LanternPP, k=3, lam=2.0),
    ),
    "jacobi, ratio": (lambda target, eagle, heads: Jacobi(target, 4, Nearest(), coupled, SAMPLING), Ratio(), exact),
    "static, ratio": (lambda target, eagle, heads: Eagle(eagle, target, STATIC, SAMPLING), Ratio(), exact),
    "static, ratio, tv_budget": (
        lambda target, eagle, heads: Eagle(eagle, target, STATIC, SAMPLING), Ratio(), budget,
    ),
    "static, shared law": (
        lambda target, eagle, heads: Eagle(eagle, target, STATIC, SAMPLING), SharedLaw(), budget,
    ),
    "chain, block, transport": (
        lambda target, eagle, heads: Eagle(eagle, target, CHAIN, SAMPLING), Block(), partial(Transport, k=3, eps=0.2),
    ),
    "adaptive": (lambda target, eagle, heads: Eagle(eagle, target, ADAPTIVE, SAMPLING), SharedNoise(), exact),
    "ddd": (lambda target, eagle, heads: Eagle(eagle, target, GROWN, SAMPLING), SharedNoise(), exact),
    "sampled, ratio": (lambda target, eagle, heads: Eagle(eagle, target, SAMPLED, SAMPLING), Ratio(), exact),
    "eagle2, ratio, lantern": (
        lambda target, eagle, heads: Eagle(eagle, target, DYNAMIC, SAMPLING),
        Ratio(),
        partial(Lantern, k=3, delta=0.1),
    ),
}  # fmt: skip


def main() -> None:
    _setup_privateuseone_for_python_backend(DEVICE)
    torch.random.fork_rng = partial(torch.random.fork_rng, devices=[])
    graphs.MIN_PASSES = 1
    torch.tensor, Verdict.paths = made_there, cached_property(paths)
    Verdict.paths.__set_name__(Verdict, "paths")
    found = {}
    for name, (make, verification, rule) in METHODS.items():
        target = tiny_target(dtype=torch.bfloat16)
        eagle = tiny_eagle(target, STATIC, SAMPLING).network
        heads = ParallelNetwork(DIM, 2, 64, 3)
        given = target, eagle, heads, make, verification, rule, SIZES.get(name, 0)
        found[name] = [*counts(*given, True), counts(*given, False)[1] if name in LAUNCHED else None]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
