"""The demo's last screen: short, and its winners are those of the lower bounds."""

from lantern.reporting.demo_summary import demo_summary

TRAINED = {"seconds": 150, "overlap": 0.58, "length": 2.31}
AR = {"drafter": "none", "lossless": True, "speedup": 1.0}


def window(weights: str, low: float, value: float) -> dict:
    return {
        "drafter": "refined_jacobi", "method": "refined_jacobi", "drafter_hash": weights, "lossless": True,
        "speedup": value, "speedup_low": low, "speedup_high": 2 * value - low,
    }  # fmt: skip


def relaxed(delta: float, low: float, value: float) -> dict:
    return {
        "drafter": "eagle", "lossless": False, "tree": "chain_6", "delta": delta, "output_tv": 0.21,
        "frechet_diff": 1.5, "speedup": value, "speedup_low": low, "speedup_high": 2 * value - low,
    }  # fmt: skip


def test_winners_are_chosen_by_their_lower_bounds():
    """Catches a winner by luck: the highest mean, with the widest bounds; and bounds that are not those of the best of
    two, here 1.144 times as wide, 1.442 times where three images were timed."""
    few = [relaxed(0.1, 1.1, 3.0), relaxed(0.4, 1.9, 2.2) | {"num_timed": 3}]
    rows = [AR, window("own", 1.2, 2.4), window("shipped", 1.8, 2.0), *few]
    lines = demo_summary(rows, TRAINED, "shipped", "runs/demo")
    assert lines[1].startswith("Fastest at no price: refined_jacobi, shipped drafter, speed-up 2.00 [1.77, 2.23]")
    assert lines[2].startswith("Also lossless: refined_jacobi, trained drafter, speed-up 2.40 [1.09, 3.82]")
    assert "δ = 0.4 on chain_6, speed-up 2.20 [1.78, 2.65]; price: output TV 0.21" in lines[3]
    assert len(lines) <= 10


def test_a_setting_without_bounds_is_behind_those_with_them():
    unbounded = window("own", 9.0, 9.0) | {"speedup_low": None, "speedup_high": None}
    lines = demo_summary([AR, unbounded, window("b", 0.5, 0.6)], TRAINED, "b", "r")
    assert lines[1].startswith("Fastest at no price: refined_jacobi, shipped drafter")


def test_relaxing_that_buys_nothing_is_called_so():
    """Catches a summary that praises a slower, lossy setting."""
    without = demo_summary([AR, window("a", 1.8, 2.0), relaxed(0.1, 1.1, 1.3)], TRAINED, "a", "r")
    gained = demo_summary([AR, window("a", 1.8, 2.0), relaxed(0.1, 2.5, 3.0)], TRAINED, "a", "r")
    assert any("bought no speed" in line for line in without)
    assert not any("bought no speed" in line for line in gained)


def test_what_was_trained_and_three_commands_are_named():
    lines = demo_summary([AR, window("a", 1.8, 2.0)], TRAINED, "a", "runs/demo")
    assert "150 s" in lines[0]
    assert "0.58" in lines[0]
    assert "2.31" in lines[0]
    assert sum(line.startswith("  python ") for line in lines) == 3


def test_a_wheels_commands_are_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("lantern.runtime.programs.CHECKOUT", tmp_path)
    lines = demo_summary([AR, window("a", 1.8, 2.0)], TRAINED, "a", "runs/demo")
    assert sum(line.startswith("  lantern-evaluate ") for line in lines) == 2


def test_a_distance_that_does_not_differ_is_zero_with_two_decimals():
    """Catches a difference of rounding printed as -2.24e-07 or -0.00."""
    same = relaxed(0.1, 1.1, 1.3) | {"frechet_diff": -2.24e-7}
    near = same | {"frechet_diff": 0.0449, "frechet_diff_low": -0.001, "frechet_diff_high": 0.09}
    lines = [demo_summary([AR, window("a", 1.8, 2.0), row], TRAINED, "a", "r")[2] for row in (same, near)]
    assert "Fréchet distance 0.00 beside plain decoding's" in lines[0]
    assert "Fréchet distance 0.04 [0.00, 0.09] beside plain decoding's" in lines[1]
