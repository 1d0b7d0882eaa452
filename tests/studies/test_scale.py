"""The arithmetic of docs/scale.md against slow references."""

import math

import pytest
import torch
from support.paths import CONF, ROOT
from torch.utils.flop_counter import FlopCounterMode

from lantern.cli.compose import composed
from lantern.models.llamagen.transformer import Transformer
from lantern.studies import scale_faults
from lantern.studies.markdown import split_page
from lantern.studies.scale import (
    BATCH,
    GPUS,
    PROMPTS,
    REFINED,
    SHAPES,
    Gpu,
    Shape,
    extraction_flops,
    judge,
    measured_window,
    pass_seconds,
    render,
    tables,
    train_drafter,
    window_seconds,
)
from lantern.studies.scale_faults import judging_hours, training_hours

WINDOW = {"num_nodes": 19, "tokens_per_step": 4.5}


def test_the_page_has_today_s_tables():
    """Catches a table that was typed, or is older than the headline's rows."""
    page = (ROOT / "docs" / "scale.md").read_text()
    for name, rows in tables(Gpu(), measured_window()).items():
        assert split_page(page, name)[1] == render(rows)
    assert f"{measured_window()['tokens_per_step']:.2f} with {measured_window()['num_nodes']} nodes" in page


def test_parameters_are_those_of_the_model():
    with torch.device("meta"):
        model = Transformer(dim=1280, num_layers=36, num_heads=20, vocab_size=16384, caption_dim=2048, grid=(32, 32))
    shape = SHAPES[0]
    weights = [p.numel() for layer in model.layers for name, p in layer.named_parameters() if "norm" not in name]
    assert shape.body == sum(weights)
    assert shape.head == model.output.weight.numel()


def test_operations_are_those_that_torch_counts():
    """Catches a factor of two between multiplications and operations, and guidance rows that are forgotten."""
    shape = Shape("tiny", layers=2, dim=64, hidden=256, codes=128, prefix=4, tokens=16)
    with torch.device("meta"):
        layers = Transformer(dim=64, num_layers=2, num_heads=2, vocab_size=128, caption_dim=8, grid=(4, 4)).layers
        rotation, mask = torch.zeros(1, 20, 2, 32), torch.ones(1, 1, 20, 20, dtype=torch.bool)
        with FlopCounterMode(display=False) as counter:
            x = torch.zeros(2, 20, 64)
            for layer in layers:
                x = layer(x, rotation, mask)
    scores = 2 * shape.positions * 20 * 64 * 2  # torch counts the masked half as well
    assert extraction_flops(shape) + scores == counter.get_total_flops()


def test_what_bounds_a_pass_moves_with_images_and_nodes():
    anole = SHAPES[1]
    assert pass_seconds(anole, 1, 1, Gpu())[1] == "weights"
    assert pass_seconds(anole, 1, 32, Gpu())[1] == "caches"
    assert pass_seconds(anole, 19, 32, Gpu())[1] == "arithmetic"
    assert pass_seconds(SHAPES[0], 1, 1, Gpu(launch_s=1e-3))[1] == "launches"


def test_a_round_of_the_window_counts_the_drafter_s_passes():
    """Catches a window that drafts for nothing: two passes of one layer beside those of the target."""
    assert composed(CONF, "evaluate", ["drafter=refined_jacobi"]).drafter.passes == REFINED
    free, anole = Gpu(flops=1e30, bandwidth=1e30, launch_s=1.0), SHAPES[1]
    assert window_seconds(anole, 19, 1, free)[0] == pytest.approx(anole.layers + 2)
    assert window_seconds(anole, 19, 32, Gpu())[0] > 1.03 * pass_seconds(anole, 19, 32, Gpu())[0]


def test_more_gpus_take_less_time_at_the_same_price():
    for shape in SHAPES:
        few, many = (judge(shape, gpus, Gpu(), WINDOW) for gpus in GPUS)
        assert few["AR, h"] == pytest.approx(8 * many["AR, h"])
        assert few["dollars"] == pytest.approx(many["dollars"])
        ideal = (many["AR, h"] + many["window, h"]) * (
            1 + GPUS[-1] * BATCH / PROMPTS
        )  # the last pieces leave workers idle
        assert many["AR, h"] + many["window, h"] <= many["with faults, h"] <= 1.2 * ideal


def test_a_faster_disk_makes_stored_features_worth_it():
    slow, fast = (train_drafter(SHAPES[1], 8, Gpu(disk=disk)) for disk in (1e9, 50e9))
    assert slow["bound by"] == "disk"
    assert slow["stored, h"] > slow["computed again, h"]
    assert fast["bound by"] == "arithmetic"
    assert fast["stored, h"] < fast["computed again, h"]


def test_training_with_failures_takes_what_renewal_theory_says(monkeypatch):
    """Work between checkpoints c at a rate r: (1 / r + R) (exp(r c) - 1) each."""
    monkeypatch.setattr(scale_faults, "REPEATS", 2000)
    monkeypatch.setattr(scale_faults, "MTBF_S", 8 * 600.0)
    rate, restart, interval = 1 / 600, scale_faults.RESTART_S, scale_faults.CHECKPOINT_S
    expected = 10 * (1 / rate + restart) * (math.exp(rate * interval) - 1)
    assert training_hours(10 * interval / 3600, 8) * 3600 == pytest.approx(expected, rel=0.03)


def test_pieces_of_dead_workers_are_made_by_others(monkeypatch):
    assert judging_hours(10, 60.0, 4) * 3600 == pytest.approx(180, rel=1e-3)  # three rounds of four
    monkeypatch.setattr(scale_faults, "MTBF_S", 300.0)
    faulty, more = judging_hours(10, 60.0, 4), judging_hours(10, 60.0, 8)
    assert 180 < faulty * 3600 < 1000
    assert more < faulty
