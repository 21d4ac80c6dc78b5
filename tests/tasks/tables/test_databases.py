"""Tables of databases: the rows of files, refusals without a value, the release of a run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.readers import Selection, read_batches
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county

from tests.recorded.content import digests_of_run
from tests.recorded.runs import Run, county, make
from tests.services import INITDB, postgres

TABLES = ("persons", "units")


def fill_duckdb(folder: Path) -> str:
    """A database of a county's tables in the same folder; its address."""
    with duckdb.connect(str(folder / "census.duckdb")) as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} AS FROM '{folder / table}.parquet'")
    return f"duckdb://{folder / 'census.duckdb'}"


def rows(path: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """Rows of a table of persons as texts, in the order of their values."""
    found = list(read_batches(InputFile("persons", path, "persons"), Selection(columns)))
    frame = pd.concat([pd.DataFrame({k: v.to_pylist() for k, v in b.items()}) for b in found])
    return frame.astype(str).sort_values(list(columns), ignore_index=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("county")
    generate_county(made, persons=FEWEST_PERSONS, seed=1)
    fill_duckdb(made)
    return made


def test_a_table_and_a_query_have_the_rows_of_the_file(folder: Path) -> None:
    columns = ("MAFID", "QAGE", "QGQTYP")
    known = rows(str(folder / "persons.parquet"), columns)
    address = f"duckdb://{folder / 'census.duckdb'}"
    for asked in ("persons", "main.persons", "select * from persons where QAGE >= 0;"):
        assert rows(f"{address}#{asked}", columns).equals(known)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ("", "names no table"),
        ("#nobody", "did not give the table"),
        ("#select 'x' || MAFID::int8 / 0 from persons", "the column MAFID is missing"),
        ("#select error('a secret') AS MAFID from persons", "did not give the table"),
    ],
)
def test_refusals_name_no_value(folder: Path, asked: str, rule: str) -> None:
    address = f"duckdb://{folder / 'census.duckdb'}{asked}"
    with pytest.raises(UnreadableInput, match=rule) as refused:
        rows(address, ("MAFID",))
    assert "secret" not in str(refused.value)


def test_a_database_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for address in (f"duckdb://{tmp_path}/no.duckdb", "postgresql://127.0.0.1:1/census"):
        with pytest.raises(UnreadableInput, match="did not give the table"):
            rows(f"{address}#persons", ("MAFID",))


@pytest.fixture
def postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a PostgreSQL server without its user, which the environment names."""
    if not INITDB:
        pytest.skip("PostgreSQL is not here")
    with postgres(tmp_path / "server") as place:
        user, _, address = place.partition("@")
        monkeypatch.setenv("PGUSER", user)
        yield f"postgresql://{address}"


def fill_postgresql(folder: Path, address: str) -> None:
    with duckdb.connect() as connection:
        for table in TABLES:
            file = f"'{folder / table}.parquet'"
            types = connection.execute(f"DESCRIBE FROM {file}").fetchall()
            columns = ", ".join(f'"{name}" {kind}' for name, kind, *_ in types)
            text = folder / f"{table}.csv"
            connection.execute(f"COPY (FROM {file}) TO '{text}' (HEADER false)")
            copy = f"\\copy {table} from '{text}' csv"
            for statement in (f"CREATE TABLE {table} ({columns})", copy):
                subprocess.run(["psql", "-q", "-d", address, "-c", statement], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_a_run_on_a_database_releases_what_one_on_files_does(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def on_files(folder: Path) -> str:
        return county(folder, preset="pl94_2020_us")

    def on_database(folder: Path) -> str:
        text = on_files(folder)
        if kind == "duckdb":
            address = fill_duckdb(folder)
        else:
            address = request.getfixturevalue("postgresql")
            fill_postgresql(folder, address)
        for table in TABLES:
            text = text.replace(f'"{table}.parquet"', f'"{address}#{table}"')
            (folder / f"{table}.parquet").unlink()
        return text

    found = []
    for name, write in (("files", on_files), ("database", on_database)):
        (tmp_path / name).mkdir()
        make(Run("topdown", write), tmp_path / name)
        found.append(digests_of_run(tmp_path / name / "run"))
    assert found[0] == found[1] and "release/mdf_persons.parquet" in found[0]
