import torch

from lantern.training.run.saved_state import BestCheckpoint


def test_a_run_resumed_in_another_folder_keeps_its_best_score(tmp_path):
    """Catches an export of the best step since the resume instead of the best of all."""
    made = BestCheckpoint(tmp_path / "before", monitor="val/loss")
    made.best_model_score, made.best_model_path = torch.tensor(3.1), str(tmp_path / "before" / "best.ckpt")
    made.best_k_models = {made.best_model_path: made.best_model_score}
    resumed = BestCheckpoint(tmp_path / "after", monitor="val/loss")
    resumed.load_state_dict(made.state_dict())
    assert resumed.best_model_score == 3.1
    assert resumed.best_model_path == made.best_model_path
    assert resumed.best_k_models == made.best_k_models
    assert resumed.dirpath == str(tmp_path / "after")
