"""What a round does on a device that is not the processor, without one at hand: see pretend_device.py."""

import json
import os
import subprocess
import sys

import torch
from support.paths import ROOT, SUPPORT, TESTS
from support.pretend_device import Host
from torch._subclasses.fake_tensor import FakeTensorMode


def test_indices_of_the_processor_and_copies_to_it_are_waits():
    """Catches a simulated device that sees neither, where a real one uploads or waits."""
    here = torch.tensor([0, 2])
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, Host(0) as host:
        there = fake.from_tensor(torch.zeros(4, 3))
        for count, operation in enumerate((
            lambda: there * 2 + torch.tensor(1.0),  # a number travels with the launch
            lambda: there[here],
            lambda: there.index_put_((here,), there[0]),
            lambda: there[0].copy_(torch.ones(3)),
            lambda: there.to(torch.device("cpu"), torch.float64),
        )):  # fmt: skip
            operation()
            assert host.waits == count


def test_a_round_mixes_no_devices_waits_for_its_device_once_and_launches_few_kernels():
    """Catches a tensor left on the processor, and a value read from the device beside the accepted paths, whatever
    judges. Trees whose growth may end early ask whether it has: that saves them drafter forwards. Catches masks, laws,
    picks and drafters' forwards that are launched kernel by kernel where passes are recorded."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{TESTS}"}
    command = [sys.executable, str(SUPPORT / "pretend_device.py")]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    found = json.loads(made.stdout)
    assert {name for name, (waits, _, _) in found.items() if waits != 1} == {"adaptive", "ddd", "sampled, ratio"}
    assert len(found) == 19
    launches = {name: (recorded, eager) for name, (_, recorded, eager) in found.items() if eager}
    assert len(launches) == 6
    assert all(recorded < eager / 2 for recorded, eager in launches.values()), launches
    assert launches["plain decoding"][0] <= 31
    assert launches["refined_jacobi"][0] <= 62
