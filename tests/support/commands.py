"""The repository's commands in the process of the test, which saves the start of an interpreter and its libraries."""

import shlex
import sys
from runpy import run_module, run_path

import pytest
from support.paths import ROOT


def refusal(monkeypatch: pytest.MonkeyPatch, script: str, *overrides: str) -> str:
    """The sentence with which a command ends, which Python prints with a status of 1. Any other exception, which would
    be a traceback, passes through."""
    monkeypatch.setattr(sys, "argv", [script, *overrides, "hydra/job_logging=none"])
    with pytest.raises(SystemExit) as ended:
        run_path(str(ROOT / script), run_name="__main__")
    assert isinstance(ended.value.code, str)
    return ended.value.code


def module_refusal(monkeypatch: pytest.MonkeyPatch, module: str, *overrides: str) -> str:
    """The same of `python -m module`."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "argv", [module, *overrides, "hydra/job_logging=none"])
    with pytest.raises(SystemExit) as ended:
        run_module(module, run_name="__main__")
    assert isinstance(ended.value.code, str)
    return ended.value.code


def printed(said: str) -> list[str]:
    """The overrides of the evaluate command that train.py prints, as a shell splits them."""
    program, script, *overrides = shlex.split(said.rpartition("measure it with: ")[2].splitlines()[0])
    assert (program, script) == ("python", "evaluate.py")
    return overrides
