"""A good run of the supplemental tables passes, and every way of breaking one is seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.products.registry import product
from spineflow.tasks.supplemental_dhc.measurement.charge import expected_of
from spineflow.tasks.supplemental_dhc.workload.measures import MEASURES, stability_of
from spineflow.tasks.supplemental_dhc.workload.rows import ROWS
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import rehouse
from spineflow.validation.supplemental_dhc.privacy_loss import (
    CELLS,
    CODES,
    OF_UNITS,
    ExpectedSupplemental,
)
from spineflow.validation.supplemental_dhc.run_checks import (
    AVERAGES,
    CHECKS,
    COUNTS,
    LARGEST,
    run_checks,
)

from tests.flows.in_process import judged_once

SETTINGS = """\
preset = "supplemental_dhc_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
seed = 5
"""
RELEASED = "release-unchecked/supplemental_dhc.parquet"
MEASURED = "measurements/people_in_households/State/dpqueries/00000.parquet"


def tabulated(folder: Path, further: str = "") -> tuple[Path, ExpectedSupplemental]:
    """A run up to its tables, and its promise."""
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=6)
    rehouse(folder / "raw", folder, seed=6)
    (folder / "settings.toml").write_text(SETTINGS + further)
    own = product("supplemental-dhc")
    settings = own.load(folder / "settings.toml")
    run = prepare(settings, folder / "run")
    with judged_once():
        call_stages(run, settings, until="tables")
    return run.root, expected_of(settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExpectedSupplemental]:
    return tabulated(tmp_path_factory.mktemp("households"))


@pytest.fixture
def copied(
    finished: tuple[Path, ExpectedSupplemental], tmp_path: Path
) -> tuple[Path, ExpectedSupplemental]:
    root, expected = finished
    shutil.copytree(root, tmp_path / "run")
    return tmp_path / "run", expected


def failed(
    root: Path, expected: ExpectedSupplemental, *, is_private: bool = False
) -> dict[str, str]:
    outcomes = run_checks(root, expected, root / "release-unchecked", is_private=is_private)
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


def change_release(root: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change the released rows, Parquet and text alike."""
    path = root / RELEASED
    schema = pq.read_schema(path)
    table = pa.Table.from_pandas(
        change(pq.read_table(path).to_pandas()), schema, preserve_index=False
    )
    pq.write_table(table, path)
    with path.with_suffix(".csv").open("wb") as sink:
        sink.write(("# NOT PRIVATE\n" + ",".join(schema.names) + "\n").encode())
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
        pyarrow.csv.write_csv(table.replace_schema_metadata(None), sink, options)


def where(frame: pd.DataFrame, table: str, cell: int, code: str = "*") -> int:
    """The place of the row of the state."""
    is_row = (frame["table"] == table) & (frame["cell"] == cell) & (frame["iteration"] == code)
    return int(frame.index[is_row & (frame["level"] == "State")][0])


def edited(table: str, cell: int, column: str, value: float, code: str = "*"):
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[where(frame, table, cell, code), column] = value
        return frame

    return change


def change_plan(root: Path, change: Callable[[dict], None]) -> None:
    path = root / "geography" / "plan.json"
    plan = json.loads(path.read_text())
    change(plan)
    path.write_text(json.dumps(plan))


def test_a_good_run_passes_every_check(copied) -> None:
    root, expected = copied
    shutil.rmtree(root / "confidential")
    assert failed(root, expected) == {}


@pytest.mark.parametrize("column", ["noisy", "estimate"])
@pytest.mark.parametrize("row", [("PH3", 4, "E"), ("PH6", 12, "*"), ("PH4", 1, "A")])
def test_counts_come_from_the_measurements(copied, column: str, row) -> None:
    root, expected = copied
    table, cell, code = row
    value = pq.read_table(root / RELEASED).to_pandas()
    was = value.loc[where(value, table, cell, code), column]
    change_release(root, edited(table, cell, column, was + 1, code))
    found = failed(root, expected)
    assert "not that of" in found.pop("faithfulness")
    # One more may also be outside the interval.
    assert set(found) <= {"possibility"}


def test_intervals_that_promise_too_much_are_seen(copied) -> None:
    root, expected = copied
    rows = pq.read_table(root / RELEASED).to_pandas()
    high = rows.loc[where(rows, "PH7", 2), "high"]
    change_release(root, edited("PH7", 2, "high", high - 20))
    assert "smaller probability" in failed(root, expected)["faithfulness"]


def test_averages_come_from_the_measurements(copied) -> None:
    root, expected = copied
    change_release(root, edited("PH1", 2, "noisy", 0.123))
    assert "PH1" in failed(root, expected)["faithfulness"]
    change_release(root, edited("PH8", 1, "noisy", np.nan))
    assert "PH1" in failed(root, expected)["faithfulness"]


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (("PH1", 1), "high", 10.5),
        (("PH1", 1), "low", 0.9),
        (("PH5", 1), "low", 1.9),
        (("PH8", 3), "low", 0.5),
        (("PH5", 2), "low", -0.1),
        (("PH2", 1), "low", 1e9),
        (("PH2", 4), "low", -1.0),
        (("PH1", 2), "estimate", np.nan),
        (("PH1", 2), "estimate", 9.0),
    ],
)
def test_what_is_impossible_is_seen(copied, row, column: str, value: float) -> None:
    root, expected = copied
    change_release(root, edited(*row, column, value))
    assert "possibility" in failed(root, expected)


def test_rows_are_missing_twice_or_unknown(copied) -> None:
    root, expected = copied
    before = (root / RELEASED).read_bytes()
    changes: list[Callable[[pd.DataFrame], pd.DataFrame]] = [
        lambda frame: frame[1:],
        lambda frame: pd.concat([frame, frame[:1]]),
        lambda frame: frame.assign(cell=frame["cell"].where(frame["cell"] != 21, 22)),
        lambda frame: frame.assign(region=frame["region"].where(frame["region"] != "0", "1")),
    ]
    for change in changes:
        (root / RELEASED).write_bytes(before)
        change_release(root, change)
        assert set(failed(root, expected)) == {"layout"}


def test_text_and_stamp_are_held_to_the_table(copied) -> None:
    root, expected = copied
    assert "stamp" in failed(root, expected, is_private=True)["layout"]
    text = (root / RELEASED).with_suffix(".csv")
    text.write_text(text.read_text().replace("married", "unmarried", 1))
    assert "does not hold the rows" in failed(root, expected)["layout"]


@pytest.mark.parametrize("changed", ["rho", "sigma_squared", "twice", "taus", "levels"])
def test_a_plan_that_costs_otherwise_is_seen(copied, changed: str) -> None:
    root, expected = copied

    def change(plan: dict) -> None:
        query = plan["queries"][0]
        if changed == "twice":
            plan["queries"].append(query)
        elif changed == "taus":
            plan["taus"]["PH1_num"] = 9
        elif changed == "levels":
            plan["levels"]["State"] = 2
        else:
            query[changed] = str(Fraction(query[changed]) * Fraction(11, 10))

    change_plan(root, change)
    assert "privacy_accounting" in failed(root, expected)


@pytest.mark.parametrize("column", ["variance", "plb", "geocode", "query_name"])
def test_measurements_of_other_noise_are_seen(copied, column: str) -> None:
    root, expected = copied
    path = root / MEASURED
    table = pq.read_table(path)
    values = table[column].to_pylist()
    values[0] = (
        values[0] * 1.1
        if column == "variance"
        else {"plb": "1/7", "geocode": "00", "query_name": "PH2 *_dpq"}[column]
    )
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.array(values, field.type)), path)
    assert "privacy_accounting" in failed(root, expected)


def test_settings_that_promise_otherwise_are_seen(copied) -> None:
    root, expected = copied
    taus = {**expected.taus, "PH3": 7}
    less = dict(expected.rhos)
    less.popitem()
    for other in (
        replace(expected, taus=taus),
        replace(expected, rhos=less),
        replace(expected, infinite=True),
        replace(expected, levels=["US"]),
    ):
        assert "privacy_accounting" in failed(root, other)


@pytest.mark.parametrize("name", [RELEASED, MEASURED, "geography/plan.json"])
def test_files_that_cannot_be_used_fail(copied, name: str) -> None:
    root, expected = copied
    (root / name).write_bytes(b"no file of this kind")
    assert failed(root, expected)


def test_without_noise_the_true_counts_are_released(tmp_path: Path) -> None:
    root, expected = tabulated(tmp_path, "infinite = true\n")
    assert expected.infinite and failed(root, expected) == {}
    rows = pq.read_table(root / RELEASED).to_pandas()
    counts = rows[rows["table"].isin(COUNTS)]
    assert (counts["noisy"] == counts["estimate"]).all() and (counts["low"] == counts["high"]).all()


def test_what_the_checks_know_of_tables_is_what_is_measured() -> None:
    """Cells, iterations, sensitivities and rows are written twice; here both are compared."""
    assert {name: one.n_cells for name, one in MEASURES.items()} == CELLS
    for name, one in MEASURES.items():
        assert (name in OF_UNITS) == (one.tau == 0)
        assert stability_of(one, 5) == (2 if name in OF_UNITS else 12)
        assert set("".join(CODES[key] for key in one.iterations)) == set(one.codes)
    for row in ROWS:
        if row.table in COUNTS:
            measure, cells = COUNTS[row.table]
            assert (row.counted.measure, row.counted.numbers) == (measure, cells[row.number - 1])
        else:
            persons, households, cells_of, least = AVERAGES[row.table]
            assert row.of is not None
            assert (row.counted.measure, row.of.measure) == (persons, households)
            assert (row.counted.numbers, row.of.numbers) == cells_of[row.number - 1]
            assert row.smallest == least and LARGEST == 10
    assert {row.table for row in ROWS} == {*COUNTS, *AVERAGES}
