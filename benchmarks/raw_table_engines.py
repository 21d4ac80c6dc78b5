"""Raw tables joined and counted by the product's arrays, and by DuckDB, Polars and Arrow's acero.

    .venv/bin/pip install duckdb polars
    .venv/bin/python -m benchmarks.nation NATION --fraction 1/50
    .venv/bin/python -m benchmarks.raw_table_engines cef STATE
    .venv/bin/python -m benchmarks.raw_table_engines cef NATION
    .venv/bin/python -m benchmarks.raw_table_engines rows

reads tables of the Census Edited File, or the ten million rows of `benchmarks/declared_rows.py`,
and counts persons by block and cell, or people by area and cell and by area and value of each
column by which the ledger recognises them. All engines must find the same. Each runs in a process
of its own; reported are processor seconds and the largest resident memory beyond that of the
imports. DuckDB runs in memory without a limit, and with `--limit`, beyond which it spills to a
folder.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds

from benchmarks.declared_rows import Sizes, write_census

ENGINES = ("arrays", "duckdb", "duckdb spilling", "polars", "acero")
RACES, BINS = 63, (0, 5, 15, 18, 25, 40, 65, 80)
GEOCODE = {"TABBLKST": 14, "TABBLKCOU": 11, "TABTRACTCE": 5, "TABBLKGRPCE": 4, "TABBLK": 0}
"""Digits that stand behind each part of a block's geocode."""
CODES = ("province", "district", "municipality", "area")
PERSON_COLUMNS = ("MAFID", "QGQTYP", "QAGE", "CENHISP", "CENRACE")
UNIT_COLUMNS = ("MAFID", "OIDTB", "RTYPE", "VACS", "QGQTYP")


@dataclass(frozen=True)
class Found:
    """What an engine found: counts by name, each as columns of keys and numbers in any order, and
    the rows that break each rule."""

    counts: Mapping[str, tuple[np.ndarray, ...]]
    rules: Mapping[str, int]

    def digests(self) -> dict[str, object]:
        """Digests of the counts, their rows in order of the keys, and the rules."""
        digests = {}
        for name, columns in self.counts.items():
            columns = tuple(np.asarray(column) for column in columns)
            order = np.lexsort(columns[-2::-1])
            hashed = hashlib.sha256()
            for column in columns:
                hashed.update(np.ascontiguousarray(column[order], dtype=np.int64).tobytes())
            digests[name] = f"{len(order)} {hashed.hexdigest()[:16]}"
        return {"counts": digests, "rules": dict(sorted(self.rules.items()))}


@dataclass(frozen=True)
class Tables:
    """Paths of a folder's tables, by their names, and where an engine may lay aside."""

    paths: Mapping[str, Path]
    scratch: Path
    limit: str | None = None

    @classmethod
    def of(cls, folder: Path, scratch: Path, limit: str | None) -> Tables:
        """The tables of a folder, each a file or the folder of its partitions."""
        paths = {}
        for path in sorted(folder.iterdir()):
            name = {"grfc": "geography"}.get(path.stem, path.stem)
            if name in ("persons", "units", "geography", "people", "areas"):
                paths[name] = path
        return cls(paths, scratch, limit)

    def dataset(self, name: str) -> ds.Dataset:
        """A table for Arrow and those that read it."""
        path = self.paths[name]
        if path.suffix in (".txt", ".csv"):
            options = pacsv.ParseOptions(delimiter="|" if path.suffix == ".txt" else ",")
            return ds.dataset(pacsv.read_csv(path, parse_options=options))
        return ds.dataset(path, format="parquet")

    def is_whole(self, name: str, column: str) -> bool:
        """Whether a table has whole numbers in a column, and not texts."""
        is_parquet = self.paths[name].suffix not in (".txt", ".csv")
        return is_parquet and pa.types.is_integer(self.dataset(name).schema.field(column).type)


def arrays_cef(tables: Tables) -> Found:
    """What the ingest of a run of persons does before rules are judged and files are written."""
    from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS
    from spineflow.tasks.census.cef_tables import CefTables, units_of
    from spineflow.tasks.census.counting import count_files
    from spineflow.tasks.tables.value_tallies import ValueTally

    reading = CefTables.of(CENSUS, {"persons": PERSONS}, tables.paths)
    evidence = ValueTally()
    before = reading.read_before(evidence)
    counter, files = reading.counter(before, "persons", evidence)
    count_files(counter, files, evidence)
    counted, units = counter, units_of(before)
    reading.rules(before, {"persons": counted}, evidence)
    geocode = before.areas.frame["block_geocode"].to_numpy(dtype="U16").astype(np.int64)
    counts: dict[str, tuple[np.ndarray, ...]] = {}
    for name, histogram in counted.totals.items():
        row = np.repeat(geocode, np.diff(histogram.indptr))
        counts[name] = row, histogram.indices, histogram.data
    codes, rows = units.index._codes, units.index._rows
    population = counted.references[rows]
    counts["units"] = codes[population > 0], population[population > 0]
    suites = evidence.suites
    broken = {**suites["cross_table"], "blank_mafid": suites["persons"]["blank_mafid"]}
    return Found(counts, {rule: found.get(True, 0) for rule, found in broken.items()})


def duckdb_cef(tables: Tables) -> Found:
    """The same in SQL: one pass over persons for both schemas, another for the units' persons."""
    database = _connected(tables)

    def whole(name: str, column: str) -> str:
        if tables.is_whole(name, column):
            return f"{column}::bigint"
        return f"try_cast(nullif(trim({column}), '') as bigint)"

    def table(name: str, columns: str) -> None:
        database.execute(f"create table {name} as select {columns} from {_source(tables, name)}")

    geocode = " + ".join(f"{name}::bigint * {10**digits}" for name, digits in GEOCODE.items())
    table("geography", f"{whole('geography', 'OIDTABBLK')} as id, {geocode} as geocode")
    table(
        "units",
        f"{whole('units', 'MAFID')} as id, {whole('units', 'OIDTB')} as block, "
        f"RTYPE::int as rtype, VACS::int as vacs, {whole('units', 'QGQTYP')} as qgqtyp",
    )
    kind = "case when qgqtyp is null then 0 when qgqtyp < 800 then qgqtyp // 100 else 7 end"
    database.execute(
        "create view persons as select *, "
        f"(({kind}) * 2 + (age >= 18)::int) * 2 * {RACES} + (hispanic - 1) * {RACES} + race - 1 "
        f"as cell, age * {RACES} + race - 1 as identity "
        f"from (select {whole('persons', 'MAFID')} as id, {whole('persons', 'QGQTYP')} as qgqtyp, "
        "QAGE::int as age, CENHISP::int as hispanic, CENRACE::int as race "
        f"from {_source(tables, 'persons')})"
    )
    database.execute("create table population as select id, count(*) as n from persons group by id")
    found = database.sql(
        "select grouping(cell) as no_cell, grouping(identity) as no_identity, geocode, cell, "
        "identity, count(*) as n, count(*) filter (u.id is null and p.id is not null) as lost, "
        "count(*) filter (p.id is null) as blank, "
        "count(*) filter (u.rtype = 2 and u.vacs > 0) as vacant, "
        "count(*) filter (u.id is not null and p.qgqtyp is distinct from u.qgqtyp) as other, "
        "count(*) filter (p.age < 18 and p.qgqtyp = 301) as minor "
        "from persons p left join units u on p.id = u.id left join geography g on u.block = g.id "
        "group by grouping sets ((geocode, cell), (geocode, identity), ())"
    ).to_arrow_table()
    counts = {}
    for name, column in (("histogram", "cell"), ("identity", "identity")):
        chosen = found.filter(pc.field(f"no_{column}") == 0)
        counts[name] = tuple(chosen[each].to_numpy() for each in ("geocode", column, "n"))
    population = database.sql("select id, n from population").to_arrow_table()
    counts["units"] = population["id"].to_numpy(), population["n"].to_numpy()
    all_ = found.filter((pc.field("no_cell") == 1) & (pc.field("no_identity") == 1)).to_pylist()[0]

    def one(query: str) -> int:
        return int(database.execute(f"select coalesce({query}").fetchall()[0][0])

    def repeated(name: str, column: str) -> int:
        return one(
            f"sum(n), 0) from (select count(*) as n from {name} where {column} is not null "
            f"group by {column} having count(*) > 1)"
        )

    rules = {
        "repeated_block_identifier": repeated("geography", "id"),
        "repeated_block": repeated("geography", "geocode"),
        "repeated_mafid": repeated("units", "id"),
        "unit_in_unknown_block": one(
            "count(*), 0) from units u anti join geography g on u.block = g.id"
        ),
        "facility_without_person": one(
            "count(*), 0) from (select * from units where rtype = 4) u anti join population p "
            "on u.id = p.id"
        ),
        "person_in_unknown_unit": all_["lost"],
        "person_in_vacant_unit": all_["vacant"],
        "person_of_other_group_quarters_code": all_["other"],
        "minor_in_nursing_facility": all_["minor"],
        "blank_mafid": all_["blank"],
    }
    return Found(counts, rules)


def polars_cef(tables: Tables) -> Found:
    """The same as streamed queries of Polars."""
    import polars as pl

    def read(name: str, columns: tuple[str, ...]) -> pl.LazyFrame:
        path = tables.paths[name]
        if path.suffix == ".txt":
            frame = pl.scan_csv(path, separator="|", infer_schema=False)
        else:
            frame = pl.scan_parquet(path / "*.parquet" if path.is_dir() else path)
        return frame.select(
            pl.col(column).cast(pl.Int64)
            if tables.is_whole(name, column)
            else pl.col(column).str.strip_chars().cast(pl.Int64, strict=False)
            for column in columns
        )

    def streamed(frame: pl.LazyFrame) -> pl.DataFrame:
        return frame.collect(engine="streaming")

    geography = streamed(
        read("geography", ("OIDTABBLK", *GEOCODE)).select(
            pl.col("OIDTABBLK").alias("block"),
            geocode=sum((pl.col(name) * 10**n for name, n in GEOCODE.items()), pl.lit(0)),
        )
    )
    units = streamed(
        read("units", UNIT_COLUMNS).join(
            geography.lazy(), left_on="OIDTB", right_on="block", how="left"
        )
    )
    kind = (
        pl.when(pl.col("QGQTYP").is_null())
        .then(0)
        .when(pl.col("QGQTYP") < 800)
        .then(pl.col("QGQTYP") // 100)
        .otherwise(7)
    )
    age, race, hispanic = (pl.col(name) for name in ("QAGE", "CENRACE", "CENHISP"))
    placed = read("persons", PERSON_COLUMNS).join(
        units.lazy().with_columns(is_known=pl.lit(True)), on="MAFID", how="left", suffix="_unit"
    )
    placed = placed.with_columns(
        cell=((kind * 2 + (age >= 18).cast(pl.Int64)) * 2 + hispanic - 1) * RACES + race - 1,
        identity=age * RACES + race - 1,
    )
    is_known = pl.col("is_known").is_not_null()
    masks = {
        "person_in_unknown_unit": ~is_known & pl.col("MAFID").is_not_null(),
        "person_in_vacant_unit": (pl.col("RTYPE") == 2) & (pl.col("VACS") > 0),
        "person_of_other_group_quarters_code": is_known
        & pl.col("QGQTYP").ne_missing(pl.col("QGQTYP_unit")),
        "minor_in_nursing_facility": (age < 18) & (pl.col("QGQTYP") == 301),
        "blank_mafid": pl.col("MAFID").is_null(),
    }
    queries = [
        placed.group_by("geocode", "cell").len(),
        placed.group_by("geocode", "identity").len(),
        placed.group_by("MAFID").len(),
        placed.select(mask.sum().alias(name) for name, mask in masks.items()),
    ]
    *grouped, broken = pl.collect_all(queries, engine="streaming")
    names = ("histogram", "identity", "units")
    counts = {
        name: tuple(frame[column].to_numpy() for column in frame.columns)
        for name, frame in zip(names, grouped, strict=True)
    }
    facilities = units.filter(pl.col("RTYPE") == 4).join(grouped[2], on="MAFID", how="anti")
    rules = {name: int(broken[name][0]) for name in masks} | {
        "repeated_block_identifier": int(geography["block"].drop_nulls().is_duplicated().sum()),
        "repeated_block": int(geography["geocode"].drop_nulls().is_duplicated().sum()),
        "repeated_mafid": int(units["MAFID"].drop_nulls().is_duplicated().sum()),
        "unit_in_unknown_block": int(units["geocode"].is_null().sum()),
        "facility_without_person": len(facilities),
    }
    return Found(counts, rules)


def acero_cef(tables: Tables) -> Found:
    """The same as joins and groups of Arrow tables."""

    def whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
        return pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.int64())

    def read(name: str, columns: tuple[str, ...]) -> pa.Table:
        table = tables.dataset(name).to_table(columns=list(columns))
        return pa.table({column: whole(table[column]) for column in columns})

    def repeated(column: pa.ChunkedArray) -> int:
        own = pa.table({"key": column.drop_null()}).group_by("key").aggregate([([], "count_all")])
        n = own["count_all"]
        return int(pc.sum(n.filter(pc.greater(n, 1))).as_py() or 0)

    def true(mask: pa.ChunkedArray) -> int:
        return int(pc.sum(mask).as_py() or 0)

    geography = read("geography", ("OIDTABBLK", *GEOCODE))
    geocode = None
    for name, digits in GEOCODE.items():
        part = pc.multiply(geography[name], 10**digits)
        geocode = part if geocode is None else pc.add(geocode, part)
    blocks = pa.table({"OIDTB": geography["OIDTABBLK"], "geocode": geocode})
    units = read("units", UNIT_COLUMNS).rename_columns(["MAFID", "OIDTB", "rtype", "vacs", "code"])
    units = units.join(blocks, "OIDTB", join_type="left outer").drop_columns("OIDTB")
    rules = {
        "repeated_block_identifier": repeated(geography["OIDTABBLK"]),
        "repeated_block": repeated(blocks["geocode"]),
        "repeated_mafid": repeated(units["MAFID"]),
        "unit_in_unknown_block": units["geocode"].null_count,
    }
    placed = read("persons", PERSON_COLUMNS).join(units, "MAFID", join_type="left outer")
    code, age = placed["QGQTYP"], placed["QAGE"]
    kind = pc.fill_null(pc.if_else(pc.less(code, 800), pc.divide(code, 100), 7), 0)
    adult = pc.greater_equal(age, 18).cast(pa.int64())
    cell = pc.add(pc.multiply(kind, 2), adult)
    cell = pc.add(pc.multiply(cell, 2), pc.subtract(placed["CENHISP"], 1))
    race = pc.subtract(placed["CENRACE"], 1)
    cell = pc.add(pc.multiply(cell, RACES), race)
    is_known = pc.is_valid(placed["rtype"])
    differs = pc.not_equal(pc.fill_null(code, 0), pc.fill_null(placed["code"], 0))
    is_vacant = pc.and_(pc.equal(placed["rtype"], 2), pc.greater(placed["vacs"], 0))
    minor = pc.and_(pc.less(age, 18), pc.equal(code, 301))
    is_blank = pc.is_null(placed["MAFID"])
    rules |= {
        "person_in_unknown_unit": true(pc.and_not(pc.invert(is_known), is_blank)),
        "person_in_vacant_unit": true(is_vacant),
        "person_of_other_group_quarters_code": true(pc.and_(is_known, differs)),
        "minor_in_nursing_facility": true(minor),
        "blank_mafid": true(is_blank),
    }
    own = {"geocode": placed["geocode"], "cell": cell, "MAFID": placed["MAFID"]}
    own["identity"] = pc.add(pc.multiply(age, RACES), race)
    del placed
    table = pa.table(own)
    keys = {"histogram": ["geocode", "cell"], "identity": ["geocode", "identity"]}
    counts = {}
    for name, columns in (keys | {"units": ["MAFID"]}).items():
        grouped = table.group_by(columns).aggregate([([], "count_all")])
        counts[name] = tuple(grouped[each].to_numpy() for each in (*columns, "count_all"))
    facilities = pa.table({"MAFID": units.filter(pc.equal(units["rtype"], 4))["MAFID"]})
    persons = pa.table({"MAFID": table["MAFID"].unique().drop_null()})
    rules["facility_without_person"] = len(facilities.join(persons, "MAFID", join_type="left anti"))
    return Found(counts, rules)


def arrays_rows(tables: Tables) -> Found:
    """What the ingest of a declared census does before rules are judged and files are written."""
    from spineflow.tasks.census.census_input import CensusTables
    from spineflow.tasks.census.counting import count_files
    from spineflow.tasks.tables.value_tallies import ValueTally
    from spineflow.tasks.topdown.product import TOPDOWN

    settings = TOPDOWN.load(tables.paths["areas"].with_name("settings.toml"))
    evidence, paths = ValueTally(), {name: str(path) for name, path in tables.paths.items()}
    schemas = {"people": settings.schema_of("people")}
    reading = CensusTables.of(settings.compiled_census, schemas, paths)
    before = reading.read_before(evidence)
    counter, files = reading.counter(before, "people", evidence)
    count_files(counter, files, evidence)
    areas, counted = before.areas, counter
    number = _numbers({name: areas.frame[name].to_numpy(dtype=object) for name in CODES})
    raw = dict(zip(("sex", "age"), counted.raw.columns(), strict=True))
    counts = {"cell": counted.totals["people"]} | {name: own.counts for name, own in raw.items()}
    found = {}
    for name, histogram in counts.items():
        key = histogram.indices
        if name in raw:
            key = np.array([_value(value) for value in raw[name].values])[key]
        found[name] = np.repeat(number, np.diff(histogram.indptr)), key, histogram.data
    suites = {**evidence.suites["areas"], **evidence.suites["people"]}
    rules = ("repeated_area", "unknown_area", "unknown_count", "unknown_sex", "unknown_age")
    return Found(found, {rule: suites[rule].get(True, 0) for rule in rules})


def duckdb_rows(tables: Tables) -> Found:
    """The same in SQL, in one pass over the rows."""
    database = _connected(tables)
    codes = ", ".join(CODES)
    database.execute(
        f"create table areas as select {codes}, row_number() over (order by {codes}) as number "
        f"from {_source(tables, 'areas')}"
    )
    bins = " + ".join(f"(age >= {start})::int" for start in BINS[1:])
    found = database.sql(
        "select grouping(cell) as no_cell, grouping(sex) as no_sex, grouping(age) as no_age, "
        "number, cell, (sex = 'M')::int as sex, age, sum(n)::bigint as n, "
        "count(*) filter (number is null) as unknown_area, "
        "count(*) filter (n is null or n < 0) as unknown_count, "
        "count(*) filter (sex is null or sex not in ('F', 'M')) as unknown_sex, "
        "count(*) filter (age is null or age not between 0 and 110) as unknown_age "
        f"from (select number, trim(sex) as sex, age, n, (sex = 'M')::int * {len(BINS)} + {bins} "
        f"as cell from {_source(tables, 'people')} left join areas using ({codes})) "
        "group by grouping sets ((number, cell), (number, sex), (number, age), ())"
    ).to_arrow_table()
    counts = {}
    for name in ("cell", "sex", "age"):
        chosen = found.filter(pc.field(f"no_{name}") == 0)
        counts[name] = tuple(chosen[each].to_numpy() for each in ("number", name, "n"))
    is_total = (pc.field("no_cell") == 1) & (pc.field("no_sex") == 1) & (pc.field("no_age") == 1)
    total = found.filter(is_total).to_pylist()[0]
    repeated = database.execute(
        f"select coalesce(sum(k), 0) from (select count(*) as k from areas group by {codes} "
        "having count(*) > 1)"
    ).fetchall()[0][0]
    rules = {name: total[name] for name in total if name.startswith("unknown_")}
    return Found(counts, rules | {"repeated_area": int(repeated)})


def polars_rows(tables: Tables) -> Found:
    """The same as streamed queries of Polars."""
    import polars as pl

    areas = pl.read_csv(tables.paths["areas"], infer_schema=False).sort(CODES)
    areas = areas.with_columns(number=pl.int_range(1, len(areas) + 1))
    path = tables.paths["people"]
    sex, age, n = (pl.col(name) for name in ("sex", "age", "n"))
    rows = pl.scan_parquet(path / "*.parquet" if path.is_dir() else path)
    bins = sum(((age >= start).cast(pl.Int64) for start in BINS[1:]), pl.lit(0))
    placed = (
        rows.with_columns(pl.col(name).str.strip_chars() for name in (*CODES, "sex"))
        .join(areas.lazy(), on=CODES, how="left")
        .with_columns(cell=(sex == "M").cast(pl.Int64) * len(BINS) + bins)
    )
    masks = {
        "unknown_area": pl.col("number").is_null(),
        "unknown_count": n.is_null() | (n < 0),
        "unknown_sex": ~sex.is_in(["F", "M"]),
        "unknown_age": ~age.is_between(0, 110),
    }
    queries = [placed.group_by("number", name).agg(n.sum()) for name in ("cell", "sex", "age")]
    queries.append(placed.select(mask.sum().alias(name) for name, mask in masks.items()))
    *grouped, broken = pl.collect_all(queries, engine="streaming")
    grouped[1] = grouped[1].with_columns((sex == "M").cast(pl.Int64))
    counts = {
        name: tuple(frame[column].to_numpy() for column in frame.columns)
        for name, frame in zip(("cell", "sex", "age"), grouped, strict=True)
    }
    repeated = int(areas.select(pl.struct(CODES).is_duplicated().sum()).item())
    rules = {name: int(broken[name][0]) for name in masks}
    return Found(counts, rules | {"repeated_area": repeated})


def acero_rows(tables: Tables) -> Found:
    """The same as joins and groups of Arrow tables."""
    areas = tables.dataset("areas").to_table(columns=list(CODES))
    areas = areas.sort_by([(name, "ascending") for name in CODES])
    numbered = areas.append_column("number", pa.array(np.arange(1, len(areas) + 1)))
    rows = tables.dataset("people").to_table(columns=[*CODES, "sex", "age", "n"])
    for name in (*CODES, "sex"):
        trimmed = pc.utf8_trim_whitespace(rows[name])
        rows = rows.set_column(rows.column_names.index(name), name, trimmed)
    rows = rows.join(numbered, list(CODES), join_type="left outer").drop_columns(list(CODES))
    age, sex, n = rows["age"], rows["sex"], rows["n"]
    is_male = pc.equal(sex, "M").cast(pa.int64())
    cell = pc.multiply(is_male, len(BINS))
    for start in BINS[1:]:
        cell = pc.add(cell, pc.greater_equal(age, start).cast(pa.int64()))
    own = pa.table({"number": rows["number"], "cell": cell, "sex": is_male, "age": age, "n": n})
    counts = {}
    for name in ("cell", "sex", "age"):
        grouped = own.group_by(["number", name]).aggregate([("n", "sum")])
        counts[name] = tuple(grouped[each].to_numpy() for each in ("number", name, "n_sum"))
    alike = areas.group_by(list(CODES)).aggregate([([], "count_all")])["count_all"]
    is_sex = pc.is_in(sex, pa.array(["F", "M"]))
    is_age = pc.and_(pc.greater_equal(age, 0), pc.less_equal(age, 110))
    rules = {
        "repeated_area": int(pc.sum(alike.filter(pc.greater(alike, 1))).as_py() or 0),
        "unknown_area": rows["number"].null_count,
        "unknown_count": int(pc.sum(pc.less(n, 0)).as_py() or 0) + n.null_count,
        "unknown_sex": len(sex) - int(pc.sum(is_sex).as_py() or 0),
        "unknown_age": len(age) - int(pc.sum(is_age).as_py() or 0),
    }
    return Found(counts, rules)


def _numbers(codes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Numbers of areas, from 1, in order of their codes."""
    order = np.lexsort([codes[name].astype(str) for name in reversed(CODES)])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)
    return number


def _value(raw: str) -> int:
    return int(raw) if raw.isdigit() else {"F": 0, "M": 1}.get(raw, -1)


def _connected(tables: Tables):  # type: ignore[no-untyped-def]
    """DuckDB in memory, with the scratch folder and limit of the tables."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"set temp_directory = '{tables.scratch}'")
    database.execute("set preserve_insertion_order = false")
    if tables.limit:
        database.execute(f"set memory_limit = '{tables.limit}'")
    return database


def _source(tables: Tables, name: str) -> str:
    path = tables.paths[name]
    if path.is_dir():
        return f"read_parquet('{path}/*.parquet')"
    if path.suffix == ".parquet":
        return f"read_parquet('{path}')"
    delimiter = "|" if path.suffix == ".txt" else ","
    return f"read_csv('{path}', delim = '{delimiter}', header = true, all_varchar = true)"


WAYS: Mapping[str, Mapping[str, Callable[[Tables], Found]]] = {
    "arrays": {"cef": arrays_cef, "rows": arrays_rows},
    "duckdb": {"cef": duckdb_cef, "rows": duckdb_rows},
    "polars": {"cef": polars_cef, "rows": polars_rows},
    "acero": {"cef": acero_cef, "rows": acero_rows},
}
MODULES: Mapping[str, Sequence[str]] = {
    "arrays": [
        "spineflow.tasks.census.cef_tables",
        "spineflow.tasks.census.census_input",
        "spineflow.tasks.topdown.settings",
    ],
    "duckdb": ["duckdb"],
    "polars": ["polars"],
    "acero": [],
}
"""What an engine imports before it is timed."""


def run_one(kind: str, engine: str, folder: Path, limit: str | None) -> None:
    """Find what is asked in this process, and print it with what it took as a line of JSON."""
    with tempfile.TemporaryDirectory(prefix="spineflow-raw-") as scratch:
        tables, engine = Tables.of(folder, Path(scratch), limit), engine.removesuffix(" spilling")
        for module in MODULES[engine]:
            importlib.import_module(module)
        from spineflow.tasks.tables.columns import temporary_files_in

        begun, before, memory = time.perf_counter(), time.process_time(), _most_memory()
        with temporary_files_in(Path(scratch)):
            found = WAYS[engine][kind](tables)
        took = {"wall": time.perf_counter() - begun, "cpu": time.process_time() - before}
        took["peak"] = _most_memory() - memory
        print(json.dumps(took | {"found": found.digests()}))


def _most_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run every engine on one folder, hold them to the same result, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=("cef", "rows"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=Sizes().rows)
    parser.add_argument("--limit", default="1GB", help="of the memory of DuckDB where it spills")
    parser.add_argument("--engines", nargs="*", default=ENGINES, choices=ENGINES)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    limit = chosen.limit
    if chosen.alone:
        engine = chosen.engines[0]
        run_one(chosen.kind, engine, chosen.folder, limit if "spilling" in engine else None)
        return
    with tempfile.TemporaryDirectory(prefix="spineflow-raw-") as temporary:
        folder = chosen.folder
        if folder is None:
            folder = Path(temporary)
            write_census(folder, Sizes(chosen.rows))
        results: dict[str, object] = {}
        print("| engine | wall s | CPU s | peak MiB |\n|---|---:|---:|---:|")
        for engine in chosen.engines:
            module = [sys.executable, "-m", "benchmarks.raw_table_engines", chosen.kind]
            own = [str(folder), "--alone", "--engines", engine, "--limit", limit]
            done = subprocess.run([*module, *own], capture_output=True, text=True, env=os.environ)
            if done.returncode:
                print(f"| {engine} | {done.stderr.strip().splitlines()[-1][:100]} |")
                continue
            took = json.loads(done.stdout)
            results[engine] = took["found"]
            name = f"{engine}, {limit}" if "spilling" in engine else engine
            print(f"| {name} | {took['wall']:.1f} | {took['cpu']:.1f} | {took['peak']:.0f} |")
    if len({json.dumps(each, sort_keys=True) for each in results.values()}) > 1:
        raise SystemExit(json.dumps(results, indent=1))
    print(json.dumps(next(iter(results.values())), indent=1))


if __name__ == "__main__":
    main()
