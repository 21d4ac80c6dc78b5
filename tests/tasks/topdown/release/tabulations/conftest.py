"""Microdata of a generated county, and the tables that SQL counts from its input records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.release.microdata import write_microdata

from tests.block_estimates import block_counts
from tests.census_inputs import check_inputs
from tests.tabulated import Tabulation, tabulate


@dataclass(frozen=True)
class Exact:
    """Input tables, and a release directory whose microdata reproduce them."""

    inputs: Path
    directory: Path
    geography: pd.DataFrame
    tabulation: Tabulation


def exact_release(inputs: Path, directory: Path) -> Exact:
    """Write the microdata of input tables as they are."""
    files = {name: inputs / f"{name}.parquet" for name in ("persons", "units")}
    result = check_inputs(**files, geography=inputs / "grfc.txt").accepted()
    geocode = result.geography["block_geocode"]
    directory.mkdir(exist_ok=True)
    persons, units = (block_counts(geocode, result.histograms[n]) for n in ("persons", "units"))
    write_microdata([persons], PERSONS, directory)
    write_microdata([units], UNITS, directory, result.public)
    tabulation = tabulate(directory, result.geography, ("persons", "units"))
    return Exact(inputs, directory, result.geography, tabulation)


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Exact:
    inputs = tmp_path_factory.mktemp("tabulated")
    generate_county(inputs, persons=2000, seed=11, n_counties=2)
    return exact_release(inputs, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def release_of():
    """Factory: folder of input tables, release directory -> microdata that reproduce them."""
    return exact_release


_RACE_SIZES = ((1, 1, 6), (2, 7, 21), (3, 22, 41), (4, 42, 56), (5, 57, 62), (6, 63, 63))
_QUARTERS = {
    1: "QGQTYP BETWEEN 101 AND 106",
    2: "QGQTYP BETWEEN 201 AND 203",
    3: "QGQTYP = 301",
    4: "QGQTYP BETWEEN 401 AND 405",
    5: "QGQTYP = 501",
    6: "QGQTYP IN (601, 602)",
    7: "QGQTYP BETWEEN 701 AND 904",
}


def person_conditions() -> dict[str, str]:
    """Which persons each variable counts, in SQL, after the published definitions."""
    by_race = ["CENRACE BETWEEN 1 AND 6"]
    by_race += [f"CENRACE = {code}" for code in range(1, 7)]
    by_race.append("CENRACE >= 7")
    for size, first, last in _RACE_SIZES:
        if size > 1:
            by_race.append(f"CENRACE BETWEEN {first} AND {last}")
            by_race += [f"CENRACE = {code}" for code in range(first, last + 1)]
    by_origin = ["CENHISP = 2", "CENHISP = 1", *(f"CENHISP = 1 AND {race}" for race in by_race)]
    quarters = ["QGQTYP > 0", "QGQTYP BETWEEN 101 AND 405"]
    quarters += [_QUARTERS[kind] for kind in (1, 2, 3, 4)]
    quarters += ["QGQTYP BETWEEN 501 AND 904", *(_QUARTERS[kind] for kind in (5, 6, 7))]
    tables = {
        "P001": ["TRUE", *by_race],
        "P002": ["TRUE", *by_origin],
        "P003": ["QAGE >= 18", *(f"QAGE >= 18 AND {race}" for race in by_race)],
        "P004": ["QAGE >= 18", *(f"QAGE >= 18 AND {origin}" for origin in by_origin)],
        "P005": quarters,
    }
    return {
        f"{table}{number:04d}": condition
        for table, conditions in tables.items()
        for number, condition in enumerate(conditions, 1)
    }


UNIT_CONDITIONS = {"H0010001": "TRUE", "H0010002": "VACS = 0", "H0010003": "VACS <> 0"}

GEOCODES: Mapping[str, str] = {
    "040_state": "TABBLKST",
    "050_county": "TABBLKST || TABBLKCOU",
    "060_county_subdivision": "TABBLKST || TABBLKCOU || COUSUBFP",
    "140_tract": "TABBLKST || TABBLKCOU || TABTRACTCE",
    "150_block_group": "TABBLKST || TABBLKCOU || TABTRACTCE || TABBLKGRPCE",
    "160_place": "CASE WHEN PLACEFP <> '99999' THEN TABBLKST || PLACEFP END",
    "280_aian_area": "CASE WHEN AIANNHCE <> '9999' THEN TABBLKST || AIANNHCE END",
    "750_block": "TABBLKST || TABBLKCOU || TABTRACTCE || TABBLK",
}


def tables_by_sql(inputs: Path) -> dict[str, pd.DataFrame]:
    """Tables of every summary level, counted from the input records by DuckDB."""
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.execute("SET threads = 2; SET memory_limit = '2GB'")
    database.execute(
        f"CREATE VIEW blocks AS FROM read_csv('{inputs / 'grfc.txt'}', delim = '|', "
        "header = true, all_varchar = true)"
    )
    columns = ", ".join(f'{expression} AS "{level}"' for level, expression in GEOCODES.items())
    database.execute(f"CREATE TABLE geography AS SELECT OIDTABBLK, {columns} FROM blocks")
    database.execute(
        "CREATE TABLE unit AS SELECT OIDTB, try_cast(VACS AS INTEGER) AS VACS, count(*) AS n "
        f"FROM '{inputs / 'units.parquet'}' WHERE RTYPE::INTEGER = 2 GROUP BY ALL"
    )
    database.execute(
        "CREATE TABLE person AS SELECT OIDTB, CENHISP::INTEGER AS CENHISP, "
        "CENRACE::INTEGER AS CENRACE, QAGE::INTEGER AS QAGE, "
        "try_cast(trim(p.QGQTYP::VARCHAR) AS INTEGER) AS QGQTYP, count(*) AS n "
        f"FROM '{inputs / 'persons.parquet'}' p JOIN '{inputs / 'units.parquet'}' "
        "USING (MAFID) GROUP BY ALL"
    )
    sources = (("person", person_conditions()), ("unit", UNIT_CONDITIONS))
    counted = []
    for source, conditions in sources:
        counts = ", ".join(
            f"sum(n) FILTER (WHERE {condition})::BIGINT AS {name}"
            for name, condition in conditions.items()
        )
        database.execute(
            f"CREATE TABLE {source}_counts AS SELECT OIDTB, {counts} FROM {source} GROUP BY OIDTB"
        )
        counted += [f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in conditions]
    tables = {}
    for level in GEOCODES:
        table = database.execute(
            f'SELECT "{level}" AS GEOCODE, {", ".join(counted)} FROM geography g '
            "LEFT JOIN person_counts p ON g.OIDTABBLK = p.OIDTB "
            "LEFT JOIN unit_counts u ON g.OIDTABBLK = u.OIDTB "
            f'WHERE "{level}" IS NOT NULL GROUP BY 1 ORDER BY 1'
        ).df()
        tables[level] = table.set_index("GEOCODE")
    return tables


@pytest.fixture(scope="session")
def sql_tables():
    """Factory: folder of input tables -> {level: frame of variables by GEOCODE}."""
    return tables_by_sql
