"""Published measurements are read as they come, and refused where they are wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.published.read import check_measurements

PERSONS, UNITS = "US_Person_PL_PROD", "US_Unit_PL_PROD"


def a_file(folder: Path, geolevel: str, kind: str = "DPQuery", universe: str = PERSONS) -> str:
    """Name of the first file of a kind at a geolevel."""
    found = sorted((folder / universe / f"{geolevel}.parquet" / kind).rglob("*.parquet"))
    return found[0].relative_to(folder).as_posix()


def with_column(table: pa.Table, name: str, column: pa.Array | list) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, [column])


def first_row(table: pa.Table, name: str, value: object) -> pa.Table:
    """The table with another value in the first row of a column."""
    kind = table.schema.field(name).type
    column = pa.concat_arrays(
        [pa.array([value], kind), *(chunk for chunk in table[name].slice(1).chunks)]
    )
    return with_column(table, name, column)


def test_shuffled_rows_are_put_in_order(export, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(export.folder, copy)
    (copy / "measured.toml").unlink()
    rng = np.random.default_rng(1)
    for path in copy.rglob("DPQuery/**/*.parquet"):
        table = pq.ParquetFile(path).read()
        pq.write_table(table.take(pa.array(rng.permutation(table.num_rows))), path)
    settings = export.settings(copy)
    run = prepare(settings, tmp_path / "run")
    call_stages(run, settings, before=" (estimate|combine) ")
    measured = sorted((export.run.root / "measurements").rglob("dpqueries/*.parquet"))
    assert measured
    for path in measured:
        again = run.root / path.relative_to(export.run.root)
        one, other = (pq.read_table(file).drop_columns("geocode") for file in (again, path))
        assert one.equals(other), path


def refusal(export, folder: Path, *overrides: str) -> str:
    with pytest.raises(InputRefused) as refused:
        check_measurements(export.settings(folder, *overrides))
    sentence = str(refused.value)
    assert re.fullmatch(r"[^\n]+\.", sentence)
    return sentence


@pytest.mark.parametrize(
    ("geolevel", "kind", "edit", "words"),
    [
        ("Block", "DPQuery", lambda t: t.slice(1), "was measured, but not with the query"),
        ("Block", "DPQuery", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "twice"),
        ("Block", "DPQuery", lambda t: first_row(t, "variance", 0.0), "the variance 0 of"),
        ("Block", "DPQuery", lambda t: first_row(t, "variance", -3.0), "the variance -3 of"),
        ("Block", "DPQuery", lambda t: first_row(t, "value", [1, 2, 3, 4, 5]), "do not have"),
        ("Block", "DPQuery", lambda t: first_row(t, "query_shape", [9, 9]), "the shape"),
        ("Block", "DPQuery", lambda t: first_row(t, "geocode", "0"), "has no constraints"),
        ("Block", "DPQuery", lambda t: first_row(t, "query_name", "hhgq * cenrace_dpq"), "ask"),
        ("Block", "DPQuery", lambda t: t.drop_columns(["variance"]), "no column 'variance'"),
        ("Block", "Constraint", lambda t: t.slice(1), "no constraint"),
        ("Block", "Constraint", lambda t: first_row(t, "value", [1]), "values"),
        ("Block", "Constraint", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "twice"),
        ("Block", "Constraint", lambda t: first_row(t, "value", [3] * 8), "persons a facility"),
        ("Block", "Constraint", lambda t: first_row(t, "query_name", "odd_con"), "odd_con"),
        ("Tract", "Constraint", lambda t: first_row(t, "value", [0] * 7 + [9]), "is not the sum"),
        ("Tract", "Constraint", lambda t: first_row(t, "geocode", "9" * 12), "no geounit of Coun"),
        ("US", "DPQuery", lambda t: t.slice(0, 0), "do not use up the budget"),
    ],
)
def test_what_is_wrong_is_refused_with_its_file_and_geounit(
    export, changed, geolevel, kind, edit, words
):
    name = a_file(export.folder, geolevel, kind)
    copy = changed(name, edit)
    sentence = refusal(export, copy)
    assert words in sentence, sentence
    assert re.search(r"geounit \S*\d|column 'variance'", sentence), sentence
    assert "parquet" in sentence or "changed" in sentence


def test_files_that_cannot_be_read_or_are_missing_are_refused(export, changed, tmp_path):
    name = a_file(export.folder, "Block")
    copy = changed(name, lambda table: table)
    (copy / name).write_bytes(b"PAR1 and nothing more")
    assert "Parquet" in refusal(export, copy) and name in refusal(export, copy)
    shutil.rmtree(copy / PERSONS / "Block.parquet")
    assert "persons at Block" in refusal(export, copy)
    shutil.rmtree(copy / PERSONS / "US.parquet")
    words = f"{PERSONS} has no US.parquet: the measurements of the geolevel US"
    with pytest.raises(InputRefused, match=words):
        export.settings(copy)
    with pytest.raises(InputRefused, match="is no folder"):
        export.settings(tmp_path / "nothing")


def test_a_geounit_in_the_partition_of_another_state_is_refused(export, changed):
    name = a_file(export.folder, "Tract", "Constraint")
    copy = changed(name, lambda table: table)
    folder = (copy / name).parent
    folder.rename(folder.with_name("State=156"))
    assert "another state" in refusal(export, copy)


def test_another_budget_is_refused_unless_the_settings_give_it(export, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(export.folder, copy)
    (copy / "measured.toml").unlink()
    check_measurements(export.settings(copy))
    sentence = refusal(export, copy, "budget.persons.rho='1'")
    assert "does not follow from budget.persons" in sentence
    assert "block_by_block" not in sentence
    assert "does not ask" in refusal(export, copy, "run.estimator=block_by_block")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"x = [", "measured.toml is not valid TOML"),
        (b"x = " + b"[" * 100_000, "too deep within each other"),
        (b"\xff", "measured.toml is not UTF-8"),
        (b"[privacy]\nseed = 1\n", "names no dataset"),
    ],
)
def test_what_is_told_beside_measurements_and_cannot_be_read_is_refused(
    export, tmp_path, text: bytes, words: str
):
    copy = tmp_path / "copy"
    shutil.copytree(export.folder, copy)
    (copy / "measured.toml").write_bytes(text)
    with pytest.raises(InputRefused, match=words):
        export.settings(copy)


@pytest.mark.slow
def test_state_totals_are_needed_and_must_be_those_of_the_nation(export, tmp_path):
    with pytest.raises(InputRefused, match="input.state_totals"):
        check_measurements(export.settings(export.folder, totals=False))
    totals = tmp_path / "totals.csv"
    for text, words in (
        ("geocode,value\n01,4\n", "has no total of state"),
        ("geocode,total\n01,4\n", "cannot be read"),
        ((export.folder / "state_totals.csv").read_text().rstrip("\n") + "0\n", "is not the sum"),
    ):
        totals.write_text(text)
        assert words in refusal(export, export.folder, f"input.state_totals={totals}")
