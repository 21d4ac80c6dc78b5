"""A release of group sizes as the truth of a simulation: what errors it can be expected to have.

The mechanism is public. Run again on the released numbers of groups, with fresh noise, it is off by
about as much as the release itself is. Nothing confidential is read, and nothing spent.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ..ingest.files import read_regions
from ..ingest.read import exact_level
from ..paths import regions_file
from ..settings import GeographySettings, GroupSizesSettings, GroupTables, Invariants


def settings_of_release(
    run: RunDirectory, settings: GroupSizesSettings, folder: Path
) -> GroupSizesSettings:
    """Settings of the same mechanism on a finished run's release, whose tables go to a folder."""
    hierarchy = read_regions(run)
    released = pq.read_table(run.release / "group_sizes.parquet")
    finest = released.filter(pc.equal(released["level"], hierarchy.names[-1]))
    sizes, regions = folder / "sizes.parquet", folder / "regions.parquet"
    pq.write_table(finest.select(["region", "size", "count"]), sizes)
    pq.write_table(pq.read_table(regions_file(run)), regions)
    mechanism = {"smallest_size": settings.smallest_size}
    level = exact_level(settings, hierarchy)
    exact = None if level == hierarchy.names[0] else level
    return settings.model_copy(
        update={
            "input": GroupTables(sizes=str(sizes), regions=str(regions), confidential=False),
            "geography": GeographySettings(),
            "invariants": Invariants(groups=True, level=exact),
            "mechanism": settings.mechanism.model_copy(update=mechanism),
        }
    )
