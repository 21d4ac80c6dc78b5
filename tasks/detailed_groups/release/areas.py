"""Sums of released groups over areas that were not tabulated, such as the districts of a city.

An area is a set of regions of one type, which do not overlap. The count of a group is the sum over
the regions that release it. Regions that suppress it are counted separately: their counts are
unknown, so that a sum over the other regions does not count the area.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...census.queries import TOTAL
from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import margin_of_sum
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.stamps import table_rows
from ...tables.area_lists import read_texts
from ..ingest.ingest import run_parameters, run_regions, run_specification
from ..postprocess import counts_of, groups_to_release, mask_of, totals_of
from ..settings import DetailedGroupsSettings
from ..workload.budgets import level_budgets

COLUMNS = ("area", "region")
"""Columns of a table of areas, with a row for each region."""
KEYS = ["area", "region_type", "iteration_code"]
SUMS = (
    *KEYS,
    "iteration_name",
    "iteration_level",
    "regions",
    "suppressed",
    "count",
    "is_complete",
    "variance",
    "margin",
)
"""Columns of the sums; `KEYS` identify area and group."""


def write_area_sums(
    run: RunDirectory,
    settings: DetailedGroupsSettings,
    query: Sequence[str],
    areas: Path | pd.DataFrame | None,
    level: float,
    out: Path | None = None,
) -> Path:
    """Write `sums_of_areas` as CSV or, by any other name, as Parquet.

    Args:
        query: the query of every group; only totals can be added up.
        areas: a table, or a file in CSV or Parquet.
        level: the probability with which a margin holds.
        out: by default `intervals/entities.parquet` of the run.

    Raises:
        InputRefused: another query, no areas, or as `sums_of_areas`.
    """
    if areas is None or tuple(query) != (TOTAL,):
        raise InputRefused(
            "Totals of detailed groups are added up over areas of your own: ask for the query "
            f"{TOTAL!r} and give areas with the columns {' and '.join(COLUMNS)}, and nothing else."
        )
    if not 0.0 < level < 1.0:
        raise InputRefused(f"A level of {level} is no probability; 0.9 and 0.95 are usual.")
    listed = read_texts(areas, COLUMNS) if isinstance(areas, Path) else areas
    sums = sums_of_areas(run, settings, listed, Fraction(str(level)))
    found = pa.Table.from_pandas(sums, preserve_index=False)
    path = run.root / "intervals" / "entities.parquet" if out is None else out
    with table_rows(path, found.schema, run) as writer:
        writer.write_table(found)
    return path


def sums_of_areas(
    run: RunDirectory,
    settings: DetailedGroupsSettings,
    listed: pd.DataFrame,
    coverage: Fraction,
) -> pd.DataFrame:
    """Totals of every group in areas that are lists of regions.

    Args:
        listed: columns `COLUMNS`, the ids of regions as the release has them.
        coverage: the probability with which a margin holds.

    Returns:
        A row for each area and group that its regions are tabulated by, with the columns `SUMS`:
        regions, of the area; suppressed, the regions that do not release the group; count, the sum
        over the other regions, null if every region suppresses it; is_complete, whether `count`
        covers the whole area; variance of the noise in the count, and margin, which holds for the
        noise and for cutting at 0 with this probability.

    Raises:
        InputRefused: a column is missing, a region is unknown or listed twice in an area, or an
            area has regions of several types.
    """
    areas = _check_areas(run, settings, listed)
    parameters, specification = run_parameters(run, settings), run_specification(run)
    (name,) = settings.TABULATIONS
    of_levels = groups_to_release(run, settings, name)
    groups = pd.concat([_totals(own, areas["region"]) for _, own in of_levels])
    parts = areas.merge(groups, on=["region", "region_type"])
    is_shown = ~parts["is_suppressed"]
    sums = parts.assign(
        count=parts["count"].where(is_shown).astype("Int64"),
        variance=parts["variance"].where(is_shown),
    )
    found = sums.groupby(KEYS).agg(
        regions=("region", "size"),
        suppressed=("is_suppressed", "sum"),
        count=("count", lambda own: own.sum(min_count=1)),
        variance=("variance", lambda own: own.sum(min_count=1)),
    )
    found["is_complete"] = found["suppressed"] == 0
    iterations = specification.iterations
    levels = {} if parameters.infinite else level_budgets(parameters, specification, name)
    noises: dict[Any, list[tuple[IntegerDistribution, int]]] = {}
    n_draws = parts[is_shown].groupby([*KEYS, "measured_at", "total_only"])["n_cells"].sum()
    for (*key, measured_at, is_total_only), n in n_draws.items() if levels else ():
        budget = levels[measured_at, iterations[key[-1]].level]
        noise = budget.of_released(is_total_only=is_total_only)
        noises.setdefault(tuple(key), []).append((noise, int(n)))
    are_cut = not parameters.allow_negative_counts
    margins = [
        margin_of_sum(tuple(noises[key]), coverage, are_cut=are_cut) if key in noises else 0
        for key in found.index
    ]
    found["margin"] = pd.Series(margins, found.index, "Int64").where(found["count"].notna())
    found = found.reset_index()
    own = [iterations[code] for code in found["iteration_code"]]
    found["iteration_name"] = [item.name for item in own]
    found["iteration_level"] = [item.level for item in own]
    return found[list(SUMS)]


def _totals(groups: pa.Table, regions: pd.Series) -> pd.DataFrame:
    """The total of every group in some regions, and the noise in it."""
    chosen = pc.is_in(groups["region_id"].cast(pa.string()), pa.array(regions, pa.string()))
    groups = groups.filter(chosen).combine_chunks()
    n_cells = np.diff(counts_of(groups)[1])
    codes = ("region_type", "region_id", "iteration_code", "measured_at")
    return pd.DataFrame(
        {
            **{name: groups[name].cast(pa.string()).to_pandas() for name in codes},
            "total_only": mask_of(groups, "total_only"),
            "is_suppressed": mask_of(groups, "is_suppressed"),
            "count": totals_of(groups),
            "n_cells": n_cells,
            "variance": groups["variance"].to_numpy() * n_cells,
        }
    ).rename(columns={"region_id": "region"})


def _check_areas(
    run: RunDirectory, settings: DetailedGroupsSettings, listed: pd.DataFrame
) -> pd.DataFrame:
    """The areas with the type of every region."""
    missing = [name for name in COLUMNS if name not in listed.columns]
    if missing:
        raise InputRefused(
            f"The areas have no column {missing[0]!r}; give the name of each in `area` and the id "
            "of a region in `region`, such as the eleven digits of a tract."
        )
    areas = listed[list(COLUMNS)].astype(str)
    twice = areas[areas.duplicated()]
    if len(twice):
        area, region = twice.iloc[0]
        raise InputRefused(f"The area {area!r} lists the region {region!r} twice; list it once.")
    kinds = dict.fromkeys(kind for kind, _ in run_parameters(run, settings).levels())
    kind_of = {own: kind for kind in kinds for own in run_regions(run, kind).ids.tolist()}
    areas["region_type"] = areas["region"].map(kind_of)
    unknown = areas.loc[areas["region_type"].isna(), "region"]
    if len(unknown):
        raise InputRefused(
            f"The areas list {unknown.iloc[0]!r}, which is no region of the run; it tabulates "
            f"{', '.join(kinds)}."
        )
    mixed = areas.groupby("area", sort=False)["region_type"].nunique()
    if (mixed > 1).any():
        raise InputRefused(
            f"The area {mixed.idxmax()!r} has regions of several types, which may overlap; list "
            "regions of one type for each area."
        )
    return areas
