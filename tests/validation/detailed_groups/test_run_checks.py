"""A sound run passes every check, under all settings; each kind of damage fails the one for it."""

from __future__ import annotations

import dataclasses
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.detailed_groups.checks.expected import expected_run
from spineflow.tasks.detailed_groups.postprocess.run import postprocess, stages_of
from spineflow.tasks.detailed_groups.product import DETAILED_GROUPS
from spineflow.tasks.detailed_groups.release.files import write_run_release
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import CheckFailed
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.validation.detailed_groups.run_checks import CHECKS, run_checks

EVERYTHING = (
    "mechanism.coterminous=true",
    "mechanism.suppress_alone_above_combination=true",
    "mechanism.allow_negative_counts=false",
    'mechanism.zero_suppression_chance="0.95"',
)
PURE, NO_NOISE = ('mechanism.definition="puredp"',), ("privacy.infinite=true",)
VARIANTS = {
    "plain": ((), ()),
    "everything": ((), EVERYTHING),
    "other order": (
        (),
        (
            *EVERYTHING,
            'mechanism.summary_levels=["PR-PLACE", "PR-TRACT", "PR-COUNTY", "PR-STATE", "AIANNH", '
            '"PLACE", "TRACT", "COUNTY", "STATE", "USA"]',
        ),
    ),
    "cell by cell": ((), (EVERYTHING[0], "mechanism.suppress_alone_above_combination=cells")),
    "pure": (PURE, EVERYTHING[:2]),
    "no noise": (NO_NOISE, EVERYTHING[:2]),
    "nothing suppressed": ((), ("mechanism.zero_suppression_chance=0",)),
    "rarely suppressed": ((), ('mechanism.zero_suppression_chance="0.2"', EVERYTHING[2])),
}
"""Overrides of the settings that matter for the noise, and of those that come in afterwards."""


def released(measured_groups, folder: Path, measured=(), later=()):
    """A copy of a measured run with its postprocessing done and its release written."""
    run, _ = measured_groups(*measured)
    file = run.root.parent / "settings.toml"
    settings = load_settings(
        DetailedGroupsSettings, file, presets=file.parent, overrides=(*measured, *later)
    )
    shutil.copytree(run.root, folder)
    run = RunDirectory(folder)
    for stage in stages_of(settings):
        for region_pass in ("us", "pr"):
            postprocess(run, settings, region_pass, stage)
    write_run_release(run, settings)
    return run, settings


def failed(run: RunDirectory, expected) -> dict[str, str]:
    outcomes = run_checks(run.root, expected, run.unchecked_release)
    assert [outcome.name for outcome in outcomes] == list(CHECKS)
    return {outcome.name: outcome.detail for outcome in outcomes if not outcome.passed}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sound_run_passes(measured_groups, tmp_path: Path, variant: str) -> None:
    run, settings = released(measured_groups, tmp_path / "run", *VARIANTS[variant])
    outcomes = DETAILED_GROUPS.check_run(run, settings)
    assert all(outcome.passed for outcome in outcomes)
    tidy = pq.read_table(run.unchecked_release / "population_groups.parquet")
    shown = set(tidy["table"].unique().to_pylist())
    assert shown == {"T01001", "T02001", "T02002", "T02003"}


@pytest.fixture(scope="module")
def sound(measured_groups, tmp_path_factory):
    run, settings = released(
        measured_groups, tmp_path_factory.mktemp("sound") / "run", later=EVERYTHING
    )
    return run, settings, expected_run(run, settings)


@pytest.fixture
def damaged(sound, tmp_path: Path):
    """A copy of the sound run, and what it promises."""
    run, _, expected = sound
    shutil.copytree(run.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run"), expected


def edit_text(run: RunDirectory, name: str, edit) -> None:
    path = run.unchecked_release / name
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], *edit(lines[2:])]) + "\n")


def edit_parquet(path: Path, edit) -> None:
    table = pq.read_table(path)
    pq.write_table(edit(table).replace_schema_metadata(table.schema.metadata), path)


def tract_file(run: RunDirectory) -> Path:
    return next((run.root / "measurements/detailed_groups/us/TRACT/2").glob("*.parquet"))


def with_column(table: pa.Table, name: str, values) -> pa.Table:
    position = table.schema.get_field_index(name)
    return table.set_column(position, table.schema.field(position), values.cast(table[name].type))


def changed_last_field(line: str, by: int) -> str:
    *rest, count = line.split("|")
    return "|".join([*rest, str(int(count) + by)])


@pytest.mark.slow
def test_the_sound_run_has_everything(sound) -> None:
    run, settings, expected = sound
    assert failed(run, expected) == {}
    assert any(expected.coterminous.values())
    assert expected.counterparts


def test_a_group_measured_twice_or_never(damaged) -> None:
    run, expected = damaged
    edit_parquet(tract_file(run), lambda t: pa.concat_tables([t, t.slice(5, 1)]))
    assert "was measured 2 times" in failed(run, expected)["measurements_are_complete"]
    edit_parquet(tract_file(run), lambda t: t.slice(7))
    assert "was measured 0 times" in failed(run, expected)["measurements_are_complete"]


def test_a_group_outside_the_universe(damaged) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        foreign = with_column(table.slice(0, 1), "region_id", pa.array(["99999999999"]))
        return pa.concat_tables([table, foreign])

    edit_parquet(tract_file(run), edit)
    assert set(failed(run, expected)) == {"measurements_are_complete"}


def test_another_table_than_the_number_of_counts(damaged) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        changed = table["table"].to_numpy().copy()
        changed[changed == 0] = np.where(np.arange((changed == 0).sum()) == 0, 1, 0)
        return with_column(table, "table", pa.array(changed))

    edit_parquet(tract_file(run), edit)
    assert "another number of counts" in failed(run, expected)["measurements_are_complete"]


@pytest.mark.parametrize(
    ("column", "value"), [("plb", "1/7"), ("plb", "inf"), ("variance", 3.25), ("variance", 0.0)]
)
def test_another_loss_or_variance(damaged, column: str, value: object) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        return with_column(table, column, pa.array([value, *values[1:]]))

    edit_parquet(tract_file(run), edit)
    assert set(failed(run, expected)) == {"measured_loss_is_the_budget"}


@pytest.mark.parametrize("field", ["budget", "stage_1_fraction", "stability"])
def test_another_promise(sound, field: str) -> None:
    run, _, expected = sound
    if field == "stage_1_fraction":
        expected = dataclasses.replace(expected, stage_1_fraction=Fraction(1, 5))
    else:
        levels = [
            dataclasses.replace(level, **{field: getattr(level, field) * 2})
            for level in expected.levels
        ]
        expected = dataclasses.replace(expected, levels=tuple(levels))
    assert "measured_loss_is_the_budget" in failed(run, expected)


def first_stage_file(run: RunDirectory) -> Path:
    return next((run.root / "measurements/detailed_groups_stage_1/us/TRACT/2").glob("*.parquet"))


@pytest.mark.parametrize(
    ("column", "by", "check"),
    [
        ("value", 10**6, "tables_follow_the_first_stage"),
        ("variance", 1.0, "measured_loss_is_the_budget"),
    ],
)
def test_a_damaged_first_stage(damaged, column: str, by: float, check: str) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        values = table[column].to_numpy().copy()
        values[0] += by
        return with_column(table, column, pa.array(values))

    edit_parquet(first_stage_file(run), edit)
    assert set(failed(run, expected)) == {check}


def test_a_first_stage_that_is_missing(damaged) -> None:
    run, expected = damaged
    edit_parquet(first_stage_file(run), lambda t: t.slice(1))
    assert "0 totals of the first stage" in failed(run, expected)["measurements_are_complete"]


def test_a_group_that_should_be_suppressed(damaged) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        small = pc.and_(pc.equal(table["table"], 0), pc.invert(table["total_only"]))
        first = int(np.argmax(small.to_numpy()))
        values = table["value"].to_pylist()
        values[first] = [-50]
        return with_column(table, "value", pa.array(values, table["value"].type))

    edit_parquet(tract_file(run), edit)
    # The margin that was released is of a count which, by the files, should not be there.
    possible = {"groups_shown_follow_the_rules", "totals_add_up", "margins_are_those_of_the_noise"}
    assert failed(run, expected).keys() <= possible


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (lambda rows: rows[1:], "groups_shown_follow_the_rules"),
        (lambda rows: [*rows, rows[0]], "groups_shown_follow_the_rules"),
        (lambda rows: ["44|STATE|0000|5", *rows], "groups_shown_follow_the_rules"),
        (lambda rows: [changed_last_field(rows[0], 1), *rows[1:]], "totals_add_up"),
        (
            lambda rows: [changed_last_field(rows[0], -(10**9)), *rows[1:]],
            "counts_are_not_negative",
        ),
    ],
)
def test_damaged_totals(damaged, edit, check: str) -> None:
    run, expected = damaged
    edit_text(run, "t1.csv", edit)
    found = failed(run, expected)
    assert "the text files" in found[check]
    assert set(found) <= {check, "totals_add_up"}


def first_cell(rows: list[str], *, marginal: bool) -> int:
    return next(i for i, row in enumerate(rows) if ("|*|*|" in row) == marginal)


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (lambda rows: rows[1:], "keys_are_complete"),
        (lambda rows: [*rows[1:], rows[-1]], "keys_are_complete"),
        (lambda rows: [rows[0].replace("|*|*|", "|0|115|"), *rows[1:]], "keys_are_complete"),
        (lambda rows: ["44|STATE|0000|0|17|1|5", *rows], "keys_are_complete"),
        (lambda rows: _changed(rows, marginal=True), "marginals_add_up"),
        (lambda rows: _changed(rows, marginal=False), "cells_are_those_measured"),
    ],
)
def test_damaged_cells(damaged, edit, check: str) -> None:
    run, expected = damaged
    edit_text(run, "t2.csv", edit)
    found = failed(run, expected)
    assert "the text files" in found[check]
    assert set(found) == {check}


def _changed(rows: list[str], *, marginal: bool) -> list[str]:
    position = first_cell(rows, marginal=marginal)
    rows[position] = changed_last_field(rows[position], 1)
    return rows


@pytest.mark.parametrize(
    ("column", "value", "check"),
    [
        ("count", 12345, "totals_add_up"),
        ("sex", "male", "keys_are_complete"),
        ("table", "T02002", "keys_are_complete"),
        ("region_id", "nowhere", "groups_shown_follow_the_rules"),
    ],
)
def test_a_damaged_tidy_file(damaged, column: str, value: object, check: str) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        array = pa.array([value, *values[1:]])
        return with_column(table, column, array)

    edit_parquet(run.unchecked_release / "population_groups.parquet", edit)
    assert "population_groups.parquet" in failed(run, expected)[check]


def test_stamps(damaged) -> None:
    run, expected = damaged
    text = run.unchecked_release / "t1.csv"
    text.write_text(text.read_text().split("\n", 1)[1])
    assert set(failed(run, expected)) == {"files_agree"}
    private = dataclasses.replace(expected, is_private=True)
    assert "t2.csv should be without the stamp" in failed(run, private)["files_agree"]


@pytest.mark.parametrize("name", ["t1.csv", "t2.csv", "population_groups.parquet"])
def test_a_missing_or_foreign_file(damaged, name: str) -> None:
    run, expected = damaged
    path = run.unchecked_release / name
    path.write_text("a|b\n1|2\n")
    assert set(failed(run, expected)) == set(CHECKS)
    path.unlink()
    text = failed(run, expected)["totals_add_up"]
    assert name in text and "is missing" in text


@pytest.mark.parametrize("name", ["release-unchecked/population_groups.parquet", "measurements"])
def test_a_missing_column(damaged, name: str) -> None:
    run, expected = damaged
    path = tract_file(run) if name == "measurements" else run.root / name
    edit_parquet(path, lambda table: table.drop_columns(["region_id"]))
    assert "has no column region_id" in failed(run, expected)["totals_add_up"]


def tidy_file(run: RunDirectory) -> Path:
    return run.unchecked_release / "population_groups.parquet"


@pytest.mark.parametrize("sex", ["total", "male"])
@pytest.mark.parametrize(
    ("column", "by"), [("margin", 1), ("margin", -1), ("margin_if_cut", 1), ("variance", 0.5)]
)
def test_another_margin_than_that_of_the_noise(damaged, sex: str, column: str, by: float) -> None:
    run, expected = damaged

    def edit(table: pa.Table) -> pa.Table:
        values = table[column].to_numpy().copy()
        values[np.argmax(pc.equal(table["sex"], sex).to_numpy())] += by
        return with_column(table, column, pa.array(values))

    edit_parquet(tidy_file(run), edit)
    assert set(failed(run, expected)) == {"margins_are_those_of_the_noise"}


def test_margins_at_another_confidence_or_place(damaged) -> None:
    run, expected = damaged
    other = dataclasses.replace(expected, confidence=Fraction(9, 10))
    assert set(failed(run, other)) == {"margins_are_those_of_the_noise"}
    places = pq.read_table(tidy_file(run))["measured_at"].to_pylist()
    elsewhere = pa.array(["AIANNH", *places[1:]]).dictionary_encode()
    edit_parquet(tidy_file(run), lambda table: with_column(table, "measured_at", elsewhere))
    assert "says that it was elsewhere" in failed(run, expected)["margins_are_those_of_the_noise"]


def test_a_tidy_file_of_an_earlier_version_has_no_margins(damaged) -> None:
    run, expected = damaged
    edit_parquet(tidy_file(run), lambda table: table.drop_columns(["margin", "margin_if_cut"]))
    assert failed(run, expected) == {}


def test_a_failed_check_withholds_the_release(damaged, sound) -> None:
    run, _ = damaged
    edit_text(run, "t1.csv", lambda rows: rows[1:])
    with pytest.raises(CheckFailed, match="'groups shown follow the rules' of population groups"):
        DETAILED_GROUPS.check_run(run, sound[1])
    assert (run.checks / "checks.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "measurements/detailed_groups/us/STATE/1/*.parquet",
        "measurements/detailed_groups_stage_1/us/STATE/1/*.parquet",
        "release-unchecked/population_groups.parquet",
        "release-unchecked/t1.csv",
        "release-unchecked/t2.csv",
    ],
)
def test_unusable_files_fail(damaged, passes_when_damaged, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""
    run, expected = damaged

    def outcomes():
        return run_checks(run.root, expected, run.unchecked_release)

    unread = ()
    if "population_groups" in name:
        # Files of earlier versions have no margins.
        unread = {"region_name", "iteration_name", "iteration_level", "margin", "margin_if_cut"}
    assert passes_when_damaged(next(run.root.glob(name)), outcomes, unread) == []
