"""The files of a release of households: t3.csv and t4.csv in the production layout, and one tidy
Parquet file.

Layout, order, memory and stamp are those of the files of persons.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from ..ingest.household_ingest import run_parameters
from ..measurement.households import noise_of
from ..paths import HOUSEHOLDS
from ..postprocess.groups import MEASURED, read_groups
from ..postprocess.run import distribution_of
from ..settings import DetailedHouseholdsSettings
from ..workload.households import HouseholdParameters
from ..workload.regions import REGION_TYPES
from ..workload.tabulations import HouseholdTabulation
from .count_margins import CountNoise
from .files import append_rows, slices
from .household_tables import TIDY, category_rows, data_cell, text_rows, tidy_rows
from .run import names_of

TIDY_FILE = "detailed_households.parquet"


def text_file(tabulation: HouseholdTabulation) -> str:
    """Name of the text file of a tabulation."""
    return f"{tabulation.name}.csv"


def measured_groups(
    run: RunDirectory, parameters: HouseholdParameters, name: str
) -> Iterator[tuple[str, int, pa.Table]]:
    """Region type, level and measured groups, columns `MEASURED`, of every level of a
    tabulation that has any.
    """
    for item in parameters.of[name].budgets:
        region_pass = REGION_TYPES[item.region_type].region_pass
        folder = run.root / "measurements" / HOUSEHOLDS / name / region_pass
        files = sorted((folder / item.region_type / str(item.level)).glob("*.parquet"))
        if files:
            yield item.region_type, item.level, read_groups(files, MEASURED)


def count_noise_of(
    run: RunDirectory,
    settings: DetailedHouseholdsSettings,
    parameters: HouseholdParameters,
    name: str,
) -> CountNoise:
    """The noise of the released counts of a tabulation, at the confidence of the settings."""
    noise = {
        (item.region_type, item.level): distribution_of(
            noise_of(run, settings, parameters, name, item.region_type, item.level)
        )
        for item in parameters.of[name].budgets
    }
    are_cut = not parameters.first.allow_negative_counts
    return CountNoise(noise, noise, settings.mechanism.coverage, are_cut)


def write_run_release(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """Write the release's files where they are checked before they are released."""
    parameters, names, folder = run_parameters(run, settings), names_of(run), run.unchecked_release
    is_private = settings.is_private
    schema = TIDY.with_metadata({} if is_private else {STAMP_KEY: NOT_PRIVATE})
    stamp = b"" if is_private else f"# {NOT_PRIVATE}\n".encode()
    with ExitStack() as whole:
        path = whole.enter_context(replacing(folder / TIDY_FILE))
        tidy = whole.enter_context(
            pq.ParquetWriter(path, schema, compression="zstd", compression_level=1)
        )
        for tabulation, own in parameters.tables():
            noise = count_noise_of(run, settings, parameters, tabulation.name)
            columns = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", data_cell(tabulation), "COUNT")
            with replacing(folder / text_file(tabulation)) as part, part.open("wb") as text:
                text.write(stamp + "|".join(columns).encode() + b"\n")
                for _, _, measured in measured_groups(run, parameters, tabulation.name):
                    for groups in slices(measured):
                        rows = category_rows(
                            groups,
                            tabulation,
                            allow_negative_counts=own.allow_negative_counts,
                        )
                        append_rows(text, text_rows(groups, tabulation, rows))
                        tidy.write_table(tidy_rows(groups, tabulation, rows, names, noise))


def has_unchecked_release(run: RunDirectory) -> bool:
    """Whether the files have been written, the last of them too, and not been released yet."""
    return (run.unchecked_release / TIDY_FILE).exists()
