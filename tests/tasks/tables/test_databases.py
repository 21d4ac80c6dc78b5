"""Tables of databases: the rows of files, refusals without a value, the release of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.readers import Selection, read_batches
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county

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
