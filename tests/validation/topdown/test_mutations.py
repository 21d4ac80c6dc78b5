"""Runs of a preset and of declared censuses: every file and field corrupted, one after the other.

A run is made once for each census; the checks of a universe or of the tables are asked, in parts of
a few blocks, of the run with one value changed, and every change is seen by the check for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.demo import DEMOS
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import CheckFailed
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.ingest.generate import (
    FEWEST_PERSONS,
    generate_country,
    generate_county,
)
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.validation.outcome import Outcome
from spineflow.validation.topdown.run_checks import TABLES, CheckedRun

from tests.flows.gallery import DECLARATIONS, GALLERY
from tests.validation.mutations import (
    PRIVACY,
    checked,
    corrupt_plan,
    fields_of_plan,
    finished,
    noticed_in_plan,
    wanted_by,
    write_unlike,
)

OWN = product("topdown")
COUNTY = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
[run]
coherent = true
[release]
margins = false
"""


def county(folder: Path, further: str = "") -> RunDirectory:
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=1)
    synthesize_households(folder / "raw", folder, seed=1)
    return finished(OWN, folder, COUNTY + further, "checks")


def country(folder: Path) -> RunDirectory:
    (folder / "input").mkdir()
    generate_country(folder / "input", seed=1)
    text = (DEMOS / "country.toml").read_text(encoding="utf-8")
    return finished(OWN, folder, text, "checks")


def register(folder: Path) -> RunDirectory:
    GALLERY["register"](folder)
    text = dict(zip(GALLERY, DECLARATIONS, strict=True))["register"]
    return finished(OWN, folder, text, "checks")


MADE = {"county": county, "country": country, "register": register}
AREAS_OF_PART = {"county": 5, "country": 100, "register": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunDirectory]:
    """Finished runs by their names, each made once."""
    found: dict[str, RunDirectory] = {}

    def run_of(name: str) -> RunDirectory:
        if name not in found:
            found[name] = MADE[name](tmp_path_factory.mktemp(name))
        return found[name]

    return run_of


def outcomes(run: RunDirectory, subject: str | None = None, size: int = 0) -> list[Outcome]:
    """Outcomes of the checks of a universe or of the tables, or of all, in small pieces."""
    size = size or AREAS_OF_PART[run.root.parent.name.rstrip("0123456789")]
    return checked(run.root, run.unchecked_release, subject, size, n=3)


def failed(run: RunDirectory, subject: str | None = None) -> set[str]:
    return {own.name for own in outcomes(run, subject) if not own.passed}


@contextmanager
def changed(run: RunDirectory, name: str, content: bytes | None) -> Iterator[None]:
    """The run with other content of a file."""
    file = run.root / name
    before = file.read_bytes()
    file.unlink() if content is None else file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def with_value(column: str, key: Any, row: int = 0) -> Callable[[pa.Table], pa.Table]:
    """A table with another value in a row: `key`, or that of the old one."""

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = key(values[row]) if callable(key) else key
        place = table.schema.get_field_index(column)
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array(values, field.type))

    return change


def without_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def renamed(column: str, row: int = 0) -> Callable[[pa.Table], pa.Table]:
    return with_value(column, lambda _: "9", row)


def more(column: str) -> Callable[[pa.Table], pa.Table]:
    return with_value(column, lambda old: old + 1)


def longer(column: str) -> Callable[[pa.Table], pa.Table]:
    return with_value(column, lambda old: [*old, 0])


def next_value(column: str | int) -> Callable[[pa.Table], pa.Table]:
    """A column, by name or place, whose first value is another one of it, or "9"."""

    def change(table: pa.Table) -> pa.Table:
        name = column if isinstance(column, str) else table.column_names[column]
        own = table[name].to_pylist()
        return with_value(name, next((value for value in own if value != own[0]), "9"))(table)

    return change


Change = Callable[[pa.Table], pa.Table]
SPINE, LOSS = "spine_is_a_tree", "measured_loss_is_the_budget"
COUNTS, SUMS = "estimates_are_counts", "children_add_to_parents"
MEASURED, NOISE = "measurements_are_complete", "noise_is_what_its_loss_pays_for"
LIMITS, MICRODATA = "constraints_are_complete", "microdata_tabulate_to_estimates"
TALLIED, REPEATED = "tables_count_the_microdata", "pl94171_repeats_the_tables"

OF_FILES: dict[str, tuple[tuple[Change, str], ...]] = {
    "spine/{u}/geounits.parquet": (
        (with_value("plb_share", "1/7"), "shares_add_to_one"),
        (with_value("plb_share", "1/7", row=3), "shares_add_to_one"),
        (more("n_blocks"), SPINE),
        (with_value("bypassed", lambda old: not old), SPINE),
        (renamed("parent", -1), ""),
        (without_row, SPINE),
    ),
    "spine/{u}/blocks.parquet": ((without_row, SPINE), (twice, SPINE)),
    "estimates/{u}/{level}/00000.parquet": (
        (more("count"), SUMS),
        (more("cell"), SUMS),
        (with_value("count", 0), COUNTS),
        (with_value("cell", 10**7), COUNTS),
        (renamed("geocode"), COUNTS),
        (without_row, SUMS),
        (twice, COUNTS),
    ),
    "measurements/{u}/{level}/dpqueries/00000.parquet": (
        (without_row, MEASURED),
        (twice, MEASURED),
        (renamed("geocode"), MEASURED),
        (renamed("query_name"), MEASURED),
        (with_value("plb", "1/7"), LOSS),
        (with_value("plb", "inf"), LOSS),
        (with_value("variance", lambda old: old * (1 + 1e-6)), NOISE),
        (with_value("variance", 0.0), NOISE),
        (with_value("variance", float("nan")), NOISE),
        (longer("value"), NOISE),
    ),
    "measurements/{u}/{level}/constraints/00000.parquet": (
        (without_row, LIMITS),
        (twice, LIMITS),
        (renamed("geocode"), LIMITS),
        (renamed("query_name"), LIMITS),
        (renamed("sign"), LIMITS),
        (with_value("value", lambda old: [old[0] + 1, *old[1:]]), LIMITS),
        (with_value("value", lambda old: [old[0] - 1, *old[1:]], row=-1), LIMITS),
        (longer("value"), LIMITS),
    ),
    "release-unchecked/mdf_{u}.parquet": (
        (without_row, MICRODATA),
        (twice, MICRODATA),
        *((next_value(place), MICRODATA) for place in range(7)),
    ),
}
"""Of the files of a universe: changes, and the check that sees each of them."""


UNIVERSES = {"county": ("persons", "Tract"), "country": ("persons", "municipality")}
SOAK_COUNTY = [pytest.param("county", marks=pytest.mark.soak(15)), "country"]
"""The county, of which tables and public files alone are corrupted in every session."""


@pytest.mark.slow
@pytest.mark.parametrize("pattern", OF_FILES)
@pytest.mark.parametrize("name", SOAK_COUNTY)
def test_every_value_of_a_universe_is_checked(runs, name: str, pattern: str) -> None:
    """Threat model: measurements altered or without noise."""
    run, (universe, level) = runs(name), UNIVERSES[name]
    place = pattern.format(u=universe, level=level)
    table = pq.read_table(run.root / place)
    for number, (change, wanted) in enumerate(OF_FILES[pattern]):
        with changed(run, place, written(change(table))):
            found = failed(run, universe)
        assert wanted in found if wanted else found, (number, found)


OF_TABLES = {
    "county": {
        "tables/140_tract": ("GEOCODE", "P0010003"),
        "tables/750_block": ("H0010002",),
    },
    "country": {"tables/AGE_SEX": ("count", "sex", "code", "name"), "tables/TENURE": ("count",)},
}
"""Columns of the tables of a release, of which one value is changed."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TABLES)
def test_every_table_is_checked(runs, name: str) -> None:
    run = runs(name)
    for stem, columns in OF_TABLES[name].items():
        place = f"release-unchecked/{stem}.parquet"
        table = pq.read_table(run.root / place)
        for column in columns:
            kind = table.schema.field(column).type
            change = more(column) if pa.types.is_integer(kind) else next_value(column)
            with changed(run, place, written(change(table))):
                assert TALLIED in failed(run, TABLES), (stem, column)
        for change in (without_row, twice):
            with changed(run, place, written(change(table))):
                assert TALLIED in failed(run, TABLES), stem


TEXTS = {
    "county": {
        "mdf_persons.csv": MICRODATA,
        "mdf_units.csv": MICRODATA,
        "tables/140_tract.csv": TALLIED,
        **{f"pl94171/nm0000{n}2020.pl": REPEATED for n in (1, 2, 3)},
        "pl94171/nmgeo2020.pl": REPEATED,
    },
    "country": {"mdf_persons.csv": MICRODATA, "tables/ADULTS.csv": TALLIED},
    "register": {"mdf_persons.csv": MICRODATA},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOAK_COUNTY, "register"])
def test_every_text_is_checked(runs, name: str) -> None:
    run = runs(name)
    for text, wanted in TEXTS[name].items():
        file = f"release-unchecked/{text}".replace("nm", _abbreviation(run))
        subject = text[4:-4] if text.startswith("mdf") else TABLES
        before = (run.root / file).read_bytes()
        last = before.rstrip()[-1:]
        for other in (None, b"", before[:-9], b"# NOT PRIVATE\n" + before, before + before[-20:]):
            with changed(run, file, other):
                assert wanted in failed(run, subject), (text, other and other[:20])
        digit = b"1" if last == b"0" else b"0"
        with changed(run, file, before.rstrip()[:-1] + digit + b"\n"):
            assert wanted in failed(run, subject), text


def _abbreviation(run: RunDirectory) -> str:
    folder = run.unchecked_release / "pl94171"
    return next(folder.iterdir()).name[:2] if folder.exists() else "nm"


PUBLIC = {
    "county": ("settings.toml", "spine/geography.parquet", "spine/invariants.parquet"),
    "country": ("settings.toml", "spine/state_totals.json", "spine/persons/shards.parquet"),
    "register": ("settings.toml", "spine/state_totals.json", "spine/invariants.parquet"),
}
"""Files that decide what is drawn, whatever else their values change."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_every_file_that_decides_is_that_of_the_plan(runs, name: str) -> None:
    run = runs(name)
    for file in PUBLIC[name]:
        before = (run.root / file).read_bytes()
        # Without its last settings the file names no universes.
        others = () if file == "settings.toml" else (None, b"", before[:-9])
        for other in (before + b"\n", *others):
            with changed(run, file, other):
                assert PRIVACY in failed(run, "release"), (file, other and len(other))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOAK_COUNTY, "register"])
def test_every_field_of_the_plan_is_checked(runs, name: str) -> None:
    run = runs(name)
    settings, n = frozen_settings(TopdownSettings, run.settings), 0
    assert noticed_in_plan(OWN, run, settings) == set()
    for place in fields_of_plan():
        for _ in corrupt_plan(run.root, place):
            n += 1
            assert wanted_by(place) in noticed_in_plan(OWN, run, settings), (place, n)
    assert n > 40


@pytest.mark.slow
def test_a_plan_of_other_settings_is_seen(runs) -> None:
    run = runs("country")
    settings = frozen_settings(TopdownSettings, run.settings)
    before = (run.root / "plan" / "plan.json").read_bytes()
    for other in (
        settings.with_budget("persons", rho=settings.budget["persons"].rho * 2),
        settings.with_section("privacy", infinite=True),
        settings.with_section("privacy", dataset="other"),
        settings.with_section("run", universes=("persons",)),
        settings.with_section("run", estimator="block_by_block"),
    ):
        write_unlike(OWN, run, other)
        assert PRIVACY in noticed_in_plan(OWN, run, settings)
    (run.root / "plan" / "plan.json").write_bytes(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_good_runs_pass_in_pieces_and_whole(runs, name: str) -> None:
    run = runs(name)
    for size in (0, 1 << 16):
        found = outcomes(run, size=size)
        assert [own for own in found if not own.passed] == []
    universes = CheckedRun(run.root, run.unchecked_release).declaration.universes
    assert {own.subject for own in found} == {*universes, "release"}


@pytest.mark.soak(8)
def test_files_of_other_forms_fail(runs, passes_when_damaged) -> None:
    run, unread = runs("country"), {"is_aian"}
    for place, universe in (
        ("spine/persons/geounits.parquet", "persons"),
        ("spine/persons/blocks.parquet", "persons"),
        ("estimates/persons/region/00000.parquet", "persons"),
        ("measurements/persons/region/dpqueries/00000.parquet", "persons"),
        ("measurements/persons/region/constraints/00000.parquet", "persons"),
        ("release-unchecked/mdf_dwellings.parquet", "dwellings"),
        ("release-unchecked/tables/ADULTS_margins.parquet", TABLES),
        ("release-unchecked/tables/ADULTS.parquet", TABLES),
    ):
        seen = partial(outcomes, run, universe)
        assert passes_when_damaged(run.root / place, seen, unread) == [], place


def test_wrong_structural_zeros_are_seen(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run whose code has them elsewhere: with the release's own arithmetic it would pass."""
    right = Schema.positions

    def wrong(schema: Schema, conditions: Any) -> dict[str, list[int]]:
        found = right(schema, conditions)
        return {**found, "age": found["age"][:1]} if "marital" in found else found

    monkeypatch.setattr(Schema, "positions", wrong)
    with pytest.raises(CheckFailed, match="structural zeros hold"):
        country(tmp_path)


@pytest.mark.slow
def test_noise_that_a_vast_budget_makes_nothing_is_no_noise(tmp_path) -> None:
    """Its variance underflows, so that measurements are exact however finite the loss is."""
    with pytest.raises(CheckFailed, match="noise is what its loss pays for"):
        county(tmp_path, '[budget.units]\nrho = "1000000000000"\n')
