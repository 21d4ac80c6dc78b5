"""Make the importer's corpus: one small table as many programs write it.

    pip install fastparquet openpyxl polars pyreadr pyreadstat
    python -m tests.tasks.tables.make_corpus

Writers that are Python packages write their files themselves; the texts of others follow what their
documentation says of the bytes. The files are committed, so that tests need none of the packages.
"""

from __future__ import annotations

import gzip
import io
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime
from pathlib import Path

import duckdb
import fastparquet
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pyreadr
import pyreadstat

CORPUS = Path(__file__).parent / "corpus"
SECTIONS = ("0101001", "0101002", "0202001")
NAMES = ("Čeněk", "Ünal", "Núria", "Zoë")


def people() -> pd.DataFrame:
    """Twelve invented persons: section, sex, age, role (not stated of some), name and day of
    birth, as their types are in memory.
    """
    rows = [
        {
            "section": SECTIONS[n % 3],
            "sex": 1 + n % 2,
            "age": (n * 7) % 90,
            "role": None if n % 8 == 5 else 1 + n % 3,
            "name": NAMES[n % 4],
            "born": date(2020 - (n * 7) % 90, 1 + n % 12, 1 + n),
        }
        for n in range(12)
    ]
    return pd.DataFrame(rows)


FRAME = people()
TEXTS = FRAME.assign(role=FRAME["role"].astype("Int64")).astype("string").fillna("")
"""The persons as texts, whole numbers without a point, blanks empty."""

Writer = Callable[[Path], object]
WRITERS: dict[str, Writer] = {}


def written(name: str) -> Callable[[Writer], Writer]:
    """Register the writer of a file of the corpus."""

    def register(writer: Writer) -> Writer:
        WRITERS[name] = writer
        return writer

    return register


def text(
    name: str,
    separator: str = ",",
    *,
    ending: str = "\n",
    encoding: str = "utf-8",
    blank: str = "",
    quote: Callable[[str, str], bool] = lambda _column, _value: False,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
    rows: slice = slice(None),
) -> None:
    """Register a delimited text, written as a program of that name does."""

    def write(path: Path) -> None:
        frame = change(TEXTS)[rows]

        def cell(column: str, value: str) -> str:
            value = value or blank
            return f'"{value}"' if quote(column, value) else value

        lines = [separator.join(cell("", column) for column in frame)]
        for _, row in frame.iterrows():
            lines.append(separator.join(cell(str(c), str(v)) for c, v in row.items()))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(line + ending for line in lines).encode(encoding))

    WRITERS[name] = write


def is_text(column: str, _value: str) -> bool:
    """Whether a program puts a column's values, and names of columns, between quotes."""
    return column in ("", "section", "name", "born")


def everything(_column: str, _value: str) -> bool:
    """All cells stand between quotes."""
    return True


def points(frame: pd.DataFrame, mark: str = ".") -> pd.DataFrame:
    """Numbers with a decimal, as of columns of floats."""
    role = [value and f"{value}{mark}0" for value in frame["role"]]
    return frame.assign(role=role, sex=frame["sex"] + f"{mark}0")


# Excel, LibreOffice and Numbers.
text("excel/csv_utf8.csv", ending="\r\n", encoding="utf-8-sig")
text(
    "excel/csv_semicolons_1250.csv",
    ";",
    ending="\r\n",
    encoding="cp1250",
    change=lambda f: f.assign(name=f["name"].replace({"Núria": "Nuria", "Zoë": "Zoë"})),
)
text("excel/csv_macintosh.csv", ";", ending="\r", encoding="utf-8-sig")
text("excel/unicode_text.txt", "\t", ending="\r\n", encoding="utf-16")
text(
    "excel/dates_as_numbers.csv",
    ending="\r\n",
    encoding="utf-8-sig",
    change=lambda f: f.assign(born=[str((d - date(1899, 12, 30)).days) for d in FRAME["born"]]),
)
text(
    "excel/lost_zeros.csv",
    ending="\r\n",
    encoding="utf-8-sig",
    change=lambda f: f.assign(section=f["section"].str.lstrip("0")),
)
text(
    "excel/empty_rows_below.csv",
    ending="\r\n",
    encoding="utf-8-sig",
    change=lambda f: pd.concat([f, pd.DataFrame([dict.fromkeys(f, "")] * 3)]),
)
text("libreoffice/quoted.csv", quote=is_text)


@written("excel/workbook.xlsx")
def _workbook(path: Path) -> None:
    FRAME.to_excel(path, index=False, engine="openpyxl")


# R: write.csv, write.csv2, write.table, readr, data.table.
text(
    "r/write_csv.csv",
    quote=is_text,
    blank="NA",
    change=lambda f: f.assign(**{"": range(1, len(f) + 1)})[["", *f]],
)
text("r/write_csv2.csv", ";", quote=is_text, blank="NA", change=lambda f: points(f, ","))
text("r/readr.csv", blank="NA")
text("r/fwrite.csv.gz")
text("r/spaces.txt", " ", quote=is_text, blank="NA")
text(
    "r/scientific.csv",
    blank="NA",
    change=lambda f: f.assign(age=["1e+01" if v == "10" else v for v in f["age"]], n="1e+05"),
)


@written("r/frame.rds")
def _rds(path: Path) -> None:
    pyreadr.write_rds(str(path), TEXTS.astype(object))


# SAS, SPSS, Stata.
text(
    "sas/proc_export.csv",
    ending="\r\n",
    change=lambda f: f.assign(born=[d.strftime("%d%b%Y").upper() for d in FRAME["born"]]),
)
text("sas/missing_points.csv", ending="\r\n", blank=".")
text("spss/export.csv", ending="\r\n", encoding="utf-8-sig", blank="#NULL!", change=points)
text("stata/outsheet.txt", "\t", ending="\r\n", quote=is_text)
text(
    "stata/labels.csv",
    change=lambda f: f.assign(sex=f["sex"].replace({"1": "male", "2": "female"})),
)


@written("sas/transport.xpt")
def _xport(path: Path) -> None:
    pyreadstat.write_xport(FRAME.drop(columns="born"), str(path), table_name="PEOPLE")


@written("spss/people.sav")
def _sav(path: Path) -> None:
    pyreadstat.write_sav(FRAME, str(path))


@written("stata/people.dta")
def _dta(path: Path) -> None:
    FRAME.drop(columns="born").to_stata(path, write_index=False, version=118)


# pandas.
def pandas_text(name: str, frame: pd.DataFrame = FRAME, **options: object) -> None:
    """Register a text that pandas writes."""
    WRITERS[name] = lambda path: frame.to_csv(path, **{"index": False, **options})


def pandas_parquet(name: str, frame: pd.DataFrame, **options: object) -> None:
    """Register Parquet that pandas writes."""
    WRITERS[name] = lambda path: frame.to_parquet(path, **options)


pandas_text("pandas/plain.csv", FRAME.astype({"role": "Int64"}))
pandas_text("pandas/floats.csv")
pandas_text("pandas/with_index.csv", index=True)
pandas_text("pandas/quoted.csv", quoting=1)
pandas_text("pandas/zipped.csv.zip")
pandas_text("pandas/german.csv", sep=";", decimal=",")
pandas_parquet("pandas/floats.parquet", FRAME)
pandas_parquet("pandas/nullable.parquet", FRAME.astype({"role": "Int64", "section": "string"}))
pandas_parquet("pandas/categories.parquet", TEXTS.astype("category"))
pandas_parquet("pandas/datetime64.parquet", FRAME.assign(born=pd.to_datetime(FRAME["born"])))
pandas_parquet(
    "pandas/times_of_day.parquet",
    FRAME.assign(born=pd.to_datetime(FRAME["born"]) + pd.Timedelta(hours=7)),
)
pandas_parquet(
    "pandas/int96.parquet",
    FRAME.assign(born=pd.to_datetime(FRAME["born"])),
    use_deprecated_int96_timestamps=True,
)
pandas_parquet("pandas/booleans.parquet", FRAME.assign(sex=FRAME["sex"] == 1))


@written("pandas/fastparquet.parquet")
def _fastparquet(path: Path) -> None:
    fastparquet.write(
        str(path), FRAME.astype({"role": "Int64"}).assign(born=[str(day) for day in FRAME["born"]])
    )


@written("pandas/lines.json")
def _json(path: Path) -> None:
    FRAME.to_json(path, orient="records", lines=True, date_format="iso")


# Polars.
POLARS = polars.from_pandas(FRAME.astype({"role": "Int64"}))


@written("polars/plain.csv")
def _polars_csv(path: Path) -> None:
    POLARS.write_csv(path)


@written("polars/plain.parquet")
def _polars_parquet(path: Path) -> None:
    POLARS.write_parquet(path)


@written("polars/categories.parquet")
def _polars_categories(path: Path) -> None:
    POLARS.with_columns(polars.col("section").cast(polars.Categorical)).write_parquet(path)


@written("polars/frame.arrow")
def _polars_ipc(path: Path) -> None:
    POLARS.write_ipc(path)


# Arrow, DuckDB, SQLite.
ARROW = pa.Table.from_pandas(FRAME.astype({"role": "Int64"}), preserve_index=False)


@written("arrow/plain.csv")
def _arrow_csv(path: Path) -> None:
    pacsv.write_csv(ARROW, path)


@written("arrow/decimals.parquet")
def _decimals(path: Path) -> None:
    place = ARROW.schema.get_field_index("sex")
    pq.write_table(ARROW.set_column(place, "sex", ARROW["sex"].cast(pa.decimal128(38, 10))), path)


@written("arrow/table.orc")
def _orc(path: Path) -> None:
    pyarrow.orc.write_table(ARROW, path)


@written("arrow/frame.feather")
def _feather(path: Path) -> None:
    pyarrow.feather.write_feather(ARROW, path)


def duck(name: str, options: str) -> None:
    """Register a file that DuckDB writes."""

    def write(path: Path) -> None:
        with closing(duckdb.connect()) as database:
            database.register("people", ARROW)
            database.execute(f"COPY (SELECT * FROM people) TO '{path}' ({options})")

    WRITERS[name] = write


duck("duckdb/plain.csv", "HEADER, DELIMITER ','")
duck("duckdb/plain.parquet", "FORMAT parquet")
duck("duckdb/hive", "FORMAT parquet, PARTITION_BY (sex)")


@written("sqlite/people.sqlite")
def _sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        TEXTS.to_sql("people", database, index=False)


# PostgreSQL, Spark, Impala.
text("postgresql/copy.csv", blank="\\N")
text(
    "postgresql/booleans.csv", change=lambda f: f.assign(sex=f["sex"].replace({"1": "t", "2": "f"}))
)


@written("spark/csv")
def _spark_csv(path: Path) -> None:
    _spark(path, "csv", lambda frame, file: frame.to_csv(file, index=False))


@written("spark/parquet")
def _spark_parquet(path: Path) -> None:
    _spark(
        path,
        "snappy.parquet",
        lambda frame, file: pq.write_table(
            pa.Table.from_pandas(frame.astype({"sex": "int32"}), preserve_index=False),
            file,
            compression="snappy",
            use_deprecated_int96_timestamps=True,
        ),
    )


def _spark(path: Path, ending: str, write: Callable[[pd.DataFrame, Path], object]) -> None:
    """Partitions, a mark that all are there, and a hidden checksum of each."""
    path.mkdir(parents=True)
    frame = TEXTS.astype(object)
    for number, rows in enumerate((slice(0, 5), slice(5, 12))):
        file = path / f"part-0000{number}-3f2c11de-77a0-4c5e-9d4c-1f0e0b7a9c11-c000.{ending}"
        write(frame[rows], file)
        (path / f".{file.name}.crc").write_bytes(b"crc\x00\x00\x00\x02\x00")
    (path / "_SUCCESS").touch()
    (path / "._SUCCESS.crc").write_bytes(b"crc\x00\x00\x00\x02\x00")


@written("impala/binary.parquet")
def _impala(path: Path) -> None:
    columns = {name: pa.array(TEXTS[name].astype(object)).cast(pa.binary()) for name in TEXTS}
    pq.write_table(pa.table(columns), path)


@written("impala/latin1.parquet")
def _latin(path: Path) -> None:
    names = [name.encode("latin-1", "replace") for name in FRAME["name"]]
    sections = [f"{value}".encode() for value in FRAME["section"]]
    sections[0] = b"01\xe9001"
    table = pa.table(
        {
            "section": pa.array(sections),
            "sex": FRAME["sex"],
            "age": FRAME["age"],
            "role": TEXTS["role"].astype(object),
            "name": pa.array(names),
        }
    )
    pq.write_table(table, path)


# Folders that people keep.
@written("folders/twin")
def _twin(path: Path) -> None:
    path.mkdir(parents=True)
    TEXTS.to_csv(path / "people.csv", index=False)
    with gzip.GzipFile(path / "people.csv.gz", "wb", mtime=0) as packed:
        packed.write((path / "people.csv").read_bytes())


@written("folders/checkpoints")
def _checkpoints(path: Path) -> None:
    for folder in (path, path / ".ipynb_checkpoints", path / "_old"):
        folder.mkdir(parents=True)
        TEXTS.to_csv(folder / "people.csv", index=False)


@written("folders/upper_case")
def _upper(path: Path) -> None:
    path.mkdir(parents=True)
    TEXTS[:5].to_csv(path / "NORTH.CSV", index=False)
    TEXTS[5:].to_csv(path / "south.csv", index=False)


@written("folders/workbook_beside")
def _beside(path: Path) -> None:
    path.mkdir(parents=True)
    TEXTS.to_csv(path / "people.csv", index=False)
    _workbook(path / "notes.xlsx")


def _without_times(path: Path) -> None:
    """Write an archive anew without the times of its members, so that its bytes stay the same."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    moment = datetime(2021, 3, 31).timetuple()[:6]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if name != "docProps/core.xml":
                archive.writestr(zipfile.ZipInfo(name, moment), content)
    path.write_bytes(packed.getvalue())


def make_corpus(folder: Path = CORPUS) -> None:
    """Write every file of the corpus anew."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, write in WRITERS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        if path.name.endswith(".csv.gz"):
            path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        for file in [path] if path.is_file() else path.rglob("*.*"):
            _without_times(file)


if __name__ == "__main__":
    make_corpus()
