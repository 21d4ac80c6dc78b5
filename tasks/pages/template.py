"""Documents from templates: prose as Markdown with Jinja, tables and figures in their places.

A template's first heading is the title of the document, `##` begins a section, and `###` a panel
of the front page; paragraphs are separated by empty lines. A value that is a
block, or several, becomes those blocks where the template prints it. Templates are in the folders
`templates` of their packages, and are named by their path below `tasks/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, pass_context
from jinja2.runtime import Context

from . import document
from .document import Block, Cell, Details, Figure, Section, Table
from .figures import bar_chart
from .numbers import format_delta, format_epsilon, format_rho, format_upper_bound

MARK = "\x00"
"""Marker before and after the number of a block in rendered text."""

PLACED = "_placed"
"""Where a template's context has the blocks that it has printed."""


def parts_of(template: str, **context: Any) -> tuple[str, list[Section], list[Section]]:
    """The title, the panels and the sections of a template; the first section has no title and
    precedes all others. A section without blocks is left out.
    """
    placed: list[Block] = []
    text = _templates().get_template(template).render(**context, **{PLACED: placed})
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


def render_template(text: str, context: Mapping[str, Any]) -> str:
    """A text rendered as a template, with its names filled in."""
    return _templates().from_string(text).render(context).strip()


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
def _templates() -> Environment:
    """The templates of all packages, with the functions that they call."""
    # A document is escaped where it is written as HTML.
    templates = document.templates().overlay(autoescape=False, finalize=_place)
    templates.globals |= {
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
    templates.filters |= shown
    return templates


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
