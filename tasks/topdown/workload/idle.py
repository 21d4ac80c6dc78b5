"""Settings of topdown without effect, and attributes that no query asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....geography.levels import GROUPED_KINDS
from ....geography.rules import DEFAULT_CATEGORIES
from ...census.compiled_schemas import names_of_table
from ...census.queries import marginal_query, tells
from ...noise.distributions import DISCRETE_LAPLACE
from ...runs.settings import Refuse, Uses, refuse_idle, table_of
from .sections import TopdownSections
from .settings_trees import OTHER

_ALL_MEASUREMENTS = "measurements of every answer, of which on_demand leaves out those not needed"


def refuse_idle_settings(settings: TopdownSections, own: Mapping[str, Any], refuse: Refuse) -> None:
    """Refuse settings of the file without effect on the spine, the budget or the passes.

    `own` is the file's own table, without its preset. Budgets and workloads of universes that are
    not run pass: `run.universes` chooses among them.
    """
    refuse_idle(
        settings.geography, table_of(own, "geography"), "geography", _spine_uses(settings), refuse
    )
    release = {
        "pl94171": (
            settings.release.tables and _has_all_tables(settings),
            "release.tables = true and universes whose schemas determine all redistricting tables",
        ),
        "sdmx": (settings.release.tables, "release.tables = true"),
        "csvw": (settings.release.tables, "release.tables = true"),
        "geoparquet": (
            settings.release.tables and settings.input.geometry is not None,
            "release.tables = true and input.geometry",
        ),
        "margins": (settings.has_all_measurements, _ALL_MEASUREMENTS),
    }
    refuse_idle(settings.release, table_of(own, "release"), "release", release, refuse)
    if not settings.has_all_measurements and table_of(own, "release").get("margins"):
        refuse(f"release.margins = true needs {_ALL_MEASUREMENTS}; remove it, or measure them all")
    for universe in settings.run.universes:
        _refuse_idle_geolevels(settings, own, universe, refuse)


def unmeasured_attributes(settings: TopdownSections, universe: str) -> tuple[str, ...]:
    """A sentence that names the attributes of a universe whose levels no measured query
    distinguishes.

    Their released values follow from constraints, and from the choice among many optima, alone. A
    universe that is constrained by an earlier release may have them from there, and is skipped.
    """
    if settings.privacy.infinite or settings.compiled_census.universes[universe].held:
        return ()
    schema, budget = settings.schema_of(universe), settings.budget_of(universe)
    queries = [marginal_query(schema, name) for name in budget.queries]
    unmeasured = [
        attribute
        for axis, attribute in enumerate(schema.attributes)
        if len(schema.labels(attribute)) > 1 and all(query.shape[axis] == 1 for query in queries)
    ]
    if not unmeasured:
        return ()
    named = ", ".join(unmeasured)
    return (
        f"{universe}: no query of budget.{universe}.queries distinguishes levels of {named}, so "
        "that no measurement determines its release: ask for it, or leave it out of the "
        "universe's attributes",
    )


def _has_all_tables(settings: TopdownSections) -> bool:
    """Whether the schemas determine every redistricting table, as the P.L. 94-171 format needs."""
    tables = settings.compiled_census.tables
    schemas = {universe: settings.schema_of(universe) for universe in settings.run.universes}
    return bool(settings.compiled_census.summary_levels) and all(
        table.universe in schemas and tells(schemas[table.universe], names_of_table(table))
        for table in tables
    )


def _spine_uses(settings: TopdownSections) -> Uses:
    rules, kind = settings.geography, settings.geography.spine
    budgets = [settings.budget[universe] for universe in settings.run.universes]
    geolevels = {name for budget in budgets for name in budget.geolevels}
    is_pure = any(budget.mechanism == DISCRETE_LAPLACE for budget in budgets)
    categories = set(DEFAULT_CATEGORIES[kind] if rules.categories is None else rules.categories)
    is_2020 = settings.has_block_rules
    is_grouped = (kind in GROUPED_KINDS, 'geography.spine = "optimized" or "dhc"')
    divides = bool(categories & {"mcd", "place"}) or "Prim" in geolevels
    knows_areas = kind != "conventional" or bool(categories & {"aian", "mcd", "place"})
    return {
        "fanout_cutoff": is_grouped,
        "block_groups": is_grouped,
        "tract_subset_groups": (
            is_2020 and "Tract_Subset_Group" in geolevels,
            "the geolevel Tract_Subset_Group",
        ),
        "bypass": (
            not settings.blocks_only,
            f"an estimator that measures more than the {settings.area_word}s",
        ),
        "bypass_cutoff": (
            is_pure and rules.bypass and not settings.blocks_only,
            "pure differential privacy and the bypass",
        ),
        "school_district_column": (
            is_2020 and "school_district" in categories,
            "the category school_district",
        ),
        "strong_mcd_states": (
            is_2020 and divides,
            "the categories mcd or place, or the geolevel Prim",
        ),
        "aian_ranges": (is_2020 and knows_areas, "a spine or categories that follow AIAN areas"),
        "aian_areas": (is_2020 and knows_areas, "a spine or categories that follow AIAN areas"),
    }


def _refuse_idle_geolevels(
    settings: TopdownSections, own: Mapping[str, Any], universe: str, refuse: Refuse
) -> None:
    """Refuse queries, shares and passes of geolevels that are not measured."""
    geolevels = list(settings.budget[universe].geolevels)
    last, budget = geolevels[-1], f"budget.{universe}"
    # The shares that a file without a preset gives say which geolevel is the last.
    of_preset = settings.blocks_only and settings.preset is not None
    unused = f"does nothing where {last} alone is measured; remove it"
    for section, key, is_alone in (
        ("budget", "queries", of_preset),
        ("workload", "passes", settings.blocks_only),
    ):
        where = f"{section}.{universe}.{key}"
        for geolevel in table_of(own, section, universe, key):
            if geolevel not in (*geolevels, OTHER):
                refuse(
                    f"{where}.{geolevel} does nothing without a share of {geolevel} in "
                    f"{budget}.geolevels; remove it"
                )
            if is_alone and geolevel != last and (key, geolevel) != ("passes", OTHER):
                refuse(f"{where}.{geolevel} {unused}")
    if of_preset and "geolevels" in table_of(own, "budget", universe):
        refuse(f"{budget}.geolevels {unused}")
    estimated = set(geolevels[-1:] if settings.blocks_only else geolevels)
    named = set(settings.workload_of(universe).passes)
    if OTHER in table_of(own, "workload", universe, "passes") and named >= estimated:
        refuse(
            f"workload.{universe}.passes.other does nothing, because every geolevel that is "
            "estimated is named; remove it"
        )
