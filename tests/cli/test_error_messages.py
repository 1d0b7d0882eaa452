"""How the entry points fail: one sentence, and a traceback only for what no user can fix."""

import errno
import os
import re
import subprocess
import sys
from weakref import ref

import pytest
from hydra._internal import utils as hydra_utils
from hydra.errors import CompactHydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.commands import python, refusal, trainings_here
from support.paths import ROOT

import lantern.metrics
from lantern.cli.error_messages import in_one_sentence, user_error, without_hints
from lantern.errors import LanternError


@pytest.mark.parametrize(("error", "kind"), [
    (LanternError("too many"), CompactHydraException), (ZeroDivisionError("too many"), ZeroDivisionError),
])  # fmt: skip
def test_an_exception_is_a_sentence_where_it_can_be_and_holds_no_model(error, kind):
    """Catches the model of a failed point in memory until the sweep ends, as long as Hydra keeps the exception."""
    held = []

    class Model: ...

    def task(cfg):
        model = Model()
        held.append(ref(model))
        try:
            raise KeyError
        except KeyError:
            raise error from None

    with pytest.raises(kind, match="too many") as kept:
        in_one_sentence(task)(OmegaConf.create())
    assert kept.value is not None
    assert held[0]() is None


@pytest.mark.parametrize(("name", "sentence"), [
    ("no_such_parts.Boost", "no_such_parts.Boost cannot be imported (ModuleNotFoundError: No module named 'no_s"),
    ("my_broken_parts.Boost", "my_broken_parts.Boost cannot be imported (ModuleNotFoundError: No module named 'no_s"),
    ("lantern.errors.Boost", "lantern.errors.Boost cannot be imported (ModuleNotFoundError: No module named 'lantern."),
])  # fmt: skip
def test_a_part_of_ones_own_that_cannot_be_imported_is_one_sentence(name, sentence, tmp_path, monkeypatch):
    """Catches "Error locating target", which does not say how a folder is made known, or what failed in it."""
    (tmp_path / "my_broken_parts.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    for part in ({"_target_": name}, {"_target_": "hydra.utils.get_method", "path": name}):
        with pytest.raises(CompactHydraException) as caught:
            in_one_sentence(lambda cfg: instantiate(cfg))(OmegaConf.create({"acceptance": part}))
        assert str(caught.value).startswith(f"error: {sentence}")


def test_a_metric_whose_extra_is_not_installed_names_it(monkeypatch):
    """Catches advice to mend a module of Lantern's own, where a package is missing."""
    for name in [name for name in sys.modules if name.startswith(("torch_fidelity.", "lantern.metrics.inception"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    monkeypatch.delattr(lantern.metrics, "inception", raising=False)  # imported by another test
    with pytest.raises(CompactHydraException, match=re.escape("pip install '.[metrics]'")):
        in_one_sentence(instantiate)(OmegaConf.create({"_target_": "lantern.metrics.inception.load_inception"}))


def ended(script: str, *settings: str, **variables: str) -> list[str]:
    """The lines on stderr of a command that fails, but those of a busy machine, on which libraries load for seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "HYDRA_FULL_ERROR"} | variables
    command = [sys.executable, str(ROOT / script), *settings]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    return [line for line in done.stderr.strip().splitlines() if not line.startswith("starting: ")]


def test_a_command_ends_with_its_sentence(tmp_path):
    """Catches Hydra's overrides above a sentence that says all, its advice about HYDRA_FULL_ERROR, and tracebacks."""
    for wrong, said in {"acceptance": "error: a config group that is set to null", "seed": "error: seed="}.items():
        (line,) = ended("evaluate.py", f"hydra.run.dir={tmp_path}", f"{wrong}=null")
        assert line.startswith(said)


@pytest.mark.full
@pytest.mark.parametrize(("script", "settings", "named"), [
    ("evaluate.py", "sampling.temperature=hot", "sampling.temperature=hot"),
    ("train.py", "trainer.max_time=5", "trainer.max_time=5"),
    ("evaluate.py", "dry_run=true prompts=['${x}']", "Interpolation key 'x'"),
    ("evaluate.py", "tree.lenght=3", "tree.lenght is unknown to tree, which takes name, paths; leave"),
    ("evaluate.py", "quality.num_image=0", "which takes num_images; did you mean num_images? Else leave it out"),
    ("evaluate.py", "sed=3", "sed is unknown to this command; did you mean seed? Else see"),
    ("evaluate.py", "+metod=jacobi", "nothing reads; did you mean method? Else see evaluate.py --help"),
    ("evaluate.py", "+method=jacoby", "'evaluate': method=jacoby is no option; did you mean jacobi? Else give one of "),
    ("train.py", "drafter=eagel", "drafter=eagel is no option; did you mean eagle? Else give one of corrected_"),
    ("train.py", "drafter=jacobi", "; give one of eagle; a window's network is trained by task=window"),
    ("export.py", "to=x model=lamagen", "model=lamagen is no option; did you mean llamagen? Else give one of anole, "),
    ("evaluate.py", "hydra/sweeper=optuna", "install it by pip install '.[optuna]'"),
    ("train.py", "+batch_size=16", "+batch_size=16"), ("train.py", "drafter.checkpoint=head", "drafter.checkpoint"),
    ("export.py", "to=none drafter=jacobi", "drafter=jacobi"), ("export.py", "to=", "to="),
])  # fmt: skip
def test_what_a_command_cannot_use_is_named(script, settings, named, tmp_path, monkeypatch):
    with trainings_here(monkeypatch):
        said = refusal(monkeypatch, script, f"hydra.run.dir={tmp_path}", *settings.split())
    assert said.startswith("error: ")
    assert named in said


@pytest.mark.parametrize(("code", "is_known"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_disk_that_is_full_while_hydra_writes_its_files_is_one_sentence(code, is_known, monkeypatch):
    """Catches a traceback of Hydra's .hydra/config.yaml, which it writes before the command's own code begins."""
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def command():
        def save():
            raise OSError(code, os.strerror(code), "run/.hydra/config.yaml")

        return hydra_utils.run_and_report(save)

    with pytest.raises(SystemExit) as caught:
        without_hints(command)()
    assert (caught.value.code != 1) == is_known
    if is_known:
        assert str(caught.value).startswith("error: cannot write run/.hydra/config.yaml (")
    wrapped = RuntimeError("by a library")
    wrapped.__cause__ = OSError(code, os.strerror(code), "latest.ckpt")
    assert ("cannot write latest.ckpt (" in str(user_error(wrapped))) == is_known


@pytest.mark.full
def test_the_traceback_is_shown_on_request(tmp_path):
    """Catches an error that cannot be traced any more."""
    lines = ended("evaluate.py", f"hydra.run.dir={tmp_path}", "speed.num_prompts=-1", HYDRA_FULL_ERROR="1")
    assert any(line.startswith("Traceback") for line in lines)
    assert "speed.num_prompts=-1" in lines[-1]


def test_ctrl_c_while_libraries_are_loaded_is_one_line():
    """Catches a traceback through torch, and other errors that lose theirs."""
    lines = {}
    for error in ("KeyboardInterrupt", "ZeroDivisionError"):
        code = f"from lantern.cli.error_messages import prepare_process\nprepare_process()\nraise {error}"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        lines[error] = done.stderr.splitlines()
    assert lines["KeyboardInterrupt"] == ["ended by Ctrl-C"]
    assert lines["ZeroDivisionError"][0].startswith("Traceback")


def test_a_terminal_of_ascii_does_not_end_a_finished_run():
    code = "from lantern.cli import error_messages as e\ne.without_hints(lambda: print('λ = 2'))()\nprint('saved')"
    assert python("-c", code, PYTHONIOENCODING="ascii").stdout.splitlines() == ["? = 2", "saved"]
