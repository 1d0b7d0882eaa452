"""What a round does on a device that is not the processor, without one at hand: see pretend_device.py."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_a_round_mixes_no_devices_and_waits_for_its_device_once():
    """Catches a tensor left on the processor, and a value read from the device beside the accepted paths. Ratio
    verification asks once more for every child it judges, of whom there are two here, and when none is left."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, str(Path(__file__).with_name("pretend_device.py"))]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    waits = json.loads(made.stdout)
    assert {name: count for name, count in waits.items() if count == 1}.keys() == {
        *("plain decoding", "static", "eagle2", "parallel", "jacobi", "sjd_pac"),
        *("eagle_jacobi", "refined_jacobi", "branching_jacobi", "refined_branches", "refined_jacobi, lantern_pp"),
    }
    assert waits["static, ratio"] == waits["eagle2, ratio, lantern"] == waits["jacobi, ratio"] == 4
