"""The noisy totals of a finished detailed-groups run, which choose the tables of households.

They are those of its release: what it suppressed has none, and whatever coterminous regions were
lent is there. They are public, and so is what they choose. Kept are the groups of the regions and
iterations that a run measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import while_unchanged
from ...runs.settings_files import settings_of_finished
from ...runs.stamps import write_parquet
from ..paths import Shard, group_totals_file, parameters_folder
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from ..workload.mapping import IterationUniverse
from ..workload.mechanism import choose_table
from ..workload.parameters import read_specification
from ..workload.regions import RegionDomain
from ..workload.specification import Specification
from ..workload.tabulations import KEY, NOT_MEASURED

T1 = "t1.csv"


def read_group_totals(
    settings: DetailedHouseholdsSettings, specification: Specification
) -> pd.DataFrame:
    """The totals of the finished run that the settings name: columns `KEY` and `count`.

    Raises InputRefused for what is no finished detailed-groups run, one of other people or of
    another specification, and one that is not private beside a run that is.
    """
    run = RunDirectory(Path(settings.input.groups))
    earlier = settings_of_finished(DetailedGroupsSettings, run, "input.groups", T1)
    if earlier.privacy.dataset != settings.privacy.dataset:
        raise InputRefused(
            f"input.groups is of the dataset {earlier.privacy.dataset}; name a run of "
            f"{settings.privacy.dataset}."
        )
    if settings.is_private and not earlier.is_private:
        raise InputRefused(
            "input.groups: the run is stamped NOT PRIVATE, so that whatever it chooses protects "
            "nobody; name a release whose noise protects."
        )
    known = read_specification(str(parameters_folder(run)))
    if _content(known) != _content(specification):
        raise InputRefused(
            "input.groups is a run with another specification of groups; name one with that of "
            "input.parameters."
        )
    totals = pd.read_csv(run.release / T1, sep="|", dtype=str, comment="#")
    totals.columns = [name.lower() for name in totals.columns]
    return totals.astype({"count": np.int64})


def _content(specification: Specification) -> tuple[object, ...]:
    pairs = set(specification.pairs)
    return dict(specification.names), dict(specification.iterations), pairs


def measured_totals(
    totals: pd.DataFrame,
    regions: Mapping[str, RegionDomain],
    universes: Mapping[tuple[str, int], IterationUniverse],
) -> pd.DataFrame:
    """The totals of groups that a run measures, level by level, in the order of its groups.

    `universes` are by region type and level, `regions` by region type.
    """
    parts = []
    for (region_type, _), universe in universes.items():
        own = totals[totals["region_type"] == region_type]
        own = own[own["region_id"].isin(set(regions[region_type].ids))]
        own = own[own["iteration_code"].isin(set(universe.codes))]
        parts.append(own.sort_values(["region_id", "iteration_code"]))
    return pd.concat(parts, ignore_index=True) if parts else totals[:0]


def write_totals(run: RunDirectory, totals: pd.DataFrame) -> None:
    """Keep the totals with the run's public geography."""
    columns = {name: pa.array(totals[name].tolist(), pa.string()) for name in KEY}
    table = pa.table({**columns, "count": pa.array(totals["count"].to_numpy(), pa.int64())})
    write_parquet(group_totals_file(run), table)


@while_unchanged(group_totals_file, at_most=2)
def run_totals(run: RunDirectory) -> pd.DataFrame:
    """The totals that are kept with a run."""
    return pq.read_table(group_totals_file(run)).to_pandas()


def chosen_tables(
    totals: pd.DataFrame,
    shard: Shard,
    regions: RegionDomain,
    universe: IterationUniverse,
    thresholds: tuple[int, ...],
) -> np.ndarray:
    """The table of each group of a shard, `NOT_MEASURED` without a total; int8, region by region.

    A group's table is the number of thresholds that its noisy total of persons reaches.
    """
    own = totals[totals["region_type"] == shard.region_type]
    ids = pd.Index(regions.ids[shard.start : shard.stop])
    region = ids.get_indexer(own["region_id"])
    iteration = pd.Index(universe.codes).get_indexer(own["iteration_code"])
    here = (region >= 0) & (iteration >= 0)
    table = np.full((shard.stop - shard.start) * len(universe), NOT_MEASURED, dtype=np.int8)
    position = region[here] * len(universe) + iteration[here]
    table[position] = choose_table(own["count"].to_numpy()[here], thresholds)
    return table
