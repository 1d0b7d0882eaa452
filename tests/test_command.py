"""How the entry points fail: one sentence, and a traceback only for what no user can mend."""

import pytest
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

from lantern.command import WritableFolder, in_one_sentence
from lantern.errors import LanternError


def test_errors_the_user_can_act_on_lose_their_traceback_and_others_keep_it():
    def raises(error):
        def task(cfg):
            raise error

        return in_one_sentence(task)

    with pytest.raises(CompactHydraException, match="error: too many"):
        raises(LanternError("too many"))(OmegaConf.create())
    with pytest.raises(ZeroDivisionError):
        raises(ZeroDivisionError())(OmegaConf.create())


def test_an_unwritable_run_folder_ends_the_program_in_one_sentence(tmp_path):
    (tmp_path / "taken").write_text("")
    cfg = OmegaConf.create({"hydra": {"run": {"dir": str(tmp_path / "taken" / "run")}}})
    with pytest.raises(SystemExit, match="cannot write"):
        WritableFolder().on_run_start(cfg)
