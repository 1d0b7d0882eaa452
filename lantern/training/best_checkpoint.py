"""The checkpoint of the best validated step, also of a run that goes on in another folder."""

from typing import Any

from pytorch_lightning.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Lightning forgets the best score of a run that is resumed elsewhere, and would take the next one for the best."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict | {"dirpath": self.dirpath})
