"""Runs that are measured on demand: what is drawn, checked, and refused as it needs all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.store import open_ledger, reading
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.product import TOPDOWN

from tests.flows.conformance.cases import ON_DEMAND
from tests.validation.mutations import checked

pytestmark = pytest.mark.slow


@pytest.fixture
def finished(finished_run) -> RunDirectory:
    """A private run on demand, with its ledger beside it; not to be changed."""
    return finished_run("on demand").run


def measured_values(run: RunDirectory) -> int:
    files = (run.root / "measurements").rglob("on_demand/*.parquet")
    columns = [pq.read_table(path, columns=["value"])["value"] for path in files]
    return sum(pc.sum(pc.list_value_length(column)).as_py() or 0 for column in columns)


def test_fewer_answers_are_drawn_and_all_are_charged(finished: RunDirectory) -> None:
    """Threat model: measurements on demand taken for complete ones."""
    assert not list((finished.root / "measurements").rglob("dpqueries"))
    assert not list(finished.release.rglob("*_margins*"))
    drawn = measured_values(finished)
    with reading(open_ledger(finished.root.parent / "ledger.db")) as connection:
        row = connection.execute("SELECT sum(n_values) FROM draws").fetchone()
        parameters = dict(connection.execute("SELECT name, parameter FROM draws"))
    assert 0 < drawn < row[0] / 5
    assert parameters["persons"] == "293764/114921"


def failed_checks(run: RunDirectory) -> set[str]:
    """Names of the independent checks of persons that the run's files fail."""
    return {one.name for one in checked(run.root, run.release, "persons") if not one.passed}


@pytest.mark.parametrize("geolevel", ["US", "Tract", "Block"])
def test_other_rows_than_matter_fail_the_check(
    finished: RunDirectory, tmp_path: Path, geolevel: str
) -> None:
    """A measurement that lacks its last row, although its noise and its loss are right."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(finished.root, run.root)
    assert not failed_checks(run)
    path = next((run.root / "measurements" / "persons" / geolevel / "on_demand").glob("*"))
    table = pq.read_table(path)
    place = next(i for i, rows in enumerate(table["row"].to_pylist()) if rows)
    for number, name in ((2, "row"), (3, "value")):
        lists = table[name].to_pylist()
        lists[place] = lists[place][:-1]
        column = pa.array(lists, table[name].type)
        table = table.set_column(number, table.schema.field(name), column)
    pq.write_table(table, path)
    assert failed_checks(run) == {"measurements_are_complete"}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("run.estimator=full_information",), "draws the answers that the estimator topdown reads"),
        (("run.estimator=block_by_block",), "draws the answers that the estimator topdown reads"),
        (("release.margins=true",), "release.margins = true needs every answer"),
        (("release.margins=false",), "release.margins does nothing without measurements of every"),
    ],
)
def test_what_needs_every_answer_is_refused(
    settings_text: str, tmp_path: Path, overrides: tuple[str, ...], sentence: str
) -> None:
    """Threat model: measurements on demand taken for complete ones."""
    file = tmp_path / "settings.toml"
    file.write_text(settings_text.replace("margins = false\n", "") + ON_DEMAND)
    with pytest.raises(InputRefused, match=sentence):
        TOPDOWN.load(file, overrides)


@pytest.mark.parametrize(
    "command",
    [("measurements", "export", "{run}", "{out}"), ("intervals", "{run}", "--query", "total")],
)
def test_commands_that_need_every_answer_say_so(
    finished: RunDirectory, tmp_path: Path, capsys, command: tuple[str, ...]
) -> None:
    """Threat model: measurements on demand taken for complete ones."""
    places = {"run": finished.root, "out": tmp_path / "export"}
    assert main([part.format(**places) for part in command]) == 2
    told = capsys.readouterr()
    assert "on demand" in told.err and not told.out
    assert not (tmp_path / "export").exists()
