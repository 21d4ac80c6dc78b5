"""Text files of any office: separators, encodings, decimal commas, and codes for a blank."""

from __future__ import annotations

from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.formats import TextFormat, checked_encoding, with_point
from spineflow.tasks.tables.layouts import Field, TableLayout
from spineflow.tasks.tables.readers import Selection, read_batches
from spineflow.tasks.tables.sources import InputFile

LAYOUT = TableLayout(
    "towns",
    (Field("id", "key"), Field("Größe", "code"), Field("code", "code")),
    column_names="expected",
)
ROWS = "id;Größe;code\n1;12,5;Ñ\n2;-9;NA\n3;4,0;1,5\n"
NUMBERS = TextFormat(numbers=frozenset({"Größe"}), key="census.files.towns")


def read(path, form=NUMBERS):
    """All columns of a file as lists of texts, identifiers as they are."""
    file = InputFile("towns", str(path), path.name, LAYOUT, form)
    columns: dict[str, list] = {}
    for batch in read_batches(file, Selection(("id", "Größe", "code"))):
        for name, array in batch.items():
            values = (
                array.to_pylist()
                if name == "id"
                else CodedColumn.from_arrow(array, Field(name, "code")).texts().tolist()
            )
            columns.setdefault(name, []).extend(values)
    return columns


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "windows-1252"])
def test_encodings_that_are_told_or_shown_read_the_same(encoding, tmp_path):
    path = tmp_path / "towns.csv"
    path.write_bytes(ROWS.encode(encoding))
    told = None if encoding.startswith("utf") else encoding
    form = TextFormat(numbers=NUMBERS.numbers, encoding=told)
    found = read(path, form)
    assert found == {
        "id": ["1", "2", "3"],
        "Größe": ["12.5", "-9", "4"],
        "code": ["Ñ", "NA", "1,5"],
    }


@given(
    st.text(
        st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters=';"\u2028'),
        max_size=30,
    )
)
def test_a_transcoded_file_reads_as_its_utf8_twin(text):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for encoding in ("utf-8", "utf-16", "gb18030", "utf-32-be"):
            path = Path(folder) / "towns.csv"
            path.write_bytes(f"id;Größe;code\n1;2;{text}\n".encode(encoding))
            told = None if encoding in ("utf-8", "utf-16") else encoding
            texts.append(read(path, TextFormat(encoding=told))["code"])
        assert texts == [texts[0]] * len(texts)


def test_missing_codes_are_blank_in_every_column_and_identifiers_too(tmp_path):
    path = tmp_path / "towns.csv"
    path.write_text(ROWS.replace("3;", "NA;"), encoding="utf-8")
    missing = frozenset({"NA", "-9"})
    form = TextFormat(missing=missing, is_missing=missing.__contains__, numbers=NUMBERS.numbers)
    assert read(path, form) == {
        "id": ["1", "2", None],
        "Größe": ["12.5", None, "4"],
        "code": ["Ñ", None, "1,5"],
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_and_texts_agree_however_letters_are_composed(kind, tmp_path):
    path = tmp_path / f"towns.{kind}"
    names = [normalize("NFD", name) for name in ("id", "Größe", "code")]
    if kind == "csv":
        path.write_text(normalize("NFD", ROWS), encoding="utf-8")
    else:
        pq.write_table(pa.table([["é"], ["1"], [normalize("NFD", "Ñ")]], names=names), path)
    assert read(path)["code"][0] == "Ñ"


@pytest.mark.parametrize(
    ("encoding", "bad", "line"),
    [
        (None, b"\xe9", 3),
        ("windows-1252", b"\x81", 3),
        ("shift-jis", b"\xff", 3),
        ("ascii", b"\xe9", 3),
    ],
)
def test_bytes_of_another_encoding_are_refused_with_the_line(encoding, bad, line, tmp_path):
    path = tmp_path / "towns.csv"
    path.write_bytes(b"id;code;x\n1;a;b\n2;" + bad + b";d\n3;e;f\n")
    with pytest.raises(UnreadableInput) as refused:
        read(path, TextFormat(encoding=encoding, key="census.files.towns"))
    finding = refused.value.finding
    assert finding.line == line
    assert f"line {line}" in finding.sentence(with_counts=True)
    assert f"line {line}" not in finding.sentence()
    assert "census.files.towns.encoding" in finding.remedy


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_mark_that_should_be_there_is_missed(encoding, tmp_path):
    path = tmp_path / "towns.csv"
    path.write_bytes(ROWS.encode("utf-8"))
    with pytest.raises(UnreadableInput, match="not UTF-(16|32) text"):
        read(path, TextFormat(encoding=encoding, key="census.files.towns"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("told", ["latin-1", "utf-16-le", "utf-8"])
def test_a_byte_order_mark_is_surer_than_settings(encoding, told, tmp_path):
    path = tmp_path / "towns.csv"
    path.write_bytes(ROWS.encode(encoding))
    found = read(path, TextFormat(numbers=NUMBERS.numbers, encoding=told))
    assert found["Größe"] == ["12.5", "-9", "4"]


def test_decimal_marks():
    assert [
        with_point(text) for text in ("1,5", "-1,50", "2,00", "1.5", "1,2,3", "a,5", "٣,5")
    ] == [
        "1.5",
        "-1.50",
        "2",
        "1.5",
        "1,2,3",
        "a,5",
        "٣,5",
    ]
    assert TextFormat().decimal_beside(";") == ","
    assert TextFormat().decimal_beside(",") == "."
    assert TextFormat(decimal=".").decimal_beside(";") == "."


@pytest.mark.parametrize(
    "name", ["", "base64", "rot13", "zip", "punycode", "idna", "utf-7", "klingon", "unicode_escape"]
)
def test_what_is_no_encoding_of_files_is_refused(name):
    with pytest.raises(ValueError, match="no encoding of texts"):
        checked_encoding(name)
