"""Files that can be read in several forms, and files that cannot be read."""

from __future__ import annotations

import gzip
import re
from decimal import Decimal
from io import BufferedReader, BytesIO
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.tables import readers
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.layouts import GEOGRAPHY_LAYOUT, LAYOUTS
from spineflow.tasks.tables.readers import Selection, read_batches, read_partitions
from spineflow.tasks.tables.sources import (
    InputFile,
    input_files,
    open_binary,
    open_text,
    refuse_shared,
)

from tests.census_inputs import check_inputs, generate_texts

PERSON_COLUMNS = ("MAFID", "QAGE", "CENHISP", "CENRACE", "QGQTYP")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """Bytes of each table of one county, by layout."""
    contents = {}
    for layout in ("parquet", "delimited", "fixed_width"):
        files = generate_texts(tmp_path_factory.mktemp(layout), layout, persons=600, seed=2)
        contents[layout] = {
            "persons": files.persons.read_bytes(),
            "units": files.units.read_bytes(),
            "geography": files.geography.read_bytes(),
        }
    return contents


def read(path: Path, table: str = "persons", columns: tuple[str, ...] = PERSON_COLUMNS):
    """All rows of a file as texts without surrounding blanks."""
    batches = list(read_batches(InputFile(table, str(path), "people"), Selection(columns)))
    frames = [pd.DataFrame({k: v.to_pylist() for k, v in b.items()}) for b in batches]
    frame = pd.concat(frames, ignore_index=True)
    return frame.apply(lambda column: column.astype(str).str.strip().str.lstrip("0"))


@pytest.mark.parametrize("of", [1, 2, 5, 40])
def test_shares_have_each_row_once(of: int, content, tmp_path: Path) -> None:
    """Of a text, of a Parquet file of many row groups, and of one without rows."""
    table = pq.read_table(BytesIO(content["parquet"]["persons"]))
    for name, size in (("a.parquet", 50), ("c.parquet", 1)):
        pq.write_table(table[: 20 * (size - 1)], tmp_path / name, row_group_size=size)
    (tmp_path / "b.csv").write_bytes(content["delimited"]["persons"])
    files = [InputFile("persons", str(path), "x") for path in sorted(tmp_path.iterdir())]
    wanted = Selection(PERSON_COLUMNS)

    def rows(share: tuple[int, int] | None = None) -> list[tuple]:
        return [
            (file, *map(str, row.values()))
            for file, batch in read_partitions(files, wanted, share)
            for row in pa.table(batch).to_pylist()
        ]

    shares = [rows((number, of)) for number in range(of)]
    assert sum(shares, []) == rows()
    assert sum(map(bool, shares)) > min(of, 5) / 2


@pytest.fixture
def expected(content, tmp_path):
    path = tmp_path / "expected.parquet"
    path.write_bytes(content["parquet"]["persons"])
    return read(path)


def variants(content: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    delimited = content["delimited"]["persons"]
    fixed = content["fixed_width"]["persons"]
    header, rows = delimited.split(b"\n", 1)
    return {
        "pipes": delimited,
        "commas": delimited.replace(b"|", b","),
        "tabs": delimited.replace(b"|", b"\t"),
        "semicolons": delimited.replace(b"|", b";"),
        "UTF-16": delimited.decode().encode("utf-16"),
        "UTF-16, gzip": gzip.compress(delimited.decode().encode("utf-16")),
        "blanks in the header": header.replace(b"|", b" | ") + b"\n" + rows,
        "carriage returns": delimited.replace(b"\n", b"\r\n"),
        "byte order mark": b"\xef\xbb\xbf" + delimited,
        "no last line end": delimited[:-1],
        "blank lines": delimited.replace(b"\n", b"\n\n", 3) + b"\n\n",
        "gzip": gzip.compress(delimited),
        "Parquet, gzip": gzip.compress(content["parquet"]["persons"]),
        "gzip members": gzip.compress(delimited[:5000]) + gzip.compress(delimited[5000:]),
        "fixed": fixed,
        "fixed, carriage returns": fixed.replace(b"\n", b"\r\n"),
        "fixed, byte order mark": b"\xef\xbb\xbf" + fixed,
        "fixed, no last line end": fixed[:-1],
        "fixed, gzip": gzip.compress(fixed),
    }


def test_variants_of_text_read_the_same(content, expected, tmp_path):
    path = tmp_path / "persons"
    for variant, data in variants(content).items():
        path.write_bytes(data)
        pd.testing.assert_frame_equal(read(path), expected, check_dtype=False, obj=variant)


@pytest.mark.parametrize("layout", ["delimited", "fixed_width"])
def test_small_blocks_read_the_same(layout, content, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_BLOCK_BYTES", 1000)
    path = tmp_path / "persons"
    path.write_bytes(content[layout]["persons"])
    pd.testing.assert_frame_equal(read(path), expected, check_dtype=False)


def test_quoted_values(tmp_path):
    path = tmp_path / "grfc.csv"
    names = ",".join(f'"{name}"' for name in GEOGRAPHY_LAYOUT.names)
    path.write_text(names + ',"NAME"\n' + '"1","44","001","000100","1","1000","9999","1","2","a,b"')
    selection = Selection(GEOGRAPHY_LAYOUT.names, with_others=True)
    [batch] = read_batches(InputFile("geography", str(path), "blocks"), selection)
    assert batch["NAME"].to_pylist() == ["a,b"]
    assert batch["TABBLKCOU"].to_pylist() == ["001"]


def without_rows(table: dict[str, bytes]) -> bytes:
    frame = pq.read_table(pa.BufferReader(table["persons"]))
    sink = pa.BufferOutputStream()
    pq.write_table(frame.slice(0, 0), sink)
    return sink.getvalue().to_pybytes()


def with_type(table: dict[str, bytes], column: str, values: pa.Array) -> bytes:
    frame = pq.read_table(pa.BufferReader(table["persons"]))
    position = frame.column_names.index(column)
    sink = pa.BufferOutputStream()
    pq.write_table(frame.set_column(position, column, values), sink)
    return sink.getvalue().to_pybytes()


def changed(content: dict[str, dict[str, bytes]]) -> dict[str, tuple[bytes, str, int | None]]:
    """Contents of a bad persons file, words of the refusal, and the count of wrong lines."""
    parquet, delimited, fixed = (
        content[layout]["persons"] for layout in ("parquet", "delimited", "fixed_width")
    )
    header, rows = delimited.split(b"\n", 1)
    first, second, others = fixed.split(b"\n", 2)
    fixed_lines = "every line must have 91 characters"
    ragged = "every row must have as many fields"
    n_rows = rows.count(b"\n")
    lists = pa.array([[1]] * n_rows)
    latin = pa.array([b"\xe9"] * n_rows).view(pa.string())
    return {
        "empty": (b"", "the file is empty", None),
        "white": (b" \n\n", "the file is empty", None),
        "gzip of nothing": (gzip.compress(b""), "the file is empty", None),
        "header only": (header, "holds no rows", None),
        "header line only": (header + b"\r\n\r\n", "holds no rows", None),
        "Parquet without rows": (without_rows(content["parquet"]), "holds no rows", None),
        "truncated gzip": (gzip.compress(delimited)[:-900], "gzip file is truncated", None),
        "gzip without its end": (gzip.compress(fixed)[:-4], "gzip file is truncated", None),
        "gzip header only": (gzip.compress(fixed)[:12], "gzip file is truncated", None),
        "damaged gzip": (
            gzip.compress(delimited)[:2000] + b"0000" + gzip.compress(delimited)[2004:],
            "gzip file is truncated or damaged",
            None,
        ),
        "short line": (b"\n".join([first, second[:-1], others]), fixed_lines, 1),
        "long lines": (b"\n".join([first + b"1", second + b"1", others]), fixed_lines, 2),
        "short last line": (fixed[:-3], fixed_lines, 1),
        "lines of two lengths": (b"\n".join([first[:-1], second + b"1", others]), fixed_lines, 2),
        "no line ends": (fixed.replace(b"\n", b""), fixed_lines, 1),
        "units as persons": (content["fixed_width"]["units"], fixed_lines, None),
        "Latin-1": (header + b"\n" + rows[:4000] + b"\xe9" + rows[4001:], "are not UTF-8", None),
        "Latin-1 at the end": (delimited[:-1] + b"\xc3", "are not UTF-8", None),
        "Latin-1, fixed": (fixed[:400] + b"\xe9" + fixed[401:], "are not UTF-8", None),
        "UTF-16 cut short": (delimited.decode().encode("utf-16")[:-1], "are not UTF-16", None),
        "letters, fixed": (fixed.replace(b"  ", "é".encode(), 1), "are not ASCII", None),
        "colons": (delimited.replace(b"|", b":"), "the header is not the CEF column", None),
        "header with colons": (
            header.replace(b"|", b":") + b"\n" + rows,
            "the header is not the CEF column names",
            None,
        ),
        "header with commas": (header.replace(b"|", b",") + b"\n" + rows, ragged, n_rows),
        "no header": (rows, "the header is not the CEF column names", None),
        "ragged row": (delimited[:-1] + b"|1\n", ragged, 1),
        "short rows": (delimited + b"3|1\n3|1\n", ragged, 2),
        "open quote": (
            b"\n".join([header + b"|X", *(row + b'|"x' for row in rows.splitlines())]),
            "every row must be one line",
            None,
        ),
        "repeated column": (
            header.replace(b"RELSHIP", b"CENRACE") + b"\n" + rows,
            "the column CENRACE occurs more than once",
            None,
        ),
        "no column": (header.replace(b"QAGE", b"AGE") + b"\n" + rows, "the column QAGE is", None),
        "truncated Parquet": (parquet[:-200], "Parquet file is truncated", None),
        "damaged Parquet": (
            parquet[:300] + bytes(len(parquet) // 2) + parquet[300 + len(parquet) // 2 :],
            "Parquet file is truncated or damaged",
            None,
        ),
        "magic only": (b"PAR1", "Parquet file is truncated", None),
        "truncated Parquet, gzip": (
            gzip.compress(parquet[:-200]),
            "Parquet file is truncated",
            None,
        ),
        "lists": (with_type(content["parquet"], "QAGE", lists), "QAGE is neither integers", None),
        "Latin-1, Parquet": (
            with_type(content["parquet"], "CENRACE", latin),
            "CENRACE holds bytes that are not UTF-8",
            None,
        ),
        "Latin-1 key, Parquet": (
            with_type(content["parquet"], "MAFID", latin),
            "MAFID holds bytes that are not UTF-8",
            None,
        ),
    }


def test_bad_files_are_refused(content, tmp_path, subtests):
    path = tmp_path / "persons"
    for case, (data, words, count) in changed(content).items():
        path.write_bytes(data)
        with subtests.test(case):
            with pytest.raises(UnreadableInput) as refused:
                read(path)
            finding = refused.value.finding
            assert finding.file == "people"
            assert words in finding.rule
            if count is not None:
                assert finding.count == count
            text = finding.sentence().replace("every line must have 91 characters", "")
            assert not re.search(r"\d", re.sub("UTF-8|UTF-16|of type .*;", "", text))


def as_decimals(path: Path, scale: int, *, half: bool = False) -> None:
    """Write a table's identifiers as decimals, as databases do."""
    table = pq.read_table(path)
    place = table.column_names.index("MAFID")
    kind = pa.decimal128(20, scale)
    values = pa.array([Decimal(int(value)) for value in table["MAFID"].to_pylist()], kind)
    if half:
        values = pa.array([Decimal("0.5"), *values.to_pylist()[1:]], kind)
    pq.write_table(table.set_column(place, "MAFID", values), path)


@pytest.mark.parametrize("scale", [0, 2])
def test_whole_decimals_are_integers(scale, content, expected, tmp_path):
    path = tmp_path / "persons.parquet"
    path.write_bytes(content["parquet"]["persons"])
    as_decimals(path, scale)
    pd.testing.assert_frame_equal(read(path), expected, check_dtype=False)


def test_other_decimals_are_refused_without_their_value(content, tmp_path):
    path = tmp_path / "persons.parquet"
    path.write_bytes(content["parquet"]["persons"])
    as_decimals(path, 2, half=True)
    with pytest.raises(UnreadableInput) as refused:
        read(path)
    words = "MAFID holds decimals that are not integers of up to 18 digits"
    assert words in str(refused.value)
    assert "0.5" not in str(refused.value)


def test_repeated_parquet_columns(content, tmp_path):
    table = pq.read_table(pa.BufferReader(content["parquet"]["persons"]))
    repeated = pa.Table.from_arrays([*table.columns, table["QAGE"]], [*table.column_names, "QAGE"])
    pq.write_table(repeated, tmp_path / "persons.parquet")
    with pytest.raises(UnreadableInput, match="QAGE occurs more than once"):
        read(tmp_path / "persons.parquet")


def test_a_bad_file_ends_the_check_with_a_clean_refusal(content, tmp_path):
    paths = {}
    for table in ("persons", "units", "geography"):
        paths[table] = tmp_path / table
        paths[table].write_bytes(content["delimited"][table])
    paths["persons"].write_bytes(content["delimited"]["persons"] + b"3|100000001|x\n")
    check = check_inputs(**paths)
    assert [(o.subject, o.passed) for o in check.outcomes] == [
        ("geography", True),
        ("units", True),
        ("persons", False),
    ]
    with pytest.raises(Exception, match="must have as many fields") as refused:
        check.accepted()
    assert refused.value.exit_code == 2
    assert refused.value.__context__ is None and refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing.txt", "does not exist"),
        ("missing/file.txt", "does not exist"),
        ("", "does not exist"),
        (".", "is a directory"),
        ("bad\0name", "cannot be opened"),
        ("x" * 5000, "cannot be opened"),
        ("nothing://x/y", "cannot be opened"),
        ("memory://missing/file", "there is no object memory://missing/file"),
    ],
)
@pytest.mark.parametrize("table", LAYOUTS)
def test_paths_that_cannot_be_opened(path, words, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableInput, match=words) as refused:
        list(read_batches(InputFile(table, path, "the file"), Selection(("MAFID",))))
    assert refused.value.finding.remedy.startswith(f"correct the path input.{table}")


TEXT = "head\r\nfirst line\nsecond é\n\nlast"
LINES = ["head", "first line", "second é", "", "last"]


def opened(content: bytes) -> BufferedReader:
    return open_text(InputFile("table", "t.csv", "t.csv"), BytesIO(content))


@pytest.mark.parametrize("how", ["plain", "gzip", "with a mark", "utf-16"])
def test_lines_are_read_one_after_the_other(how: str) -> None:
    content = {
        "plain": TEXT.encode(),
        "gzip": gzip.compress(TEXT.encode()),
        "with a mark": TEXT.encode("utf-8-sig"),
        "utf-16": TEXT.encode("utf-16"),
    }[how]
    assert opened(content).read().decode().split("\n") == LINES


def test_parts_of_a_file_follow_each_other() -> None:
    text = opened(TEXT.encode())
    parts = []
    while part := text.read(7):
        assert len(part) <= 7
        parts.append(part)
    assert b"".join(parts).decode().split("\n") == LINES
    assert text.raw.lines == 4


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnreadableInput, match="not UTF-8 text"):
        opened(b"a\nb\n\xff\xfe\xfa").read()


def test_a_file_is_the_table_of_one_name(tmp_path: Path) -> None:
    """People of two tables are charged as different people; a link is the same file."""
    (tmp_path / "people.csv").write_text("area\n1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/a.csv").symlink_to(tmp_path / "people.csv")
    (tmp_path / "parts/b.csv").write_text("area\n2\n")
    paths = {"people": "people.csv", "areas": "areas.csv", "again": "parts"}
    files = {name: input_files(name, str(tmp_path / path)) for name, path in paths.items()}
    shared = refuse_shared(files)
    refused = {file.name for own in shared.values() for file in own if file.refused}
    assert refused == {"a.csv"} and shared["people"] == files["people"]
    with pytest.raises(UnreadableInput, match="declare 'people' as the table"):
        open_binary(shared["again"][0])
