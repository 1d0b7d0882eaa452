import json
import shlex

from support.made_sweep import record_overrides

from lantern.evaluation.rows import SUMMARY, setting_id
from lantern.reporting.page.commands import command_of, commands
from lantern.runtime.files import replace_text


def test_a_command_reads_back_as_the_recorded_overrides(tmp_path):
    """Catches quotes that a shell removes from a list of prompts."""
    overrides = ["+method=lantern", "prompts=['a blue ring', \"$HOME's\"]", "acceptance.delta=0.1"]
    record_overrides(tmp_path / "run", overrides, "RUN")
    assert shlex.split(command_of(tmp_path / "run")) == ["python", "evaluate.py", *overrides]


def test_a_point_of_a_sweep_is_run_alone(tmp_path):
    """Catches +sweep=delta starting the whole sweep again."""
    record_overrides(tmp_path / "3", ["+sweep=delta", "acceptance.delta=0.03"], "MULTIRUN")
    assert command_of(tmp_path / "3") == "python evaluate.py +sweep=delta acceptance.delta=0.03 hydra.mode=RUN"


def test_a_folder_of_yamls_is_part_of_the_command(tmp_path):
    record_overrides(tmp_path / "near", ["acceptance=mine"], "RUN", tmp_path / "my_conf")
    record_overrides(tmp_path / "far", ["acceptance=mine"], "RUN", tmp_path.parent / "my_conf")
    assert command_of(tmp_path / "near") == "python evaluate.py --config-dir my_conf acceptance=mine"
    assert command_of(tmp_path / "far").split()[3] == str(tmp_path.parent / "my_conf")


def test_commands_belong_to_settings_and_not_to_places(tmp_path):
    """A setting found by two points has the later one's command, a point without a record none."""
    shared, own = {"drafter": "none"}, [{"drafter": "eagle", "delta": delta} for delta in (0.1, 0.2, 0.3)]
    for number, row in enumerate(own):
        replace_text(tmp_path / str(number) / SUMMARY, json.dumps({"AR": shared, "method": row}))
    for number in (0, 1):
        record_overrides(tmp_path / str(number), [f"seed={number}"], "RUN")
    found = commands([tmp_path / str(number) for number in range(3)])
    ends = {key: command[-1] for key, command in found.items()}
    assert ends == {setting_id(shared): "1", setting_id(own[0]): "0", setting_id(own[1]): "1"}


def test_an_interpolation_stays_as_it_was_given(tmp_path):
    """Catches a report that ends, after everything was measured, at ${…}, which only the run's configuration has."""
    record_overrides(tmp_path, ["drafter.checkpoint=${paths.weights}/drafter"], "RUN")
    assert shlex.split(command_of(tmp_path))[2:] == ["drafter.checkpoint=${paths.weights}/drafter"]


def test_a_wheel_has_a_command_of_its_own(tmp_path, monkeypatch):
    """Catches evaluate.py where there is none."""
    monkeypatch.setattr("lantern.runtime.home.CHECKOUT", tmp_path)
    record_overrides(tmp_path / "run", ["seed=1"], "RUN")
    assert command_of(tmp_path / "run") == "lantern-evaluate seed=1"
