"""Released counts are within their margins as often as these say, sums of cells included."""

from __future__ import annotations

import math
import shutil
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.detailed_groups.ingest.ingest import run_parameters, run_specification
from spineflow.tasks.detailed_groups.postprocess import postprocess, stages_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.release.tables import write_run_release
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.detailed_groups.workload.budgets import level_budgets
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.noise.quantiles import probabilities_of_sum
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings

pytestmark = pytest.mark.slow

AS_MEASURED = (
    "mechanism.allow_negative_counts=true",
    "mechanism.zero_suppression_chance=0",
    'mechanism.confidence="9/10"',
)
WANTED = (
    "mechanism.margins={USA={2=4}, STATE={1=9, 2=6}, COUNTY={2=5}, TRACT={2=12}, PR-TRACT={1=20}}",
)
NO_NOISE = ("privacy.infinite=true",)
KEY = ["region_type", "region_id", "iteration_code", "table", "sex", "age_start", "age_end"]
N_CELLS = {"T01001": 1, "T02001": 8, "T02002": 18, "T02003": 46}


def tidy(measured_groups, folder: Path, *overrides: str) -> tuple[pd.DataFrame, RunDirectory]:
    """The tidy release of a copy of a measured run that has passed its checks."""
    run, _ = measured_groups(*overrides)
    shutil.copytree(run.root, folder)
    run = RunDirectory(folder)
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    for stage in stages_of(settings):
        for region_pass in ("us", "pr"):
            postprocess(run, settings, region_pass, stage)
    write_run_release(run, settings)
    assert all(outcome.passed for outcome in DETAILED_GROUPS.check_run(run, settings))
    read = pq.read_table(run.unchecked_release / "population_groups.parquet").to_pandas()
    return read.fillna({"age_start": -1, "age_end": -1}), run


@pytest.fixture(scope="module")
def noisy(measured_groups, tmp_path_factory) -> tuple[pd.DataFrame, RunDirectory]:
    folder = tmp_path_factory.mktemp("noisy") / "run"
    return tidy(measured_groups, folder, *AS_MEASURED, *WANTED)


def test_levels_have_the_margins_that_were_wanted(noisy) -> None:
    rows, run = noisy
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    cells = rows[(rows["age_start"] >= 0)]
    for (region_type, level), due in settings.mechanism.wanted.items():
        own = cells[(cells["region_type"] == region_type) & (cells["iteration_level"] == level)]
        assert own.empty or set(own["margin"]) == {due}
    assert len(settings.mechanism.wanted) == 6


def test_cut_counts_are_within_their_margins(measured_groups, tmp_path: Path) -> None:
    """More often than is said: cutting moves single counts, and most sums, towards the truth."""
    settings = (*AS_MEASURED[1:], *WANTED, "mechanism.allow_negative_counts=false")
    rows, _ = tidy(measured_groups, tmp_path / "cut", *settings)
    true, _ = tidy(measured_groups, tmp_path / "true", *AS_MEASURED, *NO_NOISE)
    assert rows["count"].min() == 0
    assert (rows["margin_if_cut"] > rows["margin"]).any()
    both = rows.merge(true[[*KEY, "count"]], on=KEY, suffixes=("", "_true"))
    away = (both["count"] - both["count_true"]).abs()
    for kind in (both["age_start"] >= 0, both["age_start"] < 0):
        allowed = 4.5 * math.sqrt(0.1 * 0.9 / kind.sum())
        assert (away <= both["margin_if_cut"])[kind].mean() > 0.9 - allowed


def _covered(noise: IntegerDistribution, n: int, m: int) -> float:
    of_sum = probabilities_of_sum(noise, n)
    middle = len(of_sum) // 2
    return float(of_sum[max(0, middle - m) : middle + m + 1].sum())


def test_errors_are_within_the_margins_as_often_as_they_say(
    noisy, measured_groups, tmp_path: Path
) -> None:
    """Over all counts of a kind; noise a tenth wider or narrower would be noticed for cells."""
    rows, run = noisy
    true, _ = tidy(measured_groups, tmp_path / "true", *AS_MEASURED, *NO_NOISE)
    settings = frozen_settings(DetailedGroupsSettings, run.settings)
    levels = level_budgets(run_parameters(run, settings), run_specification(run), "p")
    # The total of a group is in T01001 whatever its table is: that of its other rows.
    table = rows.groupby(KEY[:3], observed=True)["table"].transform(lambda own: max(own))
    rows = rows.assign(own_table=table)
    both = rows.merge(true[[*KEY, "count"]], on=KEY, suffixes=("", "_true"))
    assert len(both) > 5_000
    for name, kind in {
        "cells": both["age_start"] >= 0,
        "sums": (both["sex"] == "total") & (both["own_table"] != "T01001"),
    }.items():
        own = both[kind]
        within = float(((own["count"] - own["count_true"]).abs() <= own["margin"]).sum())
        due, other = 0.0, 0.0
        groups = own.groupby(["region_type", "iteration_level", "own_table"], observed=True)
        for (region_type, level, own_table), members in groups:
            if not len(members):
                continue
            n = N_CELLS[own_table] if name == "sums" else 1
            one = levels[region_type, level].second_stage
            m = int(members["margin"].iloc[0])
            due += len(members) * _covered(one, n, m)
            wider = IntegerDistribution(one.c / Fraction(121, 100), one.power)
            other += len(members) * _covered(wider, n, m)
        allowed = 4.5 * math.sqrt(0.1 * 0.9 * len(own))
        assert abs(within - due) < allowed
        if name == "cells":
            assert abs(within - other) > allowed
