"""What benchmarks of figures share: rows that are kept as they are measured, and charts of them.

Figures take longer than one sitting. Every replicate's rows are appended to a CSV file as soon as
they are measured, and a command that is given again measures what the file lacks. The page and the
charts are drawn from all rows that are there.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from spineflow.tasks.pages.document import Document, Figure, Section, Table, to_html
from spineflow.tasks.pages.figures import line_chart

KEYS = ["data", "mechanism", "epsilon", "replicate", "level"]
"""What every row is of; all other columns are figures."""

SMALLEST = 1e-4
"""What a logarithmic axis shows of a 0."""

PAPER = '<rect width="100%" height="100%" fill="white"/>'
"""Behind a chart that stands alone, where a reader's page may be dark."""


def measure_and_draw(
    parser: argparse.ArgumentParser,
    measure: Callable[[Rows, argparse.Namespace], object],
    draw: Callable[[Rows, Path], object],
) -> None:
    """Run a command: measure what the rows of its folder lack, and draw what there is."""
    parser.add_argument("folder", type=Path)
    parser.add_argument("--replicates", type=int, default=0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.folder / "rows.csv")
    measure(rows, options)
    draw(rows, options.folder)


class Rows:
    """The rows of a file, and which replicates it has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = pd.read_csv(path, dtype={"epsilon": str}) if path.exists() else None

    def has(self, data: str, mechanism: str, epsilon: str, replicate: int) -> bool:
        """Whether a replicate has been measured."""
        if self.table is None:
            return False
        of = (data, mechanism, epsilon, replicate)
        is_it = [self.table[key] == value for key, value in zip(KEYS[:4], of, strict=True)]
        return bool(pd.concat(is_it, axis=1).all(axis=1).any())

    def add(self, rows: pd.DataFrame) -> None:
        """Append the rows of a replicate, to the file too."""
        rows.to_csv(self.path, mode="a", header=self.table is None, index=False)
        self.table = rows if self.table is None else pd.concat([self.table, rows])

    def means(self) -> pd.DataFrame:
        """Means over replicates by data, mechanism, epsilon and level, and how many there were.

        Every figure also has its smallest and its largest value: `error`, `error_min`, `error_max`.
        """
        if self.table is None:
            raise SystemExit(f"{self.path} has no rows yet.")
        keys = [key for key in KEYS if key != "replicate"]
        by_key = self.table.drop(columns="replicate").groupby(keys, sort=False)
        figures = [
            by_key.mean(),
            by_key.min().add_suffix("_min"),
            by_key.max().add_suffix("_max"),
            by_key.size().rename("replicates"),
        ]
        return pd.concat(figures, axis=1).reset_index()


def chart(
    means: pd.DataFrame, x: str, y: str, title: str, y_label: str, *, log_y: bool = True
) -> str:
    """A line for each mechanism; epsilon is on a logarithmic axis."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for name, own in means.groupby("mechanism", sort=False):
        ys = own[y].clip(lower=SMALLEST) if log_y else own[y]
        series[str(name)] = (own[x].astype(float).tolist(), ys.tolist())
    return line_chart(
        series, title=title, x_label=x, y_label=y_label, log_x=x == "epsilon", log_y=log_y
    )


def write_charts(
    folder: Path,
    title: str,
    about: str,
    charts: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, Table],
) -> None:
    """One page of all charts and tables, `figures.html`, and every chart as an SVG file; tables are
    printed too.

    `charts` has the charts by data and title, `tables` the numbers by data.
    """
    sections = []
    for data, own in charts.items():
        print(f"\n{data}\n")
        print_table(tables[data].headers, tables[data].rows)
        figures = [Figure(svg, f"{name}.") for name, svg in own.items()]
        sections.append(Section(data, (*figures, tables[data])))
        for name, svg in own.items():
            stem = re.sub(r"\W+", "_", f"{data} {name}".lower()).strip("_")
            file = svg.replace("</title>", f"</title>{PAPER}", 1)
            (folder / f"{stem}.svg").write_text(file + "\n", encoding="utf-8")
    document = Document(title, (about,), tuple(sections))
    (folder / "figures.html").write_text(to_html(document), encoding="utf-8")


def number(value: float) -> str:
    """A figure of a table, in four digits or, from a thousand on, whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_range(mean: float, smallest: float, largest: float) -> str:
    """A mean with the smallest and the largest of its replicates, if they differ."""
    if smallest == largest:
        return number(mean)
    return f"{number(mean)} ({number(smallest)}–{number(largest)})"


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in Markdown; all but the mechanisms' names are numbers."""
    print(f"| {' | '.join(headers)} |")
    print(f"| {' | '.join('---' if name == 'mechanism' else '---:' for name in headers)} |")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
