"""The checkpoint of the best validation score, correct across runs that are resumed in another folder."""

from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Keeps the best score when resumed elsewhere: Lightning resets it if the folder has changed, so that the next
    validation would count as the best."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})
