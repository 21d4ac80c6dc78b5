"""The files of a release: t1.csv and t2.csv in the production layout, and one tidy Parquet file.

The text files have a header, `|` between columns, no quotes, and leading zeros. Groups are taken in
the order in which they come, in parts, so that memory is that of one part. The files appear when
all parts are written, t1.csv last.

A run that is not private is stamped: the text files begin with the line `# NOT PRIVATE` and the
Parquet metadata has the key `spineflow` with that value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, replacing
from ...runs.stamps import stamp
from ..ingest.ingest import run_parameters, run_specification
from ..ingest.region_names import read_run_names
from ..postprocess.groups import released
from ..postprocess.run import groups_to_release
from ..settings import DetailedGroupsSettings
from .count_margins import CountNoise, count_noise_of
from .tables import TIDY, GroupNames, count_rows, t1_rows, t2_rows, tidy_rows

T1, T2, TIDY_FILE = "t1.csv", "t2.csv", "population_groups.parquet"

T1_COLUMNS = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", "COUNT")
T2_COLUMNS = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", "AGESTART", "AGEEND", "SEX", "COUNT")

GROUPS_PER_PART = 1 << 18
_TEXT = pa.csv.WriteOptions(include_header=False, delimiter="|", quoting_style="none")


def write_release(
    folder: Path,
    parts: Iterable[pa.Table],
    names: GroupNames,
    noise: CountNoise,
    *,
    is_private: bool = True,
) -> None:
    """Write `t1.csv`, `t2.csv` and `population_groups.parquet` into a folder.

    Args:
        parts: groups with the columns `COUNTED`; those that are suppressed are left out.
        names: names of the iterations of all groups, and of regions.
        noise: noise of the counts of every level.
    """
    schema = TIDY.with_metadata(stamp(is_private=is_private))
    with (
        replacing(folder / T1) as t1_part,
        replacing(folder / T2) as t2_part,
        replacing(folder / TIDY_FILE) as tidy_part,
        t1_part.open("wb") as t1,
        t2_part.open("wb") as t2,
        pq.ParquetWriter(tidy_part, schema, compression="zstd", compression_level=1) as tidy,
    ):
        begin_text(t1, T1_COLUMNS, is_private=is_private)
        begin_text(t2, T2_COLUMNS, is_private=is_private)
        for part in parts:
            for groups in slices(released(part)):
                rows = count_rows(groups)
                append_rows(t1, t1_rows(groups, rows))
                append_rows(t2, t2_rows(groups, rows))
                tidy.write_table(tidy_rows(groups, rows, names, noise))


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


def write_run_release(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """Write the release's files where they are checked before they are released."""
    write_release(
        run.unchecked_release,
        groups_to_release(run, settings),
        names_of(run),
        count_noise_of(run, run_parameters(run, settings), settings.mechanism.coverage),
        is_private=settings.is_private,
    )
