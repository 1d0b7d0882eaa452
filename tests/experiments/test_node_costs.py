"""The costs of a round of continuous tokens by its nodes."""

from support.tiny_latents import tiny_latent_target

from lantern.acceptance.exact import Exact
from lantern.continuous.gaussian_shared import GaussianShared
from lantern.continuous.latent_sampling import LatentSampling
from lantern.drafters.none import NoDrafter
from lantern.evaluation.rows import read_rows
from lantern.experiments.node_costs import NodeCosts
from lantern.pipeline import pipelines


def test_a_row_for_each_number_of_nodes_relative_to_plain_decodings_round(tmp_path):
    """Catches sizes that are left out, and a break-even against another round than that of one node."""
    target = tiny_latent_target()
    joined = pipelines(target, NoDrafter(), Exact(), GaussianShared(target), LatentSampling(), "tiny")
    rows = NodeCosts([2, 8]).run(joined, ["a b"], 0, tmp_path)
    assert [row["nodes"] for row in rows] == [1, 2, 8]
    assert rows[0]["break_even"] == 1
    for row in rows:
        spent, one = row["pass_ms"] + row["head_ms"], rows[0]["pass_ms"] + rows[0]["head_ms"]
        assert row["break_even"] == spent / one > 0
    assert read_rows(tmp_path / "node_costs.jsonl") == rows
