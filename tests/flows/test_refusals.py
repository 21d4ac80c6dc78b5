"""Bad input through the real command: one sentence, no value of a record, nothing left behind."""

from __future__ import annotations

import gzip
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
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.validation.expectations import by_the_rules_alone

pytestmark = pytest.mark.slow

MAFID = "986420975"
"""An identifier that no unit of the county has."""
OIDTB = "97531086421"
"""An identifier that no block of the county has."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
PLANTED = {MAFID, OIDTB, "00", "64", "130", "3", "777", "601", "17", "été"}
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


def in_facility(code: str, column: str, value: str) -> Callable[[Tables], None]:
    """A person of a facility gets a value."""
    return lambda tables: put(tables.persons, tables.persons_of(code)[:1], column, value)


def in_blocks(column: str, value: str) -> Callable[[Tables], None]:
    """Two blocks get a value."""
    return lambda tables: put(tables.geography, [2, 4], column, value)


def missing_column(tables: Tables) -> None:
    tables.persons = tables.persons.drop(columns="CENRACE")


def unknown_block(tables: Tables) -> None:
    put(tables.units, [0, 1], "OIDTB", OIDTB)


def duplicate_unit(tables: Tables) -> None:
    put(tables.units, tables.vacant_units()[:2], "MAFID", MAFID)


def duplicate_block(tables: Tables) -> None:
    parts = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    tables.geography.loc[3, parts] = tables.geography.loc[4, parts]


def empty_facility(tables: Tables) -> None:
    tables.persons = tables.persons.drop(index=tables.persons_of("401"))


def person_in_vacant_unit(tables: Tables) -> None:
    vacant = tables.units["MAFID"].iloc[tables.vacant_units()[0]]
    put(tables.persons, tables.persons_of("")[:1], "MAFID", vacant)


BROKEN_ROWS = {
    "CENRACE 00": (at_home("CENRACE", "00"), "persons", "CENRACE must be a code", 2),
    "CENRACE 64": (at_home("CENRACE", "64"), "persons", "CENRACE must be a code", 2),
    "QAGE 130": (at_home("QAGE", "130"), "persons", "QAGE must be a whole number", 2),
    "QAGE blank": (at_home("QAGE", "   "), "persons", "QAGE must be a whole number", 2),
    "CENHISP 3": (at_home("CENHISP", "3"), "persons", "CENHISP must be", 2),
    "QGQTYP 777": (at_home("QGQTYP", "777"), "persons", "QGQTYP must be blank or a known", 2),
    "unknown unit": (at_home("MAFID", MAFID), "persons", "MAFID of every person must be", 2),
    "unknown block": (unknown_block, "units", "OIDTB of every unit must be an OIDTABBLK", 2),
    "duplicate unit": (duplicate_unit, "units", "MAFID must be different in every row", 2),
    "duplicate block": (duplicate_block, "geography", "every block (state, county, tract,", 2),
    "empty facility": (empty_facility, "units", "every group-quarters facility", 1),
    "vacant unit": (person_in_vacant_unit, "persons", "no person may have the MAFID of a", 1),
    "other QGQTYP": (
        in_facility("501", "QGQTYP", "601"),
        "persons",
        "QGQTYP of every person must be that of the person's unit",
        1,
    ),
    "minor in nursing": (
        in_facility("301", "QAGE", "17"),
        "persons",
        "nobody in a nursing facility (QGQTYP 301) may have QAGE below 18",
        1,
    ),
    "COUSUBFP blank": (in_blocks("COUSUBFP", ""), "geography", "COUSUBFP (county subdivis", 2),
    "tract blank": (in_blocks("TABTRACTCE", ""), "geography", "TABTRACTCE (tract) must be", 2),
    "missing column": (missing_column, "persons", "the column CENRACE is missing", None),
}
"""How to spoil the rows; the table that is refused; how the rule starts; rows that break it."""

BROKEN_FILES = {
    "empty": ("delimited", lambda data: b"", "the file is empty", None),
    "truncated gzip": (
        "delimited",
        lambda data: gzip.compress(data)[:-100],
        "the gzip file is truncated",
        None,
    ),
    "line of wrong length": (
        "fixed_width",
        lambda data: data.replace(b" \n", b"\n", 1),
        "every line must have 91 characters in the fixed-width CEF layout",
        1,
    ),
    "not UTF-8": (
        "delimited",
        lambda data: data.replace(b"|1000|", b"|\xe9t\xe9|", 1),
        "the file holds bytes that are not UTF-8",
        None,
    ),
    "wrong delimiter": (
        "delimited",
        lambda data: data.replace(b"|", b":"),
        "the header is not the CEF column names",
        None,
    ),
    "no file": ("delimited", lambda data: None, "the file does not exist", None),
}
"""Layout of the persons table; how to spoil its bytes; how the rule starts; lines that break it."""


@pytest.fixture(scope="module")
def counties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder with the tables of one county, by text layout."""
    folders = {}
    for layout in ("delimited", "fixed_width"):
        folders[layout] = tmp_path_factory.mktemp(layout)
        generate_county(folders[layout], persons=FEWEST_PERSONS, seed=1, layout=layout)
    return folders


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
    case: str, counties: dict[str, Path], folder: Path, capfd, *, confidential: bool
) -> None:
    """Spoil rows of the county's tables, and hold what is told of them to what may be."""
    change, table, rule, count = BROKEN_ROWS[case]
    county = counties["delimited"]
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
def test_broken_rows(
    case: str, confidential: bool, counties: dict[str, Path], tmp_path: Path, capfd
) -> None:
    # Great Expectations is given values, which are the same however they are stored.
    with nullcontext() if confidential else by_the_rules_alone():
        assert_rows_are_refused(case, counties, tmp_path, capfd, confidential=confidential)


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("confidential", [True, False], ids=["confidential", "public"])
def test_broken_rows_in_a_flow(
    confidential: bool, counties: dict[str, Path], tmp_path: Path, capfd
) -> None:
    """What is told and kept is no more where Prefect passes the refusal on."""
    assert_rows_are_refused("QAGE 130", counties, tmp_path, capfd, confidential=confidential)


@pytest.mark.usefixtures("judged_in_process")
@pytest.mark.parametrize("case", BROKEN_FILES)
def test_broken_files(case: str, counties: dict[str, Path], tmp_path: Path, capfd) -> None:
    layout, change, rule, count = BROKEN_FILES[case]
    county = counties[layout]
    files = {
        "persons": "people.gz",
        "units": str(county / "units.txt"),
        "geography": str(county / "grfc.txt"),
    }
    spoilt = change((county / "persons.txt").read_bytes())
    if spoilt is not None:
        (tmp_path / files["persons"]).write_bytes(spoilt)
    message = refused(tmp_path, files, confidential=False, capfd=capfd)
    assert_sentence(message, files["persons"], rule, count)
    # The input is not confidential, so that the line may be told.
    told = re.sub(r" \(first in line [\d,]+\)", "", message)
    numbers = {word for word in re.findall(r"\w+", told) if word.isdigit()}
    assert numbers <= {"91", "8", str(count)}, "of the rule's own words and the count"
