"""The files of a release: text in the production layout, and one tidy Parquet file.

For persons t1.csv has the totals and t2.csv sex by age, next to population_groups.parquet; for
households t3.csv has types and t4.csv tenures, next to detailed_households.parquet. The text files
have a header, `|` between columns, no quotes, and leading zeros. Groups are processed in their
order, in parts, so that memory is bounded by one part. The files appear when all parts are written,
the tidy one last.

A run that is not private is stamped: the text files begin with the line `# NOT PRIVATE` and the
Parquet metadata has the key `spineflow` with that value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...runs import stamps
from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.stamps import parquet_rows
from ..ingest.ingest import Settings, read_run_names, run_parameters, run_specification
from ..postprocess.groups import select_released
from ..postprocess.run import groups_to_release
from ..workload.budgets import level_budgets
from ..workload.tabulations import TABULATIONS, Tabulation
from .tables import (
    CountNoise,
    GroupNames,
    count_rows,
    text_rows,
    text_schema,
    tidy_rows,
    tidy_schema,
)

TIDY_FILES = {
    "persons": "population_groups.parquet",
    "households": "detailed_households.parquet",
}
"""The tidy file of a release by kind of record."""

GROUPS_PER_PART = 1 << 18


def write_run_release(run: RunDirectory, settings: Settings) -> None:
    """Write the release's files to the folder of the unchecked release."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    tables: list[tuple[Tabulation, Iterable[pa.Table], CountNoise]] = []
    for name, own in parameters.of.items():
        released = groups_to_release(run, settings, name)
        parts = (select_released(groups) for _, groups in released)
        levels = None if own.infinite else level_budgets(own, specification)
        noise = CountNoise(levels, own.wanted.coverage, not own.allow_negative_counts)
        tables.append((TABULATIONS[name], parts, noise))
    write_release(run.unchecked_release, tables, names_of(run), is_private=settings.is_private)


def write_release(
    folder: Path,
    tables: Sequence[tuple[Tabulation, Iterable[pa.Table], CountNoise]],
    names: GroupNames,
    *,
    is_private: bool = True,
) -> None:
    """Write the files of some tabulations of the same records into a folder.

    Args:
        tables: of each tabulation the groups that are released, in parts with the columns
            `SCREENED`, and the noise of their counts.
        names: names of the iterations of all groups, and of regions.
    """
    first = tables[0][0]
    with (
        replacing(folder / TIDY_FILES[first.records]) as path,
        parquet_rows(path, tidy_schema(first), is_private, compression_level=1) as tidy,
    ):
        for tabulation, parts, noise in tables:
            with ExitStack() as stack:
                texts = {}
                for name, columns in tabulation.texts.items():
                    part = stack.enter_context(replacing(folder / f"{name}.csv"))
                    lines = stamps.text_rows(part, text_schema(columns), is_private, "|", False)
                    texts[name] = stack.enter_context(lines)
                for groups in (own for part in parts for own in slices(part)):
                    rows = count_rows(groups, tabulation, are_cut=noise.are_cut)
                    for name, columns in tabulation.texts.items():
                        mask = np.ones(rows.label.size, dtype=bool)
                        if tabulation.of_persons:
                            # Totals have a file of their own.
                            mask = (rows.label == 0) == (not columns)
                        texts[name].write_table(text_rows(groups, rows, columns, mask))
                    tidy.write_table(tidy_rows(groups, tabulation, rows, names, noise))


def slices(groups: pa.Table) -> Iterator[pa.Table]:
    """Groups in parts of at most `GROUPS_PER_PART`."""
    for start in range(0, groups.num_rows, GROUPS_PER_PART):
        yield groups.slice(start, GROUPS_PER_PART).combine_chunks()


def names_of(run: RunDirectory) -> GroupNames:
    """Names of the iterations, and of the regions that the input names."""
    iterations = run_specification(run).iterations
    return GroupNames(
        iteration_name={code: item.name for code, item in iterations.items()},
        iteration_level={code: item.level for code, item in iterations.items()},
        region_name=read_run_names(run),
    )
