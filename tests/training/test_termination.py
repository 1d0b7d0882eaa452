"""SIGTERM during a training's preparation and during its steps, against a real Trainer."""

import os
import signal

import pytest
import pytorch_lightning as pl
import torch

from lantern.training.termination import STATUS, PromptEnd


class Module(pl.LightningModule):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.layer, self.at, self.steps, self.went_on = torch.nn.Linear(1, 1), at, 0, False

    def train_dataloader(self):
        if self.at == "preparation":
            os.kill(os.getpid(), signal.SIGTERM)
            self.went_on = True
        return torch.utils.data.DataLoader(torch.ones(8, 1))

    def training_step(self, batch):
        self.steps += 1
        if self.at == "step" and self.steps == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize(("at", "steps", "said"), [
    ("preparation", 0, "error: ended by SIGTERM; started again"), ("step", 2, "error: ended by SIGTERM after step 2;"),
])  # fmt: skip
def test_the_signal_ends_a_training_promptly_with_a_status(at, steps, said, tmp_path, capsys):
    """Catches preparation that goes on for hours after the signal, and an exit status of 0."""
    before, ending, module = signal.getsignal(signal.SIGTERM), PromptEnd(), Module(at)
    try:
        ending.listen()
        trainer = pl.Trainer(
            max_steps=6, accelerator="cpu", callbacks=[ending], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            trainer.fit(module)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == STATUS == 143
    assert (module.steps, module.went_on) == (steps, False)
    assert said in capsys.readouterr().err
