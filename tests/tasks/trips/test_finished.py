"""Finished runs: their counts at every level, their errors, and what the report says of both."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.products.comparison import read_errors
from spineflow.tasks.products.product import Words
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused, SpineflowError
from spineflow.tasks.trips.estimation.estimate import ROOT, MeasuredTree, step_down
from spineflow.tasks.trips.plan import estimates_file, measured_file, read_plan
from spineflow.tasks.trips.product import TRIPS
from spineflow.tasks.trips.release import released_level
from spineflow.tasks.trips.tree import NodeCounts, read_truth

from .conftest import REGIONS, Finished, trips

FULL = "mechanism.name=inftda_full_information"
MECHANISMS = {
    "inftda": (),
    "l2": ("mechanism.name=tda_l2",),
    "highs": ("mechanism.name=tda_chebyshev",),
    "all nodes": (FULL,),
    "selected nodes": (FULL, "mechanism.most_nodes=1", "mechanism.shares=optimised"),
    "unbounded": ("privacy.neighbors=unbounded", FULL, "mechanism.projection=euclidean"),
    "leaves": ("mechanism.name=gaussian_leaves",),
    "stability": ("mechanism.name=stability_histogram",),
}
WITHOUT_NOISE = ("inftda", "selected nodes", "leaves")


def levels_of(table: pd.DataFrame, count: str) -> list[dict[tuple[str, ...], int]]:
    """Counts that are not zero at every level of the tree, which split the destination and the
    origin by turns."""
    own = table.assign(o=table["origin"].map(REGIONS), d=table["destination"].map(REGIONS))
    keys = [[], ["d"], ["o", "d"], ["o", "destination"], ["origin", "destination"]]
    found = []
    for columns in keys:
        sums: dict[tuple[str, ...], int] = {}
        for row in own.to_dict("records"):
            place = tuple(row[name] for name in columns)
            sums[place] = sums.get(place, 0) + row[count]
        found.append({place: n for place, n in sums.items() if n})
    return found


def table_of(run) -> pd.DataFrame:
    return pq.read_table(run.release / "trips.parquet").to_pandas()


@pytest.mark.parametrize("case", MECHANISMS)
def test_every_level_is_the_sum_of_the_released_trips(case: str, finished: Finished) -> None:
    run, settings = finished(*MECHANISMS[case])
    plan = read_plan(run)
    released = levels_of(table_of(run), "count")
    assert plan.tree.depth == 4 and [plan.tree.n_nodes(k) for k in range(5)] == [1, 3, 9, 24, 64]
    for level, own in enumerate(released):
        nodes = released_level(run.release, plan.tree, level)
        assert sorted(nodes.counts[nodes.counts != 0].tolist()) == sorted(own.values())
    if case not in ("leaves", "stability", "unbounded"):
        assert sum(released[0].values()) == trips()["n"].sum(), "their number is not hidden"
    assert (table_of(run)["count"] > 0).all() or case == "leaves"


@pytest.mark.parametrize("case", WITHOUT_NOISE)
def test_without_noise_the_input_is_released(case: str, finished: Finished) -> None:
    run, _ = finished(*MECHANISMS[case], "privacy.infinite=true")
    given = trips().rename(columns={"n": "count"})
    pd.testing.assert_frame_equal(
        table_of(run).sort_values(["origin", "destination"], ignore_index=True),
        given.sort_values(["origin", "destination"], ignore_index=True),
        check_dtype=False,
    )


@pytest.mark.parametrize("case", ["inftda", "all nodes", "leaves"])
def test_errors_are_distances_from_the_input_at_every_level(case: str, finished: Finished) -> None:
    run, settings = finished(*MECHANISMS[case])
    errors = read_errors(run)
    assert errors is not None and errors["level"].tolist() == [0, 1, 2, 3, 4]
    pairs = zip(levels_of(trips(), "n"), levels_of(table_of(run), "count"), strict=True)
    for row, (true, released) in zip(errors.to_dict("records"), pairs, strict=True):
        places = set(true) | set(released)
        distances = [abs(true.get(place, 0) - released.get(place, 0)) for place in places]
        assert row["max_absolute_error"] == max(distances)
        assert row["mean_absolute_error"] == pytest.approx(sum(distances) / len(places))
        found = {place for place, n in released.items() if n > 0}
        assert row["false_discovery_percent"] == pytest.approx(
            100 * len(found - set(true)) / len(found)
        )
        assert row["false_negative_percent"] == pytest.approx(
            100 * len(set(true) - found) / len(true)
        )
    plan = read_plan(run)
    assert errors["areas"].tolist() == [plan.tree.level_name(level) for level in range(5)]
    assert errors["error_bound"].notna().all() == (case in ("inftda", "leaves"))
    assert errors["bias"].notna().all() == (case == "all nodes")


def test_a_selection_measures_children_of_what_it_found(finished: Finished) -> None:
    run, settings = finished(*MECHANISMS["selected nodes"])
    plan = read_plan(run)
    assert plan.is_selected and not plan.measures_all
    n_measured = []
    for level in plan.levels:
        n_measured.append(pq.read_metadata(measured_file(run, level)).num_rows)
    assert n_measured[0] == 3 and n_measured[-1] < 64
    first_pass = [len(pq.read_table(estimates_file(run, k, "selection"))) for k in (2, 3)]
    assert first_pass[0] <= 9 and first_pass[1] <= 24


def test_the_truth_of_a_run_is_its_input_at_every_level(finished: Finished) -> None:
    run, _ = finished()
    truth = read_truth(run)
    for nodes, own in zip(truth.levels, levels_of(trips(), "n"), strict=True):
        assert sorted(nodes.counts.tolist()) == sorted(own.values())
    assert truth.leaves.total == trips()["n"].sum()
    assert np.array_equal(truth.levels[-1].keys, truth.leaves.keys)


def copied(run: RunDirectory, folder: Path) -> RunDirectory:
    shutil.copytree(run.root, folder)
    return RunDirectory(folder)


def test_a_report_shows_errors_of_public_input_alone(finished: Finished, tmp_path: Path) -> None:
    run, settings = finished()
    own = copied(run, tmp_path / "run")
    assert "<h2>Accuracy</h2>" in TRIPS.report(own, settings).read_text(encoding="utf-8")
    hidden = settings.model_copy(
        update={"input": settings.input.model_copy(update={"confidential": True})}
    )
    assert "<h2>Accuracy</h2>" not in TRIPS.report(own, hidden).read_text(encoding="utf-8")
    before = own.report.stat().st_mtime_ns
    assert replace(TRIPS, words=Words(), plan=None).report(own, settings) == own.report
    assert own.report.stat().st_mtime_ns == before


def test_a_budget_for_a_margin_is_that_of_its_noise(finished: Finished) -> None:
    """The margin of the noise that the run has, asked for, needs no more than the run spends."""
    run, settings = finished()
    plan = read_plan(run)
    assert plan.guarantee is not None
    sigma = math.sqrt(float(plan.parameter(4)))
    rho = float(plan.guarantee.parameter)
    for margin, is_less in ((math.ceil(1.96 * sigma) + 1, True), (int(1.96 * sigma) - 1, False)):
        (told,) = TRIPS.needed(settings, {plan.tree.level_name(4): margin})
        assert f"An answer to counts at {plan.tree.level_name(4)} is within {margin} " in told
        needed = float(re.search(r"rho ([0-9.e-]+)", told)[1])
        assert (needed < rho) == is_less
        assert [told] == list(TRIPS.needed(settings, {"level_04": margin}))
    with pytest.raises(InputRefused, match="--target 9: name a measured level"):
        list(TRIPS.needed(settings, {"9": 10}))


def test_measurements_of_other_nodes_are_not_taken(finished: Finished) -> None:
    run, settings = finished()
    plan = read_plan(run)
    children = plan.tree.children(0, ROOT)[0]
    measured = MeasuredTree.rooted(plan.tree, 9, 0.0)
    with pytest.raises(SpineflowError, match="above level_01 differ from those that decided"):
        measured.add_level(ROOT, NodeCounts(children[::-1], np.array([1, 2, 3])), 1.0)
    measured.add_level(ROOT, NodeCounts(children, np.array([1, 2, 3])), 1.0)
    assert [own.tolist() for own in measured.combined()] == [[9.0], [2.0, 3.0, 4.0]]
    with pytest.raises(SpineflowError, match="above level_01 differ from those that decided"):
        step_down(
            plan.tree,
            1,
            NodeCounts(ROOT, np.array([9])),
            NodeCounts(children[:2], np.array([1, 2])),
            settings.mechanism,
        )


def test_persons_with_too_many_trips_are_refused(finished: Finished) -> None:
    with pytest.raises(InputRefused, match="no pid may have more than 1 trips"):
        finished("input.person=pid", "privacy.total=measured")
