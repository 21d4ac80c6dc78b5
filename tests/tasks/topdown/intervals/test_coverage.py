"""Coverage of the intervals over replicates of the noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage import coverage_table
from tests.tasks.topdown.intervals.coverage_study import QUERIES, county, departures

LEVELS = (0.9, 0.95)


def covered(folder: Path, persons: int, replicates: int) -> pd.DataFrame:
    """The coverage table of a county."""
    study, areas = county(folder, persons=persons)
    queries = study.queries(QUERIES)
    return coverage_table(
        pd.concat(study.coverage(seed, queries, LEVELS, areas) for seed in range(replicates))
    )


def assert_all_were_asked(table: pd.DataFrame) -> None:
    places = {"Tract", "Block_Group", "Block", "places", "districts"}
    assert places <= set(table["where"])
    for where in places:
        assert set(table[table["where"] == where]["query"]) == set(QUERIES)


@pytest.mark.soak
def test_intervals_cover_as_often_as_they_say(tmp_path: Path):
    """500 replicates; a band around 90 % leaves 89 % out wherever there are a thousand answers."""
    table = covered(tmp_path, 8000, 500)
    assert_all_were_asked(table)
    assert departures(table).empty
    many = table[(table["answers"] > 1000) & (table["level"] == 0.9)]
    assert len(many) and (many["band"] < 0.01).all()


@pytest.mark.slow
def test_a_small_study_covers_as_often_as_it_says(tmp_path: Path):
    table = covered(tmp_path, 600, 12)
    assert_all_were_asked(table)
    assert departures(table).empty
    shorter = table.assign(covered=table["covered"] - np.where(table["answers"] > 1000, 0.02, 0.0))
    assert not departures(shorter).empty
