"""Tables as other programs write them: read with the right counts, or refused with the remedy.

`make_corpus` made the files of `corpus/`, all of the same twelve persons.
"""

from __future__ import annotations

import codecs
import gzip
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.findings import InputCheck
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.product import TOPDOWN

CORPUS = Path(__file__).parent / "corpus"
PLAIN = CORPUS / "pandas" / "plain.csv"

SETTINGS = """
[input]
areas = "areas.csv"
people = "PATH"
confidential = false
[privacy]
dataset = "corpus"
[census.geography]
table = "areas"
geolevels = ["country", "region", "municipality", "section"]
[census.files.people]
missing = ["NA", "#NULL!", ".", "\\\\N"]
FILES
[census.attributes]
sex = { column = "sex", levels = { male = ["1"], female = ["2"] } }
age = { column = "age", bins = [0, 15, 30, 45, 65], largest = 110 }
role.column = "role"
role.levels = { head = ["1"], partner = ["2"], child = ["3"] }
role.blank = "not stated"
[census.universes.people]
table = "people"
attributes = ["sex", "age", "role"]
area = "section"
[budget.people]
rho = "1"
delta = "1e-10"
queries.other = { detailed = "1" }
[run]
universes = ["people"]
"""
AREAS = "region,municipality,section\n01,0101,0101001\n01,0101,0101002\n02,0202,0202001\n"

REFUSED = {
    "arrow/frame.feather": "is an Arrow or Feather file",
    "arrow/table.orc": "not UTF-8 text",
    "excel/csv_semicolons_1250.csv": "name its encoding",
    "excel/empty_rows_below.csv": "section must be the code of an area",
    "excel/lost_zeros.csv": "section must be the code of an area",
    "excel/workbook.xlsx": "is a ZIP archive or a workbook",
    "folders/twin": "people.csv.gz",
    "folders/workbook_beside": "notes.xlsx",
    "impala/latin1.parquet": "column section .*UTF-8",
    "pandas/booleans.parquet": "sex must have a level",
    "pandas/german.csv": "role must have a level.* decimal comma",
    "pandas/lines.json": "is a JSON file",
    "pandas/zipped.csv.zip": "is a ZIP archive",
    "polars/frame.arrow": "is an Arrow or Feather file",
    "postgresql/booleans.csv": "sex must have a level",
    "r/frame.rds": "is an R data file",
    "r/spaces.txt": "separated by pipes, commas, tabs or semicolons",
    "r/write_csv2.csv": "sex must have a level.* decimal comma",
    "sas/transport.xpt": "is a SAS transport file",
    "spss/people.sav": "is an SPSS file",
    "sqlite/people.sqlite": "is an SQLite database",
    "stata/labels.csv": "sex must have a level",
    "stata/people.dta": "is a Stata file",
}
"""Files that are refused, with words of the sentence; all others hold the twelve persons."""

FILES = sorted(
    path.relative_to(CORPUS).as_posix() for folder in CORPUS.iterdir() for path in folder.iterdir()
)


def checked(path: Path, folder: Path, files: str = "") -> InputCheck:
    """The check of a table of persons; settings and areas are written to a folder."""
    (folder / "areas.csv").write_text(AREAS)
    file = folder / "settings.toml"
    text = SETTINGS.replace("PATH", str(path)).replace("FILES", files)
    file.write_text(text, encoding="utf-8")
    return check_input_of(TOPDOWN.load(file))


def counts(check: InputCheck) -> dict[tuple[int, int], int]:
    """Persons by area and cell."""
    histogram = check.accepted().histograms["people"].tocoo()
    return {
        (int(a), int(c)): int(n) for a, c, n in zip(*histogram.coords, histogram.data, strict=True)
    }


def expected_counts() -> dict[tuple[int, int], int]:
    """Those of a plain reading by pandas."""
    frame = pd.read_csv(PLAIN, dtype={"section": str})
    area = frame["section"].map({"0101001": 0, "0101002": 1, "0202001": 2})
    age = pd.cut(frame["age"], [0, 15, 30, 45, 65, 111], right=False, labels=False)
    cell = ((frame["sex"] - 1) * 5 + age) * 4 + frame["role"].fillna(4).astype(int) - 1
    return dict(Counter(zip(area.tolist(), cell.tolist(), strict=True)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_right_counts_or_is_refused(name: str, tmp_path: Path) -> None:
    if name in REFUSED:
        with pytest.raises(InputRefused, match=REFUSED[name]) as refused:
            checked(CORPUS / name, tmp_path).accepted()
        assert ";" in str(refused.value), "without a remedy"
    else:
        assert counts(checked(CORPUS / name, tmp_path)) == expected_counts()


def test_the_corpus_has_every_kind() -> None:
    assert REFUSED.keys() <= {*FILES} and len(FILES) >= 30
    programs = {name.partition("/")[0] for name in FILES}
    assert programs >= {"excel", "r", "sas", "spss", "stata", "spark", "impala", "pandas", "polars"}


def test_cp1250_is_read_once_it_is_named(tmp_path: Path) -> None:
    path = CORPUS / "excel" / "csv_semicolons_1250.csv"
    assert counts(checked(path, tmp_path, 'encoding = "windows-1250"')) == expected_counts()


ROWS = [line.split(",") for line in PLAIN.read_text(encoding="utf-8").splitlines()]
SPELLINGS = {
    "sex": st.sampled_from(["{}", "{}.0", "{}.", " {}", "{} ", "0{}", "{}e0", "'{}'", ""]),
    "role": st.sampled_from(["{}", "{}.0", "0{}", "NA", ".", ""]),
    "age": st.sampled_from(["{}", "{}.0", "{}.5", "1e+01", "-1", "999"]),
    "name": st.sampled_from(["{}", "{}, {}", '{} "{}"', "{}\n{}", "{}\r{}", "\x00", "{};{}", "|"]),
    "section": st.sampled_from(["{}", " {}", "9{}", ""]),
}


@dataclass
class Text:
    """A delimited text that is being changed, and the names of further files beside it."""

    rows: list[list[str]]
    separator: str = ","
    ending: str = "\n"
    encoding: str = "utf-8"
    mark: bytes = b""
    quoted: bool = True
    last_end: bool = True
    packed: bool = False
    lines: dict[int, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    def cell(self, value: str) -> str:
        """One cell, quoted where it must be, unless its writer never quotes."""
        special = any(each in value for each in (self.separator, '"', "\n", "\r"))
        return '"' + value.replace('"', '""') + '"' if special and self.quoted else value

    def content(self, rows: list[list[str]]) -> bytes:
        """The bytes of a file with some rows."""
        lines = [self.separator.join(map(self.cell, row)) for row in rows]
        for place, line in sorted(self.lines.items(), reverse=True):
            lines.insert(min(place, len(lines)), line)
        text = self.ending.join(lines) + (self.ending if self.last_end else "")
        content = self.mark + text.encode(self.encoding, "replace")
        return gzip.compress(content) if self.packed else content


def _spelling(draw: st.DrawFn, text: Text) -> None:
    column = draw(st.sampled_from(sorted(SPELLINGS)))
    place, form = text.rows[0].index(column), draw(SPELLINGS[column])
    every = draw(st.booleans())
    for row in text.rows[1:] if every else [draw(st.sampled_from(text.rows[1:]))]:
        if place < len(row):  # An earlier change may have shortened it.
            row[place] = form.replace("{}", row[place])


def _shape(draw: st.DrawFn, text: Text) -> None:
    kind = draw(st.sampled_from(["column", "repeated", "order", "short", "long", "lost", "twice"]))
    if kind == "column":
        for number, row in enumerate(text.rows):
            row.insert(0, str(number) if number else "")
    elif kind == "repeated":
        for row in text.rows:
            row.append(row[1])
    elif kind == "order":
        order = draw(st.permutations(range(len(text.rows[0]))))
        text.rows[:] = [[row[n] for n in order if n < len(row)] for row in text.rows]
    elif kind == "lost":
        del text.rows[draw(st.integers(2, len(text.rows))) :]
    else:
        row = draw(st.sampled_from(text.rows[1:]))
        text.rows += [list(row)] if kind == "twice" else []
        row[:] = row[:-1] if kind == "short" else [*row, "1"] if kind == "long" else row


def _bytes(draw: st.DrawFn, text: Text) -> None:
    text.separator = draw(st.sampled_from([",", ";", "\t", "|", " "]))
    text.ending = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text.encoding = draw(st.sampled_from(["utf-8", "utf-16", "latin-1", "cp1250", "ascii"]))
    if text.encoding == "utf-8":
        text.mark = draw(st.sampled_from([b"", codecs.BOM_UTF8]))
    text.quoted, text.last_end, text.packed = (draw(st.booleans()) for _ in range(3))


def _lines(draw: st.DrawFn, text: Text) -> None:
    line = draw(st.sampled_from(["", " ", ",,,,,", "# comment", '"', "\x1a", ",".join(ROWS[0])]))
    text.lines[draw(st.integers(0, len(text.rows)))] = line


def _folder(draw: st.DrawFn, text: Text) -> None:
    names = [".people.csv", "_people.csv", "PEOPLE2.CSV", "old/more.txt", "empty.csv", "people.bak"]
    text.beside = tuple(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))


@st.composite
def texts(draw: st.DrawFn) -> Text:
    """The persons after one to four changes, as other programs and hands make them."""
    text = Text([list(row) for row in ROWS])
    changes = st.sampled_from([_spelling, _shape, _bytes, _lines, _folder])
    for change in draw(st.lists(changes, min_size=1, max_size=4)):
        change(draw, text)
    return text


def written(text: Text, folder: Path) -> tuple[Path, list[Path]]:
    """Write a text; returns the path for the settings, and the files that hold persons."""
    if not text.beside:
        file = folder / f"people.csv{'.gz' if text.packed else ''}"
        file.write_bytes(text.content(text.rows))
        return file, [file]
    people = folder / "people"
    (people / "old").mkdir(parents=True)
    half = len(text.rows) // 2
    first, second = text.rows[: half + 1], [text.rows[0], *text.rows[half + 1 :]]
    files = [people / "people.csv"]
    rows = {".people.csv": first, "_people.csv": first, "empty.csv": text.rows[:1]}
    files[0].write_bytes(text.content(first))
    for name in text.beside:
        (people / name).write_bytes(text.content(rows.get(name, second)))
        if name in ("PEOPLE2.CSV", "old/more.txt", "people.bak"):
            files.append(people / name)
    return people, files


def plain_readings(text: Text, files: list[Path]) -> set[int]:
    """Numbers of persons by pandas, and by DuckDB where it reads them; empty if neither can."""
    found = set()
    compression = "gzip" if text.packed else None
    try:
        frames = [
            pd.read_csv(
                file,
                sep=text.separator,
                dtype=str,
                encoding="utf-8-sig" if text.mark else text.encoding,
                compression=compression,
            )
            for file in files
        ]
        found.add(sum(map(len, frames)))
    except (ValueError, UnicodeError):
        pass
    if text.encoding in ("utf-8", "ascii"):
        with closing(duckdb.connect()) as database:
            query = "SELECT count(*) FROM read_csv(?, delim=?, all_varchar=true, header=true"
            query += f", compression='{compression or 'none'}')"
            try:
                numbers = [
                    database.execute(query, [str(f), text.separator]).fetchall()[0][0]
                    for f in files
                ]
                found.add(sum(numbers))
            except duckdb.Error:
                pass
    return found


def _hold(examples: int, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """Try so many changed texts; returns how many were refused, by sentence."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        database=None,
        derandomize=examples < 1000,
        suppress_health_check=list(HealthCheck),
    )
    @given(texts())
    def hold(text: Text) -> None:
        folder = tmp_path_factory.mktemp("changed")
        path, files = written(text, folder)
        try:
            found = checked(path, folder).accepted()
        except InputRefused as error:
            sentence = str(error).partition(": ")[2]
            event(sentence)
            outcomes[sentence] += 1
            return
        outcomes["read"] += 1
        number = int(found.histograms["people"].sum())
        readings = plain_readings(text, files)
        assert not readings or number in readings, (number, readings, path)

    hold()
    return outcomes


@pytest.mark.slow
def test_changed_texts_never_give_another_number_of_people(tmp_path_factory) -> None:
    outcomes = _hold(30, tmp_path_factory)
    assert outcomes["read"] > 2 and len(outcomes) > 3


@pytest.mark.soak
def test_two_thousand_changed_texts(tmp_path_factory) -> None:
    outcomes = _hold(2000, tmp_path_factory)
    for sentence, number in outcomes.most_common():
        print(f"{number:5} {sentence}")
    assert outcomes["read"] > 200
