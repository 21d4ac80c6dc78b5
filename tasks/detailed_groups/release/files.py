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
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, replacing
from ...runs.stamps import stamp
from ..ingest.ingest import Settings, read_run_names, run_parameters, run_specification
from ..paths import measured_folder
from ..postprocess.groups import MEASURED, read_groups, select_released
from ..postprocess.run import groups_to_release
from ..settings import DetailedGroupsSettings
from ..workload.budgets import level_budgets
from ..workload.parameters import Parameters
from ..workload.tabulations import TABULATIONS, Tabulation
from .tables import CountNoise, GroupNames, count_rows, text_rows, tidy_rows, tidy_schema

TIDY_FILES = {
    "persons": "population_groups.parquet",
    "households": "detailed_households.parquet",
}
"""The tidy file of a release by kind of record."""

GROUPS_PER_PART = 1 << 18
_KEY = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE")
_TEXT = pa.csv.WriteOptions(include_header=False, delimiter="|", quoting_style="none")


def write_run_release(run: RunDirectory, settings: Settings) -> None:
    """Write the release's files to the folder of the unchecked release."""
    parameters, specification = run_parameters(run, settings), run_specification(run)
    tables: list[tuple[Tabulation, Iterable[pa.Table], CountNoise]] = []
    for name, own in parameters.of.items():
        parts = (groups for _, _, groups in measured_groups(run, parameters, name))
        if isinstance(settings, DetailedGroupsSettings):
            parts = (select_released(groups) for groups in groups_to_release(run, settings))
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
            `MEASURED` and of persons `measured_at`, and the noise of their counts.
        names: names of the iterations of all groups, and of regions.
    """
    first = tables[0][0]
    schema = tidy_schema(first).with_metadata(stamp(is_private=is_private))
    with (
        replacing(folder / TIDY_FILES[first.records]) as path,
        pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as tidy,
    ):
        for tabulation, parts, noise in tables:
            with ExitStack() as stack:
                texts = {}
                for name, columns in tabulation.texts.items():
                    part = stack.enter_context(replacing(folder / f"{name}.csv"))
                    texts[name] = stack.enter_context(part.open("wb"))
                    header = (*_KEY, *columns, "COUNT")
                    begin_text(texts[name], header, is_private=is_private)
                for groups in (own for part in parts for own in slices(part)):
                    rows = count_rows(groups, tabulation, are_cut=noise.are_cut)
                    for name, columns in tabulation.texts.items():
                        mask = np.ones(rows.label.size, dtype=bool)
                        if tabulation.of_persons:
                            # Totals have a file of their own.
                            mask = (rows.label == 0) == (not columns)
                        append_rows(texts[name], text_rows(groups, rows, columns, mask))
                    tidy.write_table(tidy_rows(groups, tabulation, rows, names, noise))


def measured_groups(
    run: RunDirectory, parameters: Parameters, name: str
) -> Iterator[tuple[str, int, pa.Table]]:
    """Region type, level and measured groups, columns `MEASURED`, of every level of a tabulation
    that has any.
    """
    for level in parameters.of[name].budgets:
        files = sorted(measured_folder(run, name, *level).glob("*.parquet"))
        if files:
            yield *level, read_groups(files, MEASURED)


def slices(groups: pa.Table) -> Iterator[pa.Table]:
    """Groups in parts of at most `GROUPS_PER_PART`."""
    for start in range(0, groups.num_rows, GROUPS_PER_PART):
        yield groups.slice(start, GROUPS_PER_PART).combine_chunks()


def begin_text(file: BinaryIO, columns: Sequence[str], *, is_private: bool) -> None:
    """Write the header of a text file, below the stamp if it is not private."""
    lines = ["|".join(columns), ""] if is_private else [f"# {NOT_PRIVATE}", "|".join(columns), ""]
    file.write("\n".join(lines).encode())


def append_rows(file: BinaryIO, rows: pa.Table) -> None:
    """Append rows of text, without a header."""
    if rows.num_rows:
        pa.csv.write_csv(rows, file, _TEXT)


def names_of(run: RunDirectory) -> GroupNames:
    """Names of the iterations, and of the regions that the input names."""
    iterations = run_specification(run).iterations
    return GroupNames(
        iteration_name={code: item.name for code, item in iterations.items()},
        iteration_level={code: item.level for code, item in iterations.items()},
        region_name=read_run_names(run),
    )
