"""Bad input through the real command: one sentence, no value of a record, nothing left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS
from spineflow.validation.rules import by_the_rules_alone

from tests.census_inputs import generate_texts

pytestmark = pytest.mark.slow

MAFID = "986420975"
"""An identifier that no unit of the county has."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
PLANTED = {MAFID, "130"}
"""Values that the cases put into records."""


@dataclass
class Tables:
    """The tables of a county as texts; a change spoils them in place."""

    persons: pd.DataFrame
    units: pd.DataFrame
    geography: pd.DataFrame

    def persons_of(self, code: str) -> np.ndarray:
        """Rows of the persons with a QGQTYP."""
        return np.flatnonzero(self.persons["QGQTYP"].str.strip() == code)

    def vacant_units(self) -> np.ndarray:
        """Rows of the vacant housing units."""
        return np.flatnonzero((self.units["RTYPE"] == "2") & (self.units["VACS"] != "0"))

    def write(self, folder: Path, layout: str) -> dict[str, str]:
        """Write the tables and return their file names."""
        names = dict.fromkeys(("persons", "units", "geography"), "")
        for table in names:
            names[table] = f"{table}.parquet" if layout == "parquet" else f"{table}.txt"
            frame = getattr(self, table)
            if layout == "parquet":
                frame.to_parquet(folder / names[table], index=False)
            else:
                frame.to_csv(folder / names[table], sep="|", index=False)
        return names


def put(frame: pd.DataFrame, rows: np.ndarray | list[int], column: str, value: str) -> None:
    frame.iloc[rows, frame.columns.get_loc(column)] = value


def at_home(column: str, value: str) -> Callable[[Tables], None]:
    """Two persons of households get a value."""
    return lambda tables: put(tables.persons, tables.persons_of("")[[3, 5]], column, value)


def missing_column(tables: Tables) -> None:
    tables.persons = tables.persons.drop(columns="CENRACE")


def duplicate_unit(tables: Tables) -> None:
    put(tables.units, tables.vacant_units()[:2], "MAFID", MAFID)


BROKEN_ROWS = {
    "QAGE 130": (at_home("QAGE", "130"), "persons", "QAGE must be a whole number", 2),
    "unknown unit": (at_home("MAFID", MAFID), "persons", "MAFID of every person must be", 2),
    "duplicate unit": (duplicate_unit, "units", "MAFID must be different in every row", 2),
    "missing column": (missing_column, "persons", "the column CENRACE is missing", None),
}
"""How to spoil the rows; the table that is refused; how the rule starts; rows that break it. The
tests of the census and of readers have every rule."""


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_texts(folder, "delimited", persons=FEWEST_PERSONS, seed=1)
    return folder


def as_texts(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="|", dtype=str, keep_default_na=False)


def refused(
    folder: Path, files: dict[str, str], *, confidential: bool, capfd: pytest.CaptureFixture
) -> str:
    """Run the stages on these files; returns the message once nothing else is seen to be left."""
    settings = folder / "settings.toml"
    settings.write_text(
        'preset = "pl94_2020_us"\n[input]\n'
        + "".join(f'{table} = "{file}"\n' for table, file in files.items())
        + f"confidential = {json.dumps(confidential)}\n"
        + '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )
    run = RunDirectory(folder / "run")
    before = set(folder.iterdir())
    assert main(["run", "topdown", str(settings), "--run-dir", str(run.root)]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    # Off a terminal every stage that has ended is told of, with its time.
    told = [line for line in errors.splitlines(keepends=True) if TIME.match(line)]
    assert not any(rule in line for line in told for rule in ("QAGE", "CENRACE", "must be"))
    message = "".join(line for line in errors.splitlines(keepends=True) if line not in told)
    assert message.count("\n") == 1 and message.endswith(".\n")

    assert set(folder.iterdir()) == before | {run.root}, "no ledger, as nothing was drawn"
    assert {entry.name for entry in run.root.iterdir()} <= {
        ".identity",
        ".lock",
        "manifest.json",
        "settings.toml",
        "confidential",
        "validation",
    }
    assert not run.histogram("persons").exists()
    assert run.read_manifest()["status"] == "failed"
    assert message == f"spineflow: {run.read_manifest()['reason']}\n"
    outcomes = json.loads((run.checks / "rules.json").read_text())
    assert not all(outcome["passed"] for outcome in outcomes)
    return message


def assert_sentence(message: str, file: str, rule: str, count: int | None) -> None:
    """File, rule, the number of rows if it is shown, remedy: in this order, and no value."""
    assert message.startswith(f"spineflow: {file}: {rule}"), message
    broken, _, remedy = message.partition("; ")
    if count is None:
        assert " this)" not in message
    else:
        assert broken.endswith(f"({count} {'row breaks' if count == 1 else 'rows break'} this)")
    assert len(remedy.split()) > 2
    assert not set(re.findall(r"\w+", message)) & PLANTED


def assert_rows_are_refused(
    case: str, county: Path, folder: Path, capfd, *, confidential: bool
) -> None:
    """Spoil rows of the county's tables, and hold what is told of them to what may be."""
    change, table, rule, count = BROKEN_ROWS[case]
    tables = Tables(*(as_texts(county / name) for name in ("persons.txt", "units.txt", "grfc.txt")))
    own = {*tables.units["MAFID"], *tables.geography["OIDTABBLK"]}
    change(tables)
    files = tables.write(folder, "parquet" if confidential else "delimited")
    message = refused(folder, files, confidential=confidential, capfd=capfd)
    assert_sentence(message, files[table], rule, None if confidential else count)
    assert not set(re.findall(r"\w+", message)) & own
    kept = json.loads((folder / "run" / "confidential" / "findings.json").read_text())
    assert kept[0]["count"] == count


@pytest.mark.usefixtures("judged_in_process")
@pytest.mark.parametrize("confidential", [True, False], ids=["confidential", "public"])
@pytest.mark.parametrize("case", BROKEN_ROWS)
def test_broken_rows(case: str, confidential: bool, county: Path, tmp_path: Path, capfd) -> None:
    # Great Expectations is given values, which are the same however they are stored.
    with nullcontext() if confidential else by_the_rules_alone():
        assert_rows_are_refused(case, county, tmp_path, capfd, confidential=confidential)
