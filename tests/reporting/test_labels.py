"""The names of rows in tables and plots."""

from lantern.reporting.labels import label_rows

ROW = {"method": "refined_jacobi", "drafter": "refined_jacobi", "acceptance": "exact", "tree": "window"}


def test_rows_of_two_drafters_are_told_apart_by_their_folders():
    """Catches hashes in a table, which tell a reader nothing."""
    rows = [
        ROW | {"drafter_hash": "4041b9075ac2", "drafter_name": "weights/drafter"},
        ROW | {"drafter_hash": "5cad9b90b669", "drafter_name": "train/drafter"},
        ROW | {"drafter_hash": "c0ffee000000"},
    ]
    assert label_rows(rows) == ["weights/drafter", "train/drafter", "c0ffee000000"]
