"""Benefits of a universe's spine: the figures of the report, from public geography alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from ....geography.categories import GROUP_QUARTERS
from ....geography.levels import Spine
from ....geography.variance import SpineSummary, summarise_spines, total_share
from ...census.invariants import read_geography, read_invariants
from ...census.queries import marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.stamps import has_frames, read_frames, write_frames
from ..paths import geography_file, invariants_file, spine_folder
from ..settings import TopdownSettings
from ..spine.build import PublicTables, on_aian_spine, spines_of
from ..spine.files import spine_of
from ..workload.budget import Budget
from .tabulations.levels import tabulated_categories

OF_THE_TABLES = (GROUP_QUARTERS, "aian", "mcd", "place", "block_group")
"""Off-spine categories of properties of blocks, or of areas that summary levels have."""


def summary_folder(run: RunDirectory, universe: str) -> Path:
    """Folder of the summary of a universe's spine."""
    return spine_folder(run, universe) / "summary"


def has_summary(run: RunDirectory, universe: str) -> bool:
    """Whether the summary was written completely."""
    return has_frames(summary_folder(run, universe), SpineSummary)


def write_summary(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Store `summary_of` a universe, from the run's geography, declared invariants and spine."""
    tables = read_geography(geography_file(run)), read_invariants(invariants_file(run))
    spines = spines_of(settings).compared(universe, spine_of(run, universe), tables)
    summary = summary_of(settings, universe, spines, tables)
    write_frames(summary_folder(run, universe), summary)


def summary_of(
    settings: TopdownSettings, universe: str, spines: Mapping[str, Spine], tables: PublicTables
) -> SpineSummary:
    """The figures of spines of a universe by their names, with the same budget.

    The predicted standard deviations refer to the count that the universe declares as `counted`.
    """
    budget, made = settings.budget_of(universe), spines_of(settings)
    categories = made.categories(universe, tables)
    tabulated = tabulated_categories(made.rows(tables), settings.compiled_census)
    known = {*OF_THE_TABLES, *(category.name for category in tabulated)}
    return summarise_spines(
        spines,
        categories,
        (*tabulated, *(category for category in categories if category.name not in known)),
        is_pure=budget.is_pure,
        privacy_loss=float(budget.total),
        total_shares=total_shares(
            budget,
            settings.schema_of(universe),
            is_part=bool(settings.compiled_census.universes[universe].counted.where),
        ),
    )


def read_summary(run: RunDirectory, universe: str) -> SpineSummary:
    """The summary stored by `write_summary`."""
    return read_frames(summary_folder(run, universe), SpineSummary)


def total_shares(budget: Budget, schema: Schema, *, is_part: bool) -> dict[str, float]:
    """By geolevel, the share of its budget that would measure a total, or where `is_part` one of
    the two parts of an exact one, as well as all its queries do; see
    `geography.variance.total_share`.

    For occupied units, say, the other answer of a query with two rows is as good as the answer
    itself, since both add to the invariant number of units: the query counts twice.
    """
    shares = {}
    for geolevel, queries in budget.query_shares.items():
        answers: list[float] = [marginal_query(schema, name).n_rows for name in queries]
        if is_part:
            answers = [0.5 if n == 2 else math.inf for n in answers]
        weights = [float(share) for share in queries.values()]
        shares[geolevel] = total_share(weights, answers, is_pure=budget.is_pure)
    return _with_tracts(shares, budget.geolevel_shares)


def _with_tracts(
    shares: dict[str, float], geolevel_shares: Mapping[str, Fraction]
) -> dict[str, float]:
    """Add tracts where only the AIAN spine has them: the mean of the geolevels that replace
    them."""
    if "Tract" in shares:
        return shares
    moved = [name for name in geolevel_shares if name not in on_aian_spine(geolevel_shares)]
    whole = float(sum(geolevel_shares[name] for name in moved))
    if whole:
        weighted = sum(float(geolevel_shares[name]) * shares[name] for name in moved)
        shares["Tract"] = weighted / whole
    return shares
