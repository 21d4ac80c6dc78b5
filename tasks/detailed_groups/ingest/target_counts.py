"""True counts in the layout of the production program's non-private "target counts".

That program compares its release with them, and a release without noise is tested against them.
Confidential. They differ from a release without noise, as that program's do: nothing is suppressed,
every group that is not measured by a total only has all three sex by age tables (without the ages 0
to 4 of the third, which the second has), and in Puerto Rico the iterations of the other granularity
are counted too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from ...runs.files import replacing
from ..workload.parameters import MechanismParameters
from ..workload.regions import COARSE, DETAILED, PR, REGION_TYPES, region_domain
from ..workload.specification import Specification, iteration_universe
from ..workload.tabulations import AGE_BINS, FINEST_TABLE, N_SEXES, OLDEST_AGE, cells_of_table
from .counts import CELLS, CountedPersons, count_groups

ALL_AGES = "*"


def target_counts(
    persons: CountedPersons,
    areas: pd.DataFrame,
    specification: Specification,
    parameters: MechanismParameters,
) -> dict[str, pd.DataFrame]:
    """The target counts of all measured levels; for small inputs, since nothing is left out.

    Rows of `t1` and `t2`: REGION_ID, REGION_TYPE, ITERATION_CODE, COUNT. `t2` has AGESTART, AGEEND
    and SEX before COUNT, and no groups that are measured by a total only. Strings, but COUNT int64.
    Empty groups are included.
    """
    t1, t2 = [], []
    for region_type, level in parameters.budgets:
        kind = REGION_TYPES[region_type]
        regions = region_domain(region_type, areas)
        granularities = (DETAILED, COARSE) if kind.region_pass == PR else (kind.granularity,)
        shown: set[str] = set()
        for granularity in granularities:
            universe = iteration_universe(specification, granularity, level)
            cells = np.zeros((len(regions) * len(universe), CELLS), dtype=np.int64)
            for part in count_groups(persons, regions.region_of_area, universe):
                group = part.region.astype(np.int64) * len(universe) + part.iteration
                np.add.at(cells, (group, part.cell), part.count)
            keys = pd.DataFrame(
                {
                    "REGION_ID": np.repeat(regions.ids, len(universe)),
                    "REGION_TYPE": region_type,
                    "ITERATION_CODE": np.tile(universe.codes, len(regions)),
                }
            )
            # An iteration of both granularities has the same counts in either.
            is_new = ~keys["ITERATION_CODE"].isin(shown).to_numpy()
            has_tables = is_new & ~np.tile(universe.total_only, len(regions))
            t1.append(keys[is_new].assign(COUNT=cells[is_new].sum(axis=1)))
            t2.append(_sex_by_age(keys[has_tables], cells[has_tables]))
            shown |= set(universe.codes)
    return {"t1": pd.concat(t1, ignore_index=True), "t2": pd.concat(t2, ignore_index=True)}


def write_target_counts(folder: Path, counts: Mapping[str, pd.DataFrame]) -> tuple[Path, ...]:
    """Write `t1.csv` and `t2.csv`, pipe-delimited as the production program's; returns the files.

    They are true counts: `folder` is confidential unless the input is not.
    """
    paths = []
    for name, rows in counts.items():
        path = folder / f"{name}.csv"
        with replacing(path) as part:
            rows.to_csv(part, sep="|", index=False)
        paths.append(path)
    return tuple(paths)


def _sex_by_age(keys: pd.DataFrame, cells: np.ndarray) -> pd.DataFrame:
    parts = []
    for sex in range(N_SEXES):
        named = keys.assign(SEX=str(sex + 1))
        own = np.zeros(CELLS, dtype=bool)
        own[sex * CELLS // N_SEXES : (sex + 1) * CELLS // N_SEXES] = True
        parts.append(
            named.assign(AGESTART=ALL_AGES, AGEEND=ALL_AGES, COUNT=cells[:, own].sum(axis=1))
        )
        for table, bins in AGE_BINS.items():
            ends = [*(start - 1 for start in bins[1:]), OLDEST_AGE]
            for number, (start, end) in enumerate(zip(bins, ends, strict=True)):
                if table == FINEST_TABLE and start == 0:
                    continue
                inside = cells_of_table(table) == sex * len(bins) + number
                count = cells[:, inside].sum(axis=1)
                parts.append(named.assign(AGESTART=str(start), AGEEND=str(end), COUNT=count))
    columns = [*keys.columns, "AGESTART", "AGEEND", "SEX", "COUNT"]
    return pd.concat(parts, ignore_index=True)[columns]
