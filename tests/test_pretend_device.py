"""What a round does on a device that is not the processor, without one at hand: see pretend_device.py."""

import json
import os
import subprocess
import sys

from support.paths import ROOT, SUPPORT, TESTS


def test_a_round_mixes_no_devices_and_waits_for_its_device_once():
    """Catches a tensor left on the processor, and a value read from the device beside the accepted paths, whatever
    judges. Trees whose growth may end early ask whether it has: that saves them drafter forwards."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{TESTS}"}
    command = [sys.executable, str(SUPPORT / "pretend_device.py")]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    waits = json.loads(made.stdout)
    assert {name for name, count in waits.items() if count != 1} == {"adaptive", "ddd", "sampled, ratio"}
    assert len(waits) == 20
