"""Tables of databases: the rows of files, refusals without a value, the release of a run."""

from __future__ import annotations

import subprocess
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


def fill_postgresql(folder: Path, address: str) -> None:
    """Copy a county's tables into a database, by PostgreSQL's own client."""
    for table in TABLES:
        rows = pd.read_parquet(folder / f"{table}.parquet")
        text = folder / f"{table}.csv"
        rows.to_csv(text, index=False, header=False)
        kinds = ("bigint" if kind.kind == "i" else "text" for kind in rows.dtypes)
        columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(rows, kinds, strict=True))
        copy = f"\\copy {table} from '{text}' csv"
        for statement in (f"CREATE TABLE {table} ({columns})", copy):
            subprocess.run(["psql", "-q", "-d", address, "-c", statement], check=True)


@pytest.mark.soak(7)
@pytest.mark.skipif(not INITDB, reason="PostgreSQL is not here")
def test_a_release_out_of_postgresql_is_that_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user comes from the environment, and not from the settings."""

    def on_files(folder: Path) -> str:
        return county(folder, preset="pl94_2020_us")

    def on_database(folder: Path) -> str:
        text = on_files(folder)
        fill_postgresql(folder, address)
        for table in TABLES:
            text = text.replace(f'"{table}.parquet"', f'"{address}#{table}"')
            (folder / f"{table}.parquet").unlink()
        return text

    found = []
    with postgres(tmp_path / "server") as place:
        user, _, where = place.partition("@")
        monkeypatch.setenv("PGUSER", user)
        address = f"postgresql://{where}"
        for name, write in (("files", on_files), ("database", on_database)):
            (tmp_path / name).mkdir()
            make(Run("topdown", write), tmp_path / name)
            found.append(digests_of_run(tmp_path / name / "run"))
    assert found[0] == found[1] and "release/mdf_persons.parquet" in found[0]
