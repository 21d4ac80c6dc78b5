"""A good run of the supplemental tables passes, and every way of breaking one is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.supplemental_dhc.estimation import ROWS
from spineflow.tasks.supplemental_dhc.plan import ITERATIONS, MEASURES, TRUNCATION, stability_of
from spineflow.tasks.supplemental_dhc.settings import SupplementalDhcSettings
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.validation.supplemental_dhc import (
    CELLS,
    CHECKS,
    CODES,
    LARGEST,
    OF_UNITS,
    TAUS,
    run_checks,
)
from spineflow.validation.supplemental_dhc import ROWS as OWN_ROWS

from tests.validation.mutations import (
    LEDGER,
    PRIVACY,
    Place,
    assert_field_is_checked,
    assert_file_is_checked,
    fields_of_plan,
    finished,
    noticed_in_plan,
    write_unlike,
)

SETTINGS = """\
preset = "supplemental_dhc_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
"""
RELEASED = "release-unchecked/supplemental_dhc.parquet"
TEXT = "release-unchecked/supplemental_dhc.csv"
AREAS = "geography/areas.parquet"
MEASURED = "measurements/people_in_households/State/dpqueries/00000.parquet"


OWN = product("supplemental-dhc")


def tabulated(folder: Path, further: str = "seed = 5\n") -> RunDirectory:
    """A run up to its tables."""
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=6)
    synthesize_households(folder / "raw", folder, seed=6)
    return finished(OWN, folder, SETTINGS + further, "tables")


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tabulated(tmp_path_factory.mktemp("households")).root


@pytest.fixture
def root(seeded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(seeded, tmp_path / "run")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return tabulated(tmp_path_factory.mktemp("private"), "")


def settings_of(run: RunDirectory) -> SupplementalDhcSettings:
    return frozen_settings(SupplementalDhcSettings, run.settings)


def failed(root: Path) -> dict[str, str]:
    outcomes = run_checks(root, root / "release-unchecked")
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


def test_a_good_run_passes_every_check(root: Path) -> None:
    shutil.rmtree(root / "confidential")
    assert failed(root) == {}


@pytest.mark.parametrize("column", ["noisy", "estimate"])
@pytest.mark.parametrize("row", [("PH3", 4, "E"), ("PH6", 12, "*"), ("PH4", 1, "A")])
def test_counts_come_from_the_measurements(root: Path, column: str, row) -> None:
    table, cell, code = row
    value = pq.read_table(root / RELEASED).to_pandas()
    was = value.loc[where(value, table, cell, code), column]
    change_release(root, edited(table, cell, column, was + 1, code))
    found = failed(root)
    assert "differs" in found.pop("faithfulness")
    # One more may also be outside the interval.
    assert set(found) <= {"possibility"}


def test_intervals_that_promise_too_much_are_seen(root: Path) -> None:
    rows = pq.read_table(root / RELEASED).to_pandas()
    high = rows.loc[where(rows, "PH7", 2), "high"]
    change_release(root, edited("PH7", 2, "high", high - 20))
    assert "smaller probability" in failed(root)["faithfulness"]


def test_averages_come_from_the_measurements(root: Path) -> None:
    change_release(root, edited("PH1", 2, "noisy", 0.123))
    assert "PH1" in failed(root)["faithfulness"]
    change_release(root, edited("PH8", 1, "noisy", np.nan))
    assert "PH1" in failed(root)["faithfulness"]


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
def test_what_is_impossible_is_seen(root: Path, row, column: str, value: float) -> None:
    change_release(root, edited(*row, column, value))
    assert "possibility" in failed(root)


def test_rows_are_missing_twice_or_unknown(root: Path) -> None:
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
        assert set(failed(root)) == {"layout"}


def test_text_and_stamp_are_held_to_the_table(root: Path) -> None:
    text = root / TEXT
    before = text.read_text()
    text.write_text(before.removeprefix("# NOT PRIVATE\n"))
    assert "stamp" in failed(root)["layout"]
    text.write_text(before.replace("married", "unmarried", 1))
    assert "supplemental_dhc.csv differ in" in failed(root)["layout"]


@pytest.mark.parametrize("place", fields_of_plan(), ids=".".join)
def test_every_field_of_the_plan_is_checked(private: RunDirectory, place: Place) -> None:
    assert_field_is_checked(OWN, private, settings_of(private), place)


@pytest.mark.parametrize(
    "name", [RELEASED, TEXT, MEASURED, AREAS, "settings.toml", "plan/plan.json"]
)
def test_every_file_is_checked(private: RunDirectory, name: str) -> None:
    wanted = {RELEASED: "faithfulness", TEXT: "layout"}.get(name, PRIVACY)
    assert_file_is_checked(OWN, private, settings_of(private), name, wanted)


def _with_mechanism(settings: SupplementalDhcSettings, **change: object) -> SupplementalDhcSettings:
    mechanism = settings.mechanism.model_copy(update=change)
    return settings.model_copy(update={"mechanism": mechanism})


@pytest.mark.parametrize(
    "other",
    [
        lambda own: _with_mechanism(own, truncation={"PH3": 7}),
        lambda own: _with_mechanism(
            own, budgets={k: v for k, v in own.mechanism.budgets.items() if k != "PH6"}
        ),
        lambda own: _with_mechanism(
            own, budgets={**own.mechanism.budgets, "PH6": {"US": {"*": Fraction(1, 9)}}}
        ),
        lambda own: own.model_copy(
            update={"privacy": own.privacy.model_copy(update={"infinite": True})}
        ),
        lambda own: own.model_copy(
            update={"privacy": own.privacy.model_copy(update={"dataset": "other"})}
        ),
    ],
    ids=["tau", "less", "more", "infinite", "dataset"],
)
def test_a_plan_of_other_settings_is_seen(private: RunDirectory, other) -> None:
    settings, before = settings_of(private), (private.root / "plan" / "plan.json").read_bytes()
    write_unlike(OWN, private, other(settings))
    assert noticed_in_plan(OWN, private, settings) == {PRIVACY, LEDGER}
    (private.root / "plan" / "plan.json").write_bytes(before)


def test_a_run_without_a_plan_is_left_to_the_version_that_charged_it(root: Path) -> None:
    (root / "plan" / "plan.json").unlink()
    assert "version 0.2" in failed(root)[PRIVACY]
    run = RunDirectory(root)
    run.record_stages({"ledger": []})
    with pytest.raises(InputRefused, match=r"version 0\.2"):
        OWN.charge_run(run, settings_of(run))


@pytest.mark.parametrize("column", ["variance", "plb", "geocode", "query_name"])
def test_measurements_of_other_noise_are_seen(root: Path, column: str) -> None:
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
    assert "privacy_accounting" in failed(root)


def test_what_the_checks_know_of_tables_is_what_is_measured() -> None:
    """Cells, iterations, sensitivities and rows are written twice; here both are compared."""
    assert {name: one.n_cells for name, one in MEASURES.items()} == CELLS
    assert TAUS == TRUNCATION
    for name, one in MEASURES.items():
        assert (name in OF_UNITS) == (one.tau == 0)
        assert stability_of(one, 5) == (2 if name in OF_UNITS else 12)
        assert set("".join(CODES[key] for key in one.iterations)) == {
            code for key in one.iterations for code in ITERATIONS[key]
        }
    assert {(row.table, row.number) for row in ROWS} == {*OWN_ROWS}
    for row in ROWS:
        own = OWN_ROWS[row.table, row.number]
        assert (row.counted.measure, row.counted.numbers) == (own.measure, own.cells)
        if row.of is None:
            assert own.per is None
        else:
            assert (row.of.measure, row.of.numbers) == (own.per, own.per_cells)
            assert own.least == (row.smallest if row.rest is None else 0) and LARGEST == 10
