"""The first stage: each group's noisy total, what it cost, and the table that it chose."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..outcome import Failures
from .measured import (
    GroupCounts,
    group_numbers,
    read_level,
)
from .privacy_loss import check_noise
from .universe import ExpectedRun

FIRST_STAGE = "detailed_groups_stage_1"
COLUMNS = ["region_id", "iteration_code", "value", "variance", "plb"]


def check_first_stage(
    run_directory: Path,
    expected: ExpectedRun,
    counts: GroupCounts,
    completeness: Failures,
    loss: Failures,
    tables: Failures,
) -> None:
    """Check the first stage's noisy totals against the tables that were measured afterwards.

    Completeness: every group that is not measured by a total only has one, and no other has. Loss:
    each cost gamma times the level's budget. Tables: a group received the table whose number is
    that of the thresholds which its noisy total reaches, and a group without one a total.
    """
    table = np.zeros(expected.n_groups, dtype=np.int64)
    times = np.zeros(expected.n_groups, dtype=np.int64)
    due = np.zeros(expected.n_groups, dtype=np.int64)
    for level in expected.levels:
        due[level.rows] = np.tile(~level.total_only, len(level.regions))
        for batch in read_level(run_directory, FIRST_STAGE, level, expected, COLUMNS):
            group = group_numbers(batch, level, completeness)
            rows = np.ones(batch.num_rows, dtype=bool)
            check_noise(batch, rows, level, expected.stage_1_fraction, expected, loss)
            known = group >= 0
            value = batch.column("value").to_numpy()[known]
            np.add.at(times, group[known], 1)
            table[group[known]] = sum((value >= bound).astype(int) for bound in level.thresholds)
    completeness.add_each(
        times != due,
        lambda g: (
            f"{expected.level_of(g).describe(g)} has {times[g]} totals of the first stage instead "
            f"of {due[g]}"
        ),
    )
    tables.add_each(
        counts.table != table,
        lambda g: (
            f"{expected.level_of(g).describe(g)} has table {counts.table[g]}, and its first stage "
            f"chose {table[g]}"
        ),
    )
