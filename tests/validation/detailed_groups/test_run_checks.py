"""Sound runs pass every check, under all settings; each corruption fails the one for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import CheckFailed
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.validation.detailed_groups.group_counts import (
    COMPLETE,
    COUNTS,
    FILES,
    LOSS,
    MARGINS,
    ROWS,
    SHOWN,
    SIGNS,
    TABLES,
)
from spineflow.validation.detailed_groups.run_checks import CHECKS, run_checks
from spineflow.validation.plan import sha256

from tests.validation.detailed_groups.conftest import EVERYTHING, Make
from tests.validation.mutations import (
    PRIVACY,
    Place,
    corrupt_plan,
    fields_of_plan,
    noticed,
    noticed_in_plan,
    wanted_by,
)

PERSONS, HOUSEHOLDS = "detailed-groups", "detailed-households"
REVERSED = (
    'summary_levels = ["PR-PLACE", "PR-TRACT", "PR-COUNTY", "PR-STATE", "AIANNH", "PLACE", '
    '"TRACT", "COUNTY", "STATE", "USA"]\n'
)
ALONE = "coterminous = true\nsuppress_alone_above_combination = true\n"
VARIANTS = [
    (PERSONS, f"[mechanism]\n{EVERYTHING}{REVERSED}"),
    (PERSONS, '[mechanism]\ndefinition = "puredp"\nconfidence = "0.9"\ncoterminous = true\n'),
    (PERSONS, f"infinite = true\n[mechanism]\n{EVERYTHING}"),
    (PERSONS, 'seed = 3\n[mechanism]\nzero_suppression_chance = "0"\n'),
    (
        PERSONS,
        '[mechanism]\nzero_suppression_chance = "0.2"\nmax_race_codes = 2\n'
        'stage_1_fraction = "1/3"\nrun_us = false\n',
    ),
    ("tables", f"[mechanism]\nunits_are_invariant = true\n{ALONE}"),
    (HOUSEHOLDS, '[mechanism]\ndefinition = "puredp"\nconfidence = "9/10"\n'),
    (HOUSEHOLDS, "seed = 6\n[mechanism.thresholds.t3]\nTRACT = {2 = [-5, 0, 4]}\n"),
]
"""Settings that matter for noise, or for what comes afterwards, other than those of runs elsewhere,
all of which are checked."""


def failed(root: Path) -> dict[str, str]:
    outcomes = run_checks(root, root / "release-unchecked")
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "further"), VARIANTS)
def test_sound_runs_pass(released: Make, name: str, further: str) -> None:
    run = released(name, further)
    shutil.rmtree(run.confidential)
    assert failed(run.root) == {}


@pytest.fixture
def damaged(request, tmp_path: Path) -> Callable[[str], Path]:
    """Function from the name of a sound run to a copy of it, to be damaged."""

    def copied(name: str) -> Path:
        return shutil.copytree(request.getfixturevalue(name).root, tmp_path / "run")

    return copied


def test_sound_runs_have_everything(persons, tables, households) -> None:
    """What the damages below are done to is there."""
    for run, n_tables in ((persons, 4), (tables, 3), (households, 4)):
        assert failed(run.root) == {}
        tidy = pq.read_table(next(run.unchecked_release.glob("*.parquet")))
        assert len(tidy["table"].unique()) >= n_tables
        assert pc.any(pc.greater(tidy["margin_if_cut"], tidy["margin"])).as_py()
    assert not pc.all(pc.equal(tidy["category_code"], 0)).as_py()


Change = Callable[[pa.Table], pa.Table]


def first(column: str, value: object) -> Change:
    """Another value in the first row; a function of the value that stands there, or the value."""

    def change(table: pa.Table) -> pa.Table:
        values, position = table[column].to_pylist(), table.schema.get_field_index(column)
        values[0] = value(values[0]) if callable(value) else value
        array = pa.array(values).cast(table.schema.field(position).type)
        return table.set_column(position, table.schema.field(position), array)

    return change


def all_below_threshold(table: pa.Table) -> pa.Table:
    """In every row: whether the group of the first one is shown is up to the noise."""
    position = table.schema.get_field_index("value")
    values = [[own[0] - 10**6, *own[1:]] for own in table["value"].to_pylist()]
    field = table.schema.field(position)
    return table.set_column(position, field, pa.array(values, field.type))


def lost(table: pa.Table) -> pa.Table:
    return table.slice(1)


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


def above(value: int) -> int:
    return value + 1


def of_a_sex(column: str, value: object) -> Change:
    """As `first`, in the first row of men, which is a marginal."""

    def change(table: pa.Table) -> pa.Table:
        at = int(np.argmax(pc.equal(table["sex"], "male").to_numpy()))
        changed = first(column, value)(table.slice(at))
        return pa.concat_tables([table.slice(0, at), changed])

    return change


TRACTS = "measurements/detailed_groups/us/TRACT/2/00000.parquet"
TOTALS = "measurements/detailed_groups_stage_1/us/TRACT/2/00000.parquet"
TYPES = "measurements/detailed_households/t3/us/COUNTY/2/00000.parquet"
TENURES = "measurements/detailed_households/t4/us/COUNTY/2/00000.parquet"
GROUPS, HOUSED = (
    f"release-unchecked/{name}.parquet" for name in ("population_groups", "detailed_households")
)
DAMAGE: list[tuple[str, str, Change, str]] = [
    *(
        (run, file, change, COMPLETE)
        for run, file in (("persons", TOTALS), ("households", TYPES))
        for change in (lost, twice, first("region_id", "99999999999"))
    ),
    *(
        (run, file, change, LOSS)
        for run, file in (("persons", TOTALS), ("households", TYPES))
        for change in (first("plb", "1/7"), first("plb", "inf"), first("variance", 3.25))
    ),
    ("persons", TOTALS, first("value", lambda own: own + 10**6), TABLES),
    ("persons", TRACTS, first("table", lambda own: (own + 1) % 4), COMPLETE),
    ("persons", TRACTS, first("total_only", lambda own: not own), COMPLETE),
    ("persons", TRACTS, all_below_threshold, SHOWN),
    ("persons", TRACTS, first("region_type", "COUNTY"), COMPLETE),
    ("persons", GROUPS, first("count", 12345), COUNTS),
    ("persons", GROUPS, of_a_sex("count", 12345), COUNTS),
    ("persons", GROUPS, first("sex", "male"), ROWS),
    ("persons", GROUPS, of_a_sex("age_start", 0), ROWS),
    ("persons", GROUPS, of_a_sex("age_end", -1), ROWS),
    ("persons", GROUPS, first("table", "T02002"), ROWS),
    ("persons", GROUPS, first("table", "T03001"), ROWS),
    ("persons", GROUPS, first("region_id", "nowhere"), SHOWN),
    ("persons", GROUPS, first("measured_at", "AIANNH"), MARGINS),
    *(
        ("persons", GROUPS, where(column, lambda own, by=by: own + by), MARGINS)
        for where in (first, of_a_sex)
        for column, by in (("margin", 1), ("margin", -1), ("margin_if_cut", 1), ("variance", 0.5))
    ),
    ("households", "spine/group_totals.parquet", first("count", -5), TABLES),
    ("households", "spine/group_totals.parquet", lost, COMPLETE),
    ("households", HOUSED, first("margin", above), MARGINS),
    ("households", HOUSED, first("count", above), COUNTS),
    ("households", HOUSED, first("category_code", 5), ROWS),
    ("households", HOUSED, first("category_code", -1), ROWS),
    ("households", HOUSED, first("table", "T05001"), ROWS),
    ("households", HOUSED, lost, ROWS),
]


@pytest.mark.parametrize(("run", "name", "change", "check"), DAMAGE)
def test_damage_fails_the_check_for_it(damaged, run: str, name: str, change, check: str) -> None:
    root = damaged(run)
    table = pq.read_table(root / name)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), root / name)
    assert check in failed(root)


def other_count(by: int) -> Callable[[str], str]:
    def change(line: str) -> str:
        *rest, count = line.split("|")
        return "|".join([*rest, str(int(count) + by)])

    return change


TEXTS: list[tuple[str, str, Callable[[list[str]], list[str]], str]] = [
    ("persons", "t1.csv", lambda rows: rows[1:], ROWS),
    ("persons", "t1.csv", lambda rows: [*rows, rows[0]], ROWS),
    ("persons", "t1.csv", lambda rows: ["44|STATE|0000|5", *rows], SHOWN),
    ("persons", "t1.csv", lambda rows: [other_count(1)(rows[0]), *rows[1:]], COUNTS),
    ("persons", "t1.csv", lambda rows: [other_count(-(10**9))(rows[0]), *rows[1:]], SIGNS),
    ("persons", "t2.csv", lambda rows: rows[1:], ROWS),
    ("persons", "t2.csv", lambda rows: [*rows[1:], rows[-1]], ROWS),
    ("persons", "t2.csv", lambda rows: [rows[0].replace("|*|*|", "|0|115|"), *rows[1:]], ROWS),
    ("persons", "t2.csv", lambda rows: [rows[0].replace("|*|*|", "|x|y|"), *rows[1:]], ROWS),
    ("persons", "t2.csv", lambda rows: ["44|STATE|0000|0|17|1|5", *rows], SHOWN),
    ("persons", "t2.csv", lambda rows: [*map(other_count(1), rows[:1]), *rows[1:]], COUNTS),
    ("persons", "t2.csv", lambda rows: [*rows[:-1], other_count(1)(rows[-1])], COUNTS),
    ("households", "t3.csv", lambda rows: rows[:-1], SHOWN),
    ("households", "t3.csv", lambda rows: [*rows[:-1], other_count(1)(rows[-1])], COUNTS),
    ("households", "t4.csv", lambda rows: [*rows[:-1], other_count(-(10**9))(rows[-1])], SIGNS),
]


@pytest.mark.parametrize(("run", "name", "change", "check"), TEXTS)
def test_other_text_fails_the_check_for_it(damaged, run: str, name: str, change, check) -> None:
    root = damaged(run)
    path = root / "release-unchecked" / name
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *change(rows)]) + "\n")
    assert "the text files" in failed(root)[check]


@pytest.mark.parametrize(("run", "name"), [("persons", "t1.csv"), ("households", "t4.csv")])
def test_a_stamp_that_is_not_due(damaged, run: str, name: str) -> None:
    root = damaged(run)
    path = root / "release-unchecked" / name
    path.write_text(f"# NOT PRIVATE\n{path.read_text()}")
    assert set(failed(root)) == {FILES}


def test_files_of_measurements_of_no_level(damaged) -> None:
    root = damaged("persons")
    extra = root / "measurements/detailed_groups/us/TRACT/3/00000.parquet"
    extra.parent.mkdir()
    shutil.copy(root / TRACTS, extra)
    assert set(failed(root)) == {COMPLETE}


def test_a_failed_check_withholds_the_release(damaged) -> None:
    run = RunDirectory(damaged("persons"))
    path = run.unchecked_release / "t1.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(CheckFailed, match="groups"):
        product(PERSONS).check_run(run, frozen_settings(product(PERSONS).settings, run.settings))
    assert (run.checks / "checks.json").exists()


@pytest.mark.parametrize("place", fields_of_plan(), ids=".".join)
@pytest.mark.parametrize("name", ["tables", "households"])
def test_every_field_of_the_plan_is_checked(request, name: str, place: Place) -> None:
    run = request.getfixturevalue(name)
    own = product(HOUSEHOLDS if name == "households" else PERSONS)
    settings = frozen_settings(own.settings, run.settings)
    n = 0
    for _ in corrupt_plan(run.root, place):
        n += 1
        assert wanted_by(place) in noticed_in_plan(own, run, settings), n
    assert n > 0
    assert noticed_in_plan(own, run, settings) == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tables", "households"])
def test_every_file_is_checked(request, name: str) -> None:
    run = request.getfixturevalue(name)
    own = product(HOUSEHOLDS if name == "households" else PERSONS)
    settings = frozen_settings(own.settings, run.settings)
    public = [run.settings, *(run.root / folder for folder in ("plan", "parameters", "spine"))]
    rest = [*(run.root / "measurements").rglob("COUNTY/2/*.parquet"), run.unchecked_release]
    found = [path for own in (*public, *rest) for path in [own, *own.rglob("*")] if path.is_file()]
    unread = {"region_names.json", "charged.json"}
    for file in (path for path in found if path.name not in unread):
        before = file.read_bytes()
        is_public = not {"measurements", "release-unchecked"} & set(file.parts)
        for other in (before[:-9], before + b"1\n", None):
            file.unlink() if other is None else file.write_bytes(other)
            seen = noticed(own, run, settings)
            assert (PRIVACY in seen) if is_public else seen, (file, other)
        file.write_bytes(before)
    assert noticed(own, run, settings) == set()


OTHER_SETTINGS = [
    ("persons", 'dataset = "people"', 'dataset = "others"'),
    ("persons", "infinite = false", "infinite = true"),
    ("persons", "[mechanism]", '[mechanism]\ndefinition = "puredp"'),
    ("persons", "[mechanism]", "[mechanism]\nmax_race_codes = 5"),
    ("persons", "[mechanism]", '[mechanism]\nstage_1_fraction = "1/5"'),
    ("persons", "[mechanism]", "[mechanism]\nrun_pr = false"),
    ("persons", "[mechanism.budgets]", '[mechanism.budgets]\nTRACT = {2 = "1/3"}'),
    ("persons", "[mechanism.budgets]", '[mechanism.budgets]\nTRACT = {2 = "0"}'),
    ("persons", "[mechanism.budgets]", '[mechanism.budgets]\nAIANNH = {1 = "1/3"}'),
    ("tables", "units_are_invariant = true", "units_are_invariant = false"),
    ("households", "[mechanism.budgets]", '[mechanism.budgets]\nt3 = {TRACT = {2 = "1/3"}}'),
    (
        "households",
        "[mechanism.thresholds]",
        "[mechanism.thresholds]\nt3 = {TRACT = {2 = [0, 1, 2]}}",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), OTHER_SETTINGS)
def test_a_plan_of_other_settings_is_seen(damaged, name: str, before: str, after: str) -> None:
    """Its fields agree with each other, and with every file that it names."""
    root = damaged(name)
    path, plan = root / "settings.toml", root / "plan" / "plan.json"
    text, was = path.read_text(), sha256(path)
    assert before in text
    path.write_text(text.replace(before, after))
    plan.write_text(plan.read_text().replace(was, sha256(path)))
    assert PRIVACY in failed(root)
    assert "is not the file" not in failed(root)[PRIVACY]


@pytest.mark.parametrize(
    ("before", "after", "check"),
    [
        ("allow_negative_counts = false", "allow_negative_counts = true", COUNTS),
        ('zero_suppression_chance = "19/20"', 'zero_suppression_chance = "1/20"', SHOWN),
        ("coterminous = true", "coterminous = false", COUNTS),
        ("suppress_alone_above_combination = true", "", SHOWN),
        ("[mechanism]", '[mechanism]\nconfidence = "9/10"', MARGINS),
        ("[mechanism.thresholds]", "[mechanism.thresholds]\nTRACT = {2 = [0, 1, 2]}", TABLES),
        ("[privacy]", "[privacy]\nseed = 3", FILES),
    ],
)
def test_a_release_of_other_settings_is_seen(damaged, before: str, after: str, check: str) -> None:
    root = damaged("persons")
    path = root / "settings.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    assert check in failed(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("tables", "measurements/detailed_groups/us/STATE/1/00000.parquet"),
        ("tables", "measurements/detailed_groups_stage_1/us/STATE/1/00000.parquet"),
        ("tables", GROUPS),
        ("tables", "release-unchecked/t1.csv"),
        ("tables", "release-unchecked/t2.csv"),
        ("households", "spine/group_totals.parquet"),
        ("households", TENURES),
        ("households", HOUSED),
        ("households", "release-unchecked/t4.csv"),
    ],
)
def test_unusable_files_fail(damaged, passes_when_damaged, run: str, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""
    root = damaged(run)
    unread = set()
    if name in (GROUPS, HOUSED):
        unread = {"region_name", "iteration_name", "iteration_level", "category"}
    outcomes = passes_when_damaged(
        root / name, lambda: run_checks(root, root / "release-unchecked"), unread
    )
    assert outcomes == []
