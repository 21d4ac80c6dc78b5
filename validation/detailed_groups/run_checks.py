"""All checks of a finished detailed-groups run, from its public files alone.

Nothing here uses the code that enumerated the groups, drew the noise, postprocessed or wrote the
release, and nothing here opens `confidential/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..outcome import Failures, Outcome
from ..run_files import unusable_files_fail
from .first_stage import check_first_stage
from .measured import read_measurements
from .release import ReleaseFailures, check_release
from .rules import apply_rules
from .universe import ExpectedRun

UNIVERSE = "population groups"

CHECKS: Mapping[str, str] = {
    "measurements_are_complete": "every group of the universe was measured once, and no other",
    "measured_loss_is_the_budget": "of both stages of every group, and the variance of the noise",
    "tables_follow_the_first_stage": "every group has the table that its noisy total chose",
    "groups_shown_follow_the_rules": "suppression, coterminous regions, 'alone' groups",
    "totals_add_up": "every shown group has one total, the sum of its counts",
    "keys_are_complete": "every group with ages has each cell and marginal of its table once",
    "cells_are_those_measured": "or those of the region that lends its counts",
    "marginals_add_up": "to the cells of their sex",
    "margins_are_those_of_the_noise": "of every count in the tidy file, and its variance",
    "counts_are_not_negative": "where negative counts are not allowed",
    "files_agree": "text and Parquet files hold the same release and carry the stamp if due",
}
"""Each check's name, and what it found when it passed."""


def run_checks(
    run_directory: Path, expected: ExpectedRun, release_directory: Path
) -> tuple[Outcome, ...]:
    """The outcome of each of `CHECKS`.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that a
    run passes only if everything was seen to be right.
    """
    failures = {name: Failures() for name in CHECKS}
    with unusable_files_fail(*failures.values()):
        counts = read_measurements(
            run_directory,
            expected,
            failures["measurements_are_complete"],
            failures["measured_loss_is_the_budget"],
        )
        check_first_stage(
            run_directory,
            expected,
            counts,
            failures["measurements_are_complete"],
            failures["measured_loss_is_the_budget"],
            failures["tables_follow_the_first_stage"],
        )
        apply_rules(counts, expected)
        check_release(
            release_directory,
            expected,
            counts,
            ReleaseFailures(
                shown=failures["groups_shown_follow_the_rules"],
                totals=failures["totals_add_up"],
                keys=failures["keys_are_complete"],
                cells=failures["cells_are_those_measured"],
                marginals=failures["marginals_add_up"],
                margins=failures["margins_are_those_of_the_noise"],
                negative=failures["counts_are_not_negative"],
                files=failures["files_agree"],
            ),
        )
    return tuple(failures[name].outcome(name, UNIVERSE, CHECKS[name]) for name in CHECKS)
