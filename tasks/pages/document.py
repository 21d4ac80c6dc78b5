"""Small documents of headings, paragraphs, tables and figures, as Markdown and as one HTML file.

The HTML is made by the templates in `templates/`, which escape all content of a document. The only
exception is the markup of figures, which `figures` makes and escapes. Every
table has a link that holds the same table as CSV, so that the file needs no other.

Documents come from templates: prose as Markdown with Jinja, tables and figures in their places. A
template's first heading is the title of the document, `##` begins a section, and `###` a panel of
the front page; paragraphs are separated by empty lines. A value that is a block, or several,
becomes those blocks where the template prints it. Templates are in the folders `templates` of
their packages, and are named by their path below `tasks/`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context
from markupsafe import Markup

from .figures import bar_chart
from .numbers import format_delta, format_epsilon, format_rho, format_upper_bound


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page, by a path relative to the document."""

    text: str
    target: str


Cell = str | int | float | Link

NONE = "–"
"""Cell of a column of numbers without a number."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headers; numbers are set to the right.

    `deciding` is the header of the column that a reader looks for, such as the outcome of a check:
    on a narrow screen it stays in view while the others move under it. The first column does too.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    deciding: str | None = None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Cell | None]], deciding: str | None = None) -> Table:
        """A table of one row or more, of cells by header; None is shown as `NONE`."""
        shown = (tuple(NONE if cell is None else cell for cell in row.values()) for row in rows)
        return cls(tuple(rows[0]), tuple(shown), deciding)


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG markup, and its description; Markdown keeps the description alone."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Details:
    """Blocks that a page folds away under a line that describes them."""

    summary: str
    blocks: tuple[str | Table | Figure, ...]


Block = str | Table | Figure | Details


@dataclass(frozen=True)
class Section:
    """A heading and its content: paragraphs, tables, figures and folded details."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class FrontPage:
    """The first answers for a reader of a report.

    verdict : the run's outcome, in a sentence; `is_good` whether it is as it should be.
    guarantee : the guarantee, in a sentence; empty where a run has no guarantee.
    panels : a few figures or small tables under headings, side by side.
    links : pages and files to go on with.
    """

    verdict: str
    is_good: bool
    guarantee: str
    panels: tuple[Section, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Document:
    """A title, paragraphs that introduce it, sections, and a stamp if it must carry one.

    The front page stands before the sections, the colophon, for digests and versions, behind them.
    A page may fold its sections under their titles.
    """

    title: str
    introduction: tuple[str, ...]
    sections: tuple[Section, ...] = field(default=())
    stamp: str | None = None
    front: FrontPage | None = None
    colophon: tuple[Block, ...] = ()
    folded: bool = False


def to_markdown(document: Document) -> str:
    """The document as GitHub-flavoured Markdown.

    >>> print(to_markdown(Document("Title", ("Words.",))))
    # Title
    <BLANKLINE>
    Words.
    <BLANKLINE>
    """
    return render_page("pages/templates/document.md.j2", document=document)


def to_csv(table: Table, stamp: str | None = None) -> str:
    r"""A table as CSV, with the stamp before the header as a line after "# ".

    Numbers have up to six digits and no separators between thousands; missing numbers are
    empty fields. Links are reduced to their text.

    >>> to_csv(Table(("level", "n"), (("a, b", 12345), ("c", NONE))))
    'level,n\r\n"a, b",12345\r\nc,\r\n'
    """
    text = StringIO()
    if stamp:
        text.write(f"# {stamp}\r\n")
    rows = csv.writer(text)
    rows.writerow(table.headers)
    rows.writerows(map(_csv_field, row) for row in table.rows)
    return text.getvalue()


def to_html(document: Document) -> str:
    """The document as one HTML file that needs nothing else."""
    return render_page("pages/templates/document.html.j2", document=document)


def render_page(template: str, **context: Any) -> str:
    """A page from a template, named by its place below `tasks/`; texts are escaped in HTML."""
    return templates().get_template(template).render(context)


@cache
def templates() -> Environment:
    """The templates of pages of all rooms, with their tests and filters."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    kinds = {"table": Table, "figure": Figure, "details": Details, "link": Link}
    for name, kind in kinds.items():
        found.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    found.filters["shown"] = _format_cell
    found.filters["numeric_columns"] = _numeric_columns
    found.filters["classes"] = _classes
    found.filters["drawing"] = Markup
    found.filters["csv_name"] = _csv_name
    found.filters["csv_link"] = _csv_link
    return found


def _csv_field(cell: Cell) -> str | int:
    if isinstance(cell, float):
        return f"{cell:.6g}"
    text = cell.text if isinstance(cell, Link) else cell
    return "" if text == NONE else text


def _csv_name(table: Table, title: str) -> str:
    """Download name of a table: from its section and its first column."""
    words = re.findall(r"[a-z0-9]+", f"{title} {table.headers[0]}".lower())
    return f"{'-'.join(words)[:80] or 'table'}.csv"


def _csv_link(table: Table, stamp: str | None) -> Markup:
    """The table as a data address; quoting escapes every character that ends an attribute."""
    return Markup(f"data:text/csv;charset=utf-8,{quote(to_csv(table, stamp), safe=_PLAIN)}")


_PLAIN = ",;:/()*!@$+="
"""Characters that are not escaped in the address of a download."""


def _format_cell(cell: Cell) -> str:
    if isinstance(cell, Link):
        return cell.text
    if isinstance(cell, bool | str):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.4g}"


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _numeric_columns(table: Table) -> list[bool]:
    return [
        any(_is_number(row[column]) for row in table.rows)
        and all(_is_number(row[column]) or row[column] == NONE for row in table.rows)
        for column in range(len(table.headers))
    ]


def _classes(is_number: bool, is_deciding: bool, text: str = "") -> Markup:
    """The attribute with the classes of a cell, by its column and its text; empty without any."""
    named = ["number"] if is_number else []
    if is_deciding:
        named.append("deciding")
    if not is_number and len(text) > 16:
        named.append("wrap" if len(text) > 40 else "words")
    return Markup(f' class="{" ".join(named)}"') if named else _NO_CLASSES


_NO_CLASSES = Markup()


MARK = "\x00"
"""Marker before and after the number of a block in rendered text."""

PLACED = "_placed"
"""Where a template's context has the blocks that it has printed."""


def parts_of(template: str, **context: Any) -> tuple[str, list[Section], list[Section]]:
    """The title, the panels and the sections of a template; the first section has no title and
    precedes all others. A section without blocks is left out.
    """
    placed: list[Block] = []
    text = _text_templates().get_template(template).render(**context, **{PLACED: placed})
    title, parts = "", [("", Section("", ()))]
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split())
        level, _, rest = words.partition(" ")
        if level == "#":
            title = rest
        elif level in ("##", "###"):
            parts.append((level, Section(rest, ())))
        elif words:
            block = placed[int(words.strip(MARK))] if words.startswith(MARK) else words
            mark, section = parts[-1]
            parts[-1] = (mark, Section(section.title, (*section.blocks, block)))
    panels = [own for mark, own in parts if mark == "###" and own.blocks]
    sections = [own for mark, own in parts[1:] if mark == "##" and own.blocks]
    return title, panels, [parts[0][1], *sections]


def document_of(
    template: str,
    stamp: str | None = None,
    front: FrontPage | None = None,
    colophon: tuple[Block, ...] = (),
    *,
    folded: bool = False,
    **context: Any,
) -> Document:
    """The document of a template, whose panels are those of the front page, if it has one."""
    title, panels, (first, *sections) = parts_of(template, **context)
    front = None if front is None else replace(front, panels=tuple(panels))
    introduction = tuple(map(str, first.blocks))
    return Document(title, introduction, tuple(sections), stamp, front, colophon, folded)


def render_template(text: str, context: Mapping[str, Any]) -> str:
    """A text rendered as a template, with its names filled in."""
    return _text_templates().from_string(text).render(context).strip()


def table(rows: Iterable[Mapping[str, Any]], deciding: str | None = None) -> Table | None:
    """A table of cells by header, as `Table.of`; nothing without rows."""
    listed: list[Mapping[str, Any]] = list(rows)
    return Table.of(listed, deciding) if listed else None


def values(rows: Mapping[str, Cell | None]) -> Table | None:
    """A table of values by label."""
    return table({"what": name, "value": value} for name, value in rows.items())


def bars(
    title: str,
    words: str,
    series: Mapping[str, Mapping[str, float]],
    label: str,
    nothing: str = "No noise was drawn.",
) -> Figure | str:
    """Bars by group, one for each of several series of figures of the same groups, with a
    description; or `nothing`, without groups.
    """
    groups = [group.replace("_", " ") for group in next(iter(series.values()), ())]
    if not groups:
        return nothing
    values = {name: list(figures.values()) for name, figures in series.items()}
    return Figure(
        bar_chart(groups, values, title=title, value_label=label), " ".join(words.split())
    )


@cache
def _text_templates() -> Environment:
    """The templates of all packages, with the functions that they call."""
    # A document is escaped where it is written as HTML.
    found = templates().overlay(autoescape=False, finalize=_place)
    found.globals |= {
        "table": table,
        "values": values,
        "bars": bars,
        "details": lambda summary, *blocks: Details(summary, blocks),
    }
    shown: dict[str, Callable[[Any], str]] = {
        "epsilon": format_epsilon,
        "bound": format_upper_bound,
        "delta": format_delta,
        "rho": format_rho,
        "words": lambda name: name.replace("_", " "),
        # `capitalize` of Jinja lowers the rest, which may contain names.
        "capital": lambda text: text[:1].upper() + text[1:],
        "number": lambda value: f"{value:,}",
        "short": lambda value: f"{float(value):.4g}",
    }
    found.filters |= shown
    return found


@pass_context
def _place(context: Context, value: Any) -> Any:
    """Print a placeholder for a block as a paragraph of its own; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Table | Figure | Details):
        placed = context[PLACED]
        placed.append(value)
        return f"\n\n{MARK}{len(placed) - 1}{MARK}\n\n"
    if isinstance(value, list | tuple):
        return "".join(f"\n\n{_place(context, one)}\n\n" for one in value)
    return value
