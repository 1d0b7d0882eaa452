"""Mistakes made on purpose, which a test must notice: verifiers, and edits of single places of the project."""

from typing import NamedTuple

from lantern.acceptance.exact import Exact


class NoSubtraction(Exact):
    """Biased: draws from p itself after a rejection."""

    def judge(self, p, q, x, site):
        return super().judge(p, q, x, site)[0], p


class Mutant(NamedTuple):
    """An edit of one place, and the test that fails for it."""

    file: str  # from the repository's root
    text: str  # stands there once
    wrong: str
    test: str  # from tests/


def tried_at_once() -> list[list[Mutant]]:
    """All mutants in groups of different files and different tests' files."""
    groups: list[list[Mutant]] = []
    for mutant in MUTANTS.values():
        places = {mutant.file, mutant.test.split("::")[0]}
        free = (one for one in groups if not any(places & {other.file, other.test.split("::")[0]} for other in one))
        if (group := next(free, None)) is None:
            groups.append(group := [])
        group.append(mutant)
    return groups


WAYS = "laws/test_ways.py"
MUTANTS = {
    "CASCADE's residual keeps what was lent": Mutant(
        "lantern/acceptance/pooled.py", "raised.scatter_add(1, others, -mass).clamp(min=0)", "raised",
        "acceptance/test_rules_of_a_round.py::test_a_node_is_lent_the_mass_of_agreeing_siblings_or_of_its_level",
    ),
    "the least output TV is measured at all nodes": Mutant(
        "lantern/metrics/output_tv.py", "batch_size, only_roots=True", "batch_size",
        "metrics/test_output_tv.py::test_the_least_change_is_measured_where_a_round_begins_alone",
    ),
    "a certificate holds no settings of verifications": Mutant(
        "lantern/certificates.py", '"tree": OF_A_TREE, ', '"verification": ("bonus",), "tree": OF_A_TREE, ',
        f"{WAYS}::test_settings_of_verifications_drafters_and_trees_are_settings",
    ),
    "check_law tries temperature 1 alone": Mutant(
        "lantern/laws/trials.py", "SAMPLINGS = (", "SAMPLINGS = (Sampling(), Sampling(temperature=0))\nOTHERS = (",
        f"{WAYS}::test_another_temperature_alone_cuts_alone_and_rare_codes_are_tried",
    ),
    "check_law's counts deviate from no law": Mutant(
        "lantern/laws/certificate.py", "UNLIKELY = 1e-6", "UNLIKELY = 0",
        f"{WAYS}::test_what_small_tables_cannot_show_is_counted",
    ),
    "a merged baseline has the first value of each figure": Mutant(
        "lantern/evaluation/rows.py", "if values and figure.merged:", "if not values:",
        "evaluation/test_rows.py::test_merging_keeps_one_baseline_row_with_the_mean_the_sum_or_the_first_of_each_figure",
    ),
    "two batch sizes are one setting": Mutant(
        "lantern/evaluation/rows.py", '"num_images", "batch_size", "dtype"', '"num_images", "dtype"',
        "evaluation/test_rows.py::test_timings_of_other_machines_precision_or_prompts_are_rows_of_their_own",
    ),
    "records outlive the user's code": Mutant(
        "lantern/identity.py", "user_code(read), *(", "None, *(",
        "evaluation/test_record_keys.py::test_records_of_a_killed_run_are_of_the_users_code_and_of_the_files_it_is_given",
    ),
    "code_hash leaves sub-folders out": Mutant(
        "lantern/identity.py", 'sorted(package.rglob("*.py"))', 'sorted(package.glob("*.py"))',
        "evaluation/test_fingerprint.py::test_an_edited_comment_keeps_the_records_and_an_edited_constant_does_not",
    ),
}  # fmt: skip
