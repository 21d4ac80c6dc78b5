"""Documents as HTML and Markdown: everything is escaped, and one file is all that a page needs."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from io import StringIO
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.pages import document as document_module
from spineflow.tasks.pages.document import (
    NONE,
    Details,
    Document,
    Figure,
    FrontPage,
    Link,
    Section,
    Table,
    to_html,
    to_markdown,
)
from spineflow.tasks.pages.figures import line_chart

NASTY = """<script>alert("x")</script> & 'quotes' {{ 7 * 7 }} {% raw %}"""
VOID = {"meta", "link"}


class Outline(HTMLParser):
    """Elements with their attributes, and the text of the page; fails where tags do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


TABLE = Table(("geolevel", "sigma"), (("County", 12.5), (Link("tracts", "t.html"), NONE)))


def full(text: str) -> Document:
    """A document that has the text wherever a text can be."""
    svg = line_chart({text: ([1, 2], [3, 4])}, title=text, x_label=text, y_label=text)
    table = Table((text, "n"), ((text, 3), (Link(text, text), 4)))
    blocks = (text, table, Figure(svg, text), Details(text, (text, table)))
    return Document(text, (text,), (Section(text, blocks),) * 5, text)


def test_no_text_becomes_markup() -> None:
    page = Outline(to_html(full(NASTY)))
    assert not page.all("script")
    assert "".join(page.texts).count(NASTY) >= 5 * 9
    assert [a for a in page.all("a") if "download" not in a][-1]["href"] == NASTY


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=30))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    page = to_html(Document(text, (text,), (Section(text, (text,)),), text))
    assert [t for t in Outline(page).texts if t.strip() or t == text].count(text) == 5


def test_the_page_needs_no_other_file() -> None:
    page = to_html(full("words"))
    assert not re.search(r"""(src|href)=["'](?!data:|#|words")""", page)
    assert "@import" not in page and "url(" not in page and "<script" not in page


def downloads(page: str) -> list[tuple[str | None, str]]:
    """Names of the downloads of a page, and what they hold."""
    found = [a for a in Outline(page).all("a") if "download" in a]
    begin = "data:text/csv;charset=utf-8,"
    assert all((a["href"] or "").startswith(begin) for a in found)
    return [(a["download"], unquote((a["href"] or "").removeprefix(begin))) for a in found]


def test_beside_every_table_is_what_it_holds_as_csv() -> None:
    rows = (("County, north", 1234567, 12345.678), (Link("tracts", "t.html"), NONE, 0.5))
    table = Table(("geolevel", "n", "sigma"), rows)
    panel = Section("The budget", (table,))
    front = FrontPage("Good.", True, "", (panel,), ())
    section = Section("Noise of all", (table, Details("more", (table,))))
    found = downloads(to_html(Document("t", (), (section,), None, front)))
    names = ["the-budget-geolevel.csv", "noise-of-all-geolevel.csv", "more-geolevel.csv"]
    assert [name for name, _ in found] == names
    for _, text in found:
        assert list(csv.reader(StringIO(text))) == [
            ["geolevel", "n", "sigma"],
            ["County, north", "1234567", "12345.7"],
            ["tracts", "", "0.5"],
        ]


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20))
def test_any_text_comes_back_from_a_download(text: str) -> None:
    link = str(document_module._csv_link(Table((text, "n"), ((text, 1),)), None))
    assert not set(link) & set("\"'<>& \n")
    header, row = csv.reader(StringIO(unquote(link.partition(",")[2]), newline=""))
    assert (header, row) == ([text, "n"], [text if text != NONE else "", "1"])


def test_no_text_of_the_front_page_becomes_markup() -> None:
    front = FrontPage(NASTY, True, NASTY, (Section(NASTY, (NASTY,)),), (Link(NASTY, NASTY),))
    page = Outline(to_html(Document("T", (), (), None, front, (NASTY,))))
    assert not page.all("script") and "".join(page.texts).count(NASTY) == 6
    assert [a for a in page.all("a") if "download" not in a][-1]["href"] == NASTY


def test_markdown_says_the_same() -> None:
    text = to_markdown(Document("T", ("Intro.",), (Section("S", (TABLE,)),), "STAMP"))
    assert text == (
        "# T\n\n**STAMP**\n\nIntro.\n\n## S\n\n"
        "| geolevel | sigma |\n| --- | ---: |\n| County | 12.5 |\n| [tracts](t.html) | – |\n"
    )
