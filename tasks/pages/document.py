"""Small documents of headings, paragraphs, tables and figures, as Markdown and as one HTML file."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

_STYLE = """
:root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --tint: #f4f6f9; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 60rem; color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 46rem; }
.stamp { background: #8c1d18; color: #fff; padding: .6rem 1rem; font-weight: 600;
  border-radius: 4px; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
th { background: var(--tint); color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; }
td.wrap { white-space: normal; min-width: 12rem; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--soft); font-weight: 600; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .9rem; }
code { font-size: .85em; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to another page, by a path relative to the document."""

    text: str
    target: str


Cell = str | int | float | Link

NONE = "–"
"""Cell of a column of numbers where there is none."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headers; numbers are set to the right."""

    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG markup, and what it shows; Markdown keeps the words alone."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Details:
    """Blocks that a page folds away under a line that says what they are."""

    summary: str
    blocks: tuple[str | Table | Figure, ...]


Block = str | Table | Figure | Details


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it: paragraphs, tables, figures and folded details."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A title, paragraphs that introduce it, sections, and a stamp if it must carry one."""

    title: str
    introduction: tuple[str, ...]
    sections: tuple[Section, ...] = field(default=())
    stamp: str | None = None


def to_markdown(document: Document) -> str:
    """The document as GitHub-flavoured Markdown.

    >>> print(to_markdown(Document("Title", ("Words.",))))
    # Title
    <BLANKLINE>
    Words.
    <BLANKLINE>
    """
    parts = [f"# {document.title}"]
    if document.stamp:
        parts.append(f"**{document.stamp}**")
    parts += document.introduction
    for section in document.sections:
        parts.append(f"## {section.title}")
        parts += [_markdown(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def to_html(document: Document) -> str:
    """The document as one HTML file that needs nothing else."""
    title = html.escape(document.title)
    parts = [f"<h1>{title}</h1>"]
    if document.stamp:
        parts.append(f'<p class="stamp">{html.escape(document.stamp)}</p>')
    parts += [f"<p>{html.escape(text)}</p>" for text in document.introduction]
    for section in document.sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [_html(block) for block in section.blocks]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _markdown(block: Block) -> str:
    if isinstance(block, Table):
        return _markdown_table(block)
    if isinstance(block, Details):
        return "\n\n".join([f"**{block.summary}**", *map(_markdown, block.blocks)])
    return f"*{block.caption}*" if isinstance(block, Figure) else block


def _html(block: Block) -> str:
    if isinstance(block, Table):
        return _html_table(block)
    if isinstance(block, Figure):
        caption = html.escape(block.caption)
        return f"<figure>{block.svg}<figcaption>{caption}</figcaption></figure>"
    if isinstance(block, Details):
        inside = "\n".join(map(_html, block.blocks))
        summary = html.escape(block.summary)
        return f"<details>\n<summary>{summary}</summary>\n{inside}\n</details>"
    return f"<p>{html.escape(block)}</p>"


def _shown(cell: Cell) -> str:
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


def _markdown_table(table: Table) -> str:
    rule = ["---:" if numeric else "---" for numeric in _numeric_columns(table)]
    rows: Sequence[Sequence[str]] = [
        list(table.headers),
        rule,
        *([_markdown_cell(cell) for cell in row] for row in table.rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_cell(cell: Cell) -> str:
    text = _shown(cell).replace("|", "\\|")
    return f"[{text}]({cell.target})" if isinstance(cell, Link) else text


def _html_cell(cell: Cell) -> str:
    text = html.escape(_shown(cell))
    return f'<a href="{html.escape(cell.target)}">{text}</a>' if isinstance(cell, Link) else text


def _html_table(table: Table) -> str:
    numeric = _numeric_columns(table)

    def row(cells: Sequence[Cell], tag: str) -> str:
        shown = ""
        for cell, is_numeric in zip(cells, numeric, strict=True):
            kind = "number" if is_numeric else "wrap" if len(_shown(cell)) > 60 else ""
            attribute = f' class="{kind}"' if kind else ""
            shown += f"<{tag}{attribute}>{_html_cell(cell)}</{tag}>"
        return f"<tr>{shown}</tr>"

    head = row(table.headers, "th")
    body = "\n".join(row(cells, "td") for cells in table.rows)
    table_html = f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'<div class="scroll">{table_html}</div>'
