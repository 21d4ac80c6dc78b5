"""The four conditions are seen to hold, and every way of breaking them is seen too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.measurement.charge import expected_of
from spineflow.validation.group_sizes.run_checks import CHECKS, run_checks


@pytest.fixture(scope="module")
def finished(run_groups, tmp_path_factory):
    """A run whose tables are written, and its promise."""
    folder = tmp_path_factory.mktemp("groups")
    file = write_dataset(folder, census_like(groups=5000, counties=12, states=4, largest=30))
    run, settings = run_groups(file, folder / "run")
    return run, expected_of(settings)


@pytest.fixture
def copied(finished, tmp_path: Path):
    run, expected = finished
    shutil.copytree(run.root, tmp_path / "run")
    return tmp_path / "run", expected


def failed(root: Path, expected, *, is_private: bool = True) -> dict[str, str]:
    outcomes = run_checks(root, expected, root / "release-unchecked", is_private=is_private)
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


def change_sizes(root: Path, change: Callable[[np.ndarray], None]) -> None:
    """Change the released counts, Parquet, text and totals alike."""
    folder = root / "release-unchecked"
    table = pq.read_table(folder / "group_sizes.parquet")
    counts = table["count"].to_numpy().copy()
    change(counts)
    table = table.set_column(3, "count", pa.array(counts))
    pq.write_table(table, folder / "group_sizes.parquet")
    sums = table.group_by(["level", "region"], use_threads=False).aggregate([("count", "sum")])
    totals = sums.rename_columns(["level", "region", "groups"])
    pq.write_table(totals, folder / "group_totals.parquet")
    options = pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
    for name, rows in (("group_sizes", table), ("group_totals", totals)):
        pyarrow.csv.write_csv(rows, folder / f"{name}.csv", write_options=options)


def change_file(root: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    path = root / name
    pq.write_table(change(pq.read_table(path)), path)


def change_plan(root: Path, change: Callable[[dict], None]) -> None:
    path = root / "hierarchy" / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def test_a_good_run_passes_every_check(copied) -> None:
    root, expected = copied
    shutil.rmtree(root / "confidential")
    assert failed(root, expected) == {}


def test_a_change_that_keeps_all_sums_passes(copied) -> None:
    """Two counties of one state trade places: the checks look at sums, not at the truth."""
    root, expected = copied
    parent = pq.read_table(root / "hierarchy" / "regions.parquet")["parent"].to_pylist()[5:]
    first = next(i for i in range(11) if parent[i] == parent[i + 1])

    def trade(counts: np.ndarray) -> None:
        county = counts[150:].reshape(12, 30)
        county[[first, first + 1]] = county[[first + 1, first]]

    change_sizes(root, trade)
    assert failed(root, expected) == {}


def test_children_that_do_not_add_up_are_found(copied) -> None:
    root, expected = copied

    def shift(counts: np.ndarray) -> None:
        size = int(np.flatnonzero(counts[30:60])[0])
        counts[30 + size] -= 1
        counts[30 + (size + 1) % 30] += 1

    change_sizes(root, shift)
    found = failed(root, expected)
    assert set(found) == {"consistency"}
    assert "children do not add to their parent; 4 failures in all" in found["consistency"]


def test_levels_that_lose_groups_are_found(copied) -> None:
    root, expected = copied

    def lose(counts: np.ndarray) -> None:
        counts[:] = np.where(np.arange(counts.size) % 30 == 0, 0, counts)

    change_sizes(root, lose)
    found = failed(root, expected)
    assert set(found) == {"faithfulness"}
    assert "3 failures in all" in found["faithfulness"]


def test_negative_counts_are_found(copied) -> None:
    root, expected = copied

    def sink(counts: np.ndarray) -> None:
        for level, start in ((1, 0), (4, 30), (12, 150)):
            region = counts[start : start + level * 30].reshape(level, 30)[0]
            region[0] += region[29] + 1
            region[29] = -1

    change_sizes(root, sink)
    assert "a count is negative" in failed(root, expected)["validity"]


SIZES, TOTALS = "release-unchecked/group_sizes.parquet", "release-unchecked/group_totals.parquet"
STATES = "measurements/groups/state/dpqueries/00000.parquet"


def setting(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """The same value in every row of a column."""

    def change(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index(column)
        return table.set_column(position, column, pa.array([value] * len(table)))

    return change


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        pytest.param(SIZES, lambda t: t.slice(1), "validity", id="row missing"),
        pytest.param(
            SIZES, lambda t: pa.concat_tables([t, t.slice(0, 1)]), "validity", id="row twice"
        ),
        pytest.param(SIZES, setting("level", "town"), "validity", id="level unknown"),
        pytest.param(SIZES, setting("size", 3), "validity", id="size repeated"),
        pytest.param(TOTALS, setting("groups", 7), "faithfulness", id="totals"),
        pytest.param(STATES, lambda t: t.slice(1), "privacy_accounting", id="unmeasured"),
        pytest.param(STATES, setting("plb", "1/4"), "privacy_accounting", id="loss"),
        pytest.param(STATES, setting("variance", 1.0), "privacy_accounting", id="variance"),
        pytest.param(STATES, setting("query_name", "x_dpq"), "privacy_accounting", id="query"),
        pytest.param(STATES, setting("value", [1, 2]), "privacy_accounting", id="length"),
    ],
)
def test_files_that_were_changed_are_found(copied, name, change, check) -> None:
    root, expected = copied
    change_file(root, name, change)
    assert check in failed(root, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(epsilon="2"),
        lambda plan: plan.update(quantity=2),
        lambda plan: plan.update(mechanism="chain_dp"),
        lambda plan: plan["levels"][0].update(share="1/2"),
        lambda plan: plan["levels"][1].update(scale="2"),
        lambda plan: plan["levels"][1].update(scale=None),
        lambda plan: plan["levels"].pop(),
        lambda plan: plan["levels"][2].update(n_regions=1),
        lambda plan: plan.pop("vector", None) or plan.pop("calibration"),
    ],
)
def test_plans_that_do_not_cover_what_was_promised_are_found(copied, change) -> None:
    root, expected = copied
    change_plan(root, change)
    assert "privacy_accounting" in failed(root, expected)


@pytest.mark.parametrize(
    "name",
    [
        "hierarchy/plan.json",
        "hierarchy/regions.parquet",
        "release-unchecked/group_sizes.parquet",
        "release-unchecked/group_sizes.csv",
        "release-unchecked/group_totals.csv",
        "measurements/groups/county/dpqueries/00000.parquet",
    ],
)
def test_missing_files_fail_the_checks_that_need_them(copied, name: str) -> None:
    root, expected = copied
    (root / name).unlink()
    found = failed(root, expected)
    assert found
    assert all("cannot be read" in detail for detail in found.values())


def test_text_must_hold_the_same_rows(copied) -> None:
    root, expected = copied
    path = root / "release-unchecked" / "group_sizes.csv"
    lines = path.read_text().splitlines()
    level, region, size, count = lines[1].split(",")
    path.write_text("\n".join([lines[0], f"{level},{region},{size},{int(count) + 1}", *lines[2:]]))
    assert "group_sizes.csv does not hold" in failed(root, expected)["validity"]


def test_the_stamp_must_be_there_exactly_if_the_run_is_not_private(copied) -> None:
    root, expected = copied
    assert "stamp" in failed(root, expected, is_private=False)["validity"]


def test_relaxed_baselines_are_counted_and_not_failed(run_groups, tmp_path: Path) -> None:
    file = write_dataset(tmp_path, census_like(groups=400, counties=12, states=4, largest=8))
    file.write_text(file.read_text().replace("[mechanism]", '[mechanism]\nname = "hierarchical"'))
    run, settings = run_groups(file, tmp_path / "run")
    outcomes = run_checks(run.root, expected_of(settings), run.unchecked_release)
    assert all(outcome.passed for outcome in outcomes)
    by_name = {outcome.name: outcome.detail for outcome in outcomes}
    assert "not promised by this mechanism" in by_name["consistency"]
    assert " of 40 counts are not the sum" in by_name["consistency"]
    assert not by_name["consistency"].startswith("not promised by this mechanism: 0 of")
    assert "of 3 levels do not add" in by_name["faithfulness"]


@pytest.mark.parametrize(
    "name",
    [
        "hierarchy/plan.json",
        "hierarchy/regions.parquet",
        "measurements/groups/*/dpqueries/00000.parquet",
        "release-unchecked/group_sizes.parquet",
        "release-unchecked/group_totals.parquet",
        "release-unchecked/group_sizes.csv",
        "release-unchecked/group_totals.csv",
    ],
)
def test_unusable_files_fail(copied, passes_when_damaged, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""
    root, expected = copied

    def outcomes():
        return run_checks(root, expected, root / "release-unchecked")

    assert passes_when_damaged(next(root.glob(name)), outcomes) == []


@pytest.fixture(scope="module")
def public_counties(run_groups, tmp_path_factory) -> tuple[Path, Any]:
    """A run under a rho whose counties have public numbers of groups, and its promise."""
    folder = tmp_path_factory.mktemp("public")
    file = write_dataset(folder, census_like(groups=600, counties=4, states=2, largest=9))
    text = file.read_text().replace('epsilon = "1"', 'rho = "1/2"')
    text = text.replace("groups = true", 'groups = true\nlevel = "county"')
    file.write_text(text)
    run, settings = run_groups(file, folder / "run")
    return run.root, expected_of(settings)


@pytest.fixture
def exact(public_counties, tmp_path: Path) -> tuple[Path, Any]:
    """A copy of that run to spoil."""
    root, expected = public_counties
    return Path(shutil.copytree(root, tmp_path / "run")), expected


def test_a_run_under_a_rho_with_public_numbers_passes(exact) -> None:
    assert failed(*exact) == {}


@pytest.mark.parametrize(
    ("promised", "words"),
    [
        ({"rho": Fraction(1, 3)}, "the plan's rho is 1/2, not 1/3"),
        ({"groups": 601}, "the plan's groups is 600, not 601"),
        ({"mechanism": "chain_dp"}, "not chain_dp"),
        ({"exact_level": "state"}, "the plan's exact_level is not that of the settings"),
        ({"is_top_coded": False}, "the plan's is_top_coded is"),
    ],
)
def test_a_plan_against_the_settings_is_found(exact, promised: dict, words: str) -> None:
    root, expected = exact
    found = failed(root, replace(expected, **promised))
    assert words in found["privacy_accounting"]
    assert set(found) == {"privacy_accounting"}


def test_noise_that_does_not_cover_a_rho_is_found(exact) -> None:
    """A person who comes or goes changes one of the numbers of groups up to a size."""
    root, expected = exact
    (level,) = [
        level
        for level in json.loads((root / "hierarchy" / "plan.json").read_text())["levels"]
        if level["level"] == "state"
    ]
    due = 1 / (2 * Fraction(level["share"]) * Fraction(1, 2))
    assert Fraction(level["sigma_squared"]) >= due

    def narrower(plan: dict) -> None:
        for one in plan["levels"]:
            if one["level"] == "state":
                one["sigma_squared"] = str(due - Fraction(1, 1000))

    change_plan(root, narrower)
    found = failed(root, expected)["privacy_accounting"]
    assert "the noise of state does not cover its sensitivity" in found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda numbers: [numbers[0] + 1, numbers[1] - 1, *numbers[2:]], "2 failures in all"),
        (lambda numbers: [numbers[0] + 1, *numbers[1:]], "do not add to the number of groups"),
    ],
)
def test_counties_without_their_public_numbers_are_found(exact, change, words: str) -> None:
    root, expected = exact

    def changed(table: pa.Table) -> pa.Table:
        groups = pa.array(change(table["groups"].to_pylist()), table["groups"].type)
        return table.set_column(table.column_names.index("groups"), "groups", [groups])

    change_file(root, "hierarchy/exact_groups.parquet", changed)
    found = failed(root, expected)["faithfulness"]
    assert found.startswith("regions of county do not have their public numbers")
    assert words in found


def test_public_numbers_of_further_or_unknown_counties_are_found(exact) -> None:
    root, expected = exact
    change_file(
        root,
        "hierarchy/exact_groups.parquet",
        lambda table: pa.concat_tables(
            [table, pa.table({"region": ["none"], "groups": [0]}).cast(table.schema)]
        ),
    )
    assert "regions of county do not have" in failed(root, expected)["faithfulness"]
    (root / "hierarchy" / "exact_groups.parquet").unlink()
    assert "exact_groups.parquet cannot be read" in str(failed(root, expected))
    change_plan(root, lambda plan: plan.update(exact_level="town"))
    assert "is not a level of the hierarchy" in str(failed(root, expected))
