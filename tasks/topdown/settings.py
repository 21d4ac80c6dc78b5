"""Settings of the topdown flow, with checks of census, tables, budgets and workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Self

from ...geography.levels import GROUPED_KINDS
from ...geography.rules import GEOLEVELS
from ..census.census import Universe
from ..census.exact_answers import refuse_protected_answers, refuse_unknown_facts
from ..census.influence import Norms
from ..census.queries import Schema, marginal_query, queries_are_nested
from ..noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ..runs.names import did_you_mean, match_spelling
from ..runs.settings import Conditions, Refuse, refuse_shares, refusing, table_of
from ..runs.stores import is_url
from .workload.exact_loss import exact_rho, rho_under_guarantee
from .workload.sections import (
    MEASURED_TABLES,
    OTHER,
    STATE_TOTALS_TABLE,
    BudgetSettings,
    TopdownSections,
    refuse_tables,
)


class TopdownSettings(TopdownSections):
    """All settings of a topdown run, or of an `estimate` run, which reads measurements."""

    ASIDE = frozenset({"design"})

    @classmethod
    def without_replaced(cls, preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Remove from a preset, and return it, the settings that a file replaces as a whole.

        If the file sets rho or epsilon of a universe, the preset's rho and epsilon are removed. If
        it sets attributes of a universe, the preset's queries, passes and structural zeros are
        removed, since they refer to other attributes.
        """
        sections = [table_of(own, name) for name in ("budget", "workload")]
        for universe in dict.fromkeys(name for section in sections for name in section):
            budget, workload = (table_of(section, universe) for section in sections)
            replaced: list[tuple[str, str]] = []
            if {"rho", "epsilon"} & set(budget):
                replaced += [("budget", "rho"), ("budget", "epsilon")]
            if "attributes" in workload:
                replaced += [("budget", "queries")]
                replaced += [("workload", "passes"), ("workload", "structural_zeros")]
            for section, key in replaced:
                preset.get(section, {}).get(universe, {}).pop(key, None)
        return preset

    def resolved(self) -> Self:
        """Compute the largest rho for the given epsilon and delta under exact accounting.

        The run stores this rho with its settings. Settings without noise remain unchanged.
        """
        found = self
        for universe in self.run.universes if not self.privacy.infinite else ():
            section = self.budget[universe]
            if section.guarantee is not None and section.rho is None:
                rho = exact_rho(self.budget_of(universe), *section.guarantee)
                found = found.with_budget(universe, rho=rho)
        return found

    def with_budget(self, universe: str, **changes: Any) -> Self:
        """The settings with changes of a universe's budget section."""
        changed = self.budget[universe].model_copy(update=changes)
        return self.model_copy(update={"budget": {**self.budget, universe: changed}})

    def apply_guarantee(self, changed: Self, universe: str) -> Self:
        """Return `changed` with the rho that keeps the guarantee of these settings.

        `changed` divides the budget of the universe in another way. If these settings give epsilon
        under exact accounting, the rho depends on this division (see
        `exact_loss.rho_under_guarantee`); otherwise, or before `resolved`, its rho stays.
        """
        section, before = self.budget[universe], self.budget_of(universe)
        after = changed.budget_of(universe)
        if section.guarantee is None or section.rho is None or before == after or before.infinite:
            return changed
        return changed.with_budget(
            universe, rho=rho_under_guarantee(before, after, *section.guarantee)
        )

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse tables, budgets and passes that do not fit the census."""
        census, universes = self.compiled_census, self.run.universes
        needed, optional = census.input_tables, census.optional_tables
        if self.measured is not None:
            needed, optional = MEASURED_TABLES, (STATE_TOTALS_TABLE,)
        refuse_tables(self.input.paths(), needed, refuse, optional)
        if not universes:
            refuse("run.universes must name a universe, or budget must have a section for one")
        for universe in universes:
            _refuse_universe(self, universe, refuse)
        refuse_protected_answers(census, universes, {*universes, *self.budget}, refuse)
        refuse_unknown_facts(census, refuse)
        _refuse_declarations(self, refuse)
        if self.input.geometry is not None and is_url(self.input.geometry):
            refuse("input.geometry must be a path")

    @property
    def conditions(self) -> Conditions:
        """Conditions of every product, and of settings for certain spines, budgets and tables."""
        budgets = [self.budget[universe] for universe in self.run.universes]
        geolevels = {name for budget in budgets for name in budget.geolevels}
        is_pure = any(budget.mechanism == DISCRETE_LAPLACE for budget in budgets)
        is_grouped = (
            self.geography.spine in GROUPED_KINDS,
            'geography.spine = "optimized" or "dhc"',
        )
        tables = (self.release.tables, "release.tables = true")
        return {
            **super().conditions,
            "geography.fanout_cutoff": is_grouped,
            "geography.block_groups": is_grouped,
            "geography.tract_subset_groups": (
                self.has_block_rules and "Tract_Subset_Group" in geolevels,
                "the geolevel Tract_Subset_Group",
            ),
            "geography.bypass": (
                not self.blocks_only,
                f"an estimator that measures more than the {self.compiled_census.area_word}s",
            ),
            "geography.bypass_cutoff": (
                is_pure and self.geography.bypass and not self.blocks_only,
                "pure differential privacy and the bypass",
            ),
            **dict.fromkeys(("release.pl94171", "release.sdmx", "release.csvw"), tables),
            "release.geoparquet": (
                self.release.tables and self.input.geometry is not None,
                "release.tables = true and input.geometry",
            ),
            "release.margins": (
                self.has_all_measurements,
                "measurements of every answer, and on_demand measures only some",
            ),
        }

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings without effect, and a section of another flow."""
        super().refuse_ineffective(own, refuse)
        if self.measured is not None:
            refuse("measured belongs to the flow estimate; take the section out")
        if table_of(own, "release").get("margins") and not self.has_all_measurements:
            refuse("release.margins = true needs every answer, and on_demand draws few; remove it")
        for universe in self.run.universes:
            budget = f"budget.{universe}.geolevels"
            shares = self.budget[universe].geolevels
            if self.blocks_only and self.preset and table_of(own, *budget.split(".")):
                refuse(f"{budget} does nothing where {[*shares][-1]} alone is measured; remove it")
            for section, key in (("budget", "queries"), ("workload", "passes")):
                for geolevel in table_of(own, section, universe, key):
                    if geolevel not in (*shares, OTHER):
                        hint = did_you_mean(geolevel, shares)
                        refuse(
                            f"{section}.{universe}.{key}.{geolevel} does nothing without a share "
                            f"of {geolevel} in {budget}{hint}; remove it"
                        )


def universe_waves(settings: TopdownSettings) -> tuple[tuple[str, ...], ...]:
    """Divide the universes into waves of estimation.

    The universes of a wave are estimated in parallel; those that constrain them are in earlier
    waves.
    """
    universes, waves = settings.run.universes, []
    needs = {name: settings.compiled_census.universes[name].needs for name in universes}
    sorter = TopologicalSorter({name: set(own) - {name} for name, own in needs.items()})
    sorter.prepare()
    while sorter.is_active():
        ready = sorter.get_ready()
        waves.append(tuple(name for name in universes if name in ready))
        sorter.done(*ready)
    return tuple(waves)


def _needed_universes(universe: Universe) -> list[tuple[str, str | None]]:
    """Declarations of a universe that need released counts, each with the universe of these."""
    sides = [(one.name, side.universe) for one in universe.relations for side in one.others]
    return [
        *((f"relation {name!r}", other) for name, other in sides),
        *((f"held_to {one.name!r}", one.universe) for one in universe.held_to_universes),
        *((f"run.coherent: agree {one.name!r}", one.universe) for one in universe.agreements),
        ("microdata", universe.described_by),
    ]


def _refuse_declarations(settings: TopdownSettings, refuse: Refuse) -> None:
    """Refuse references to undeclared parts, and declarations that contradict each other."""
    census, universes = settings.compiled_census, settings.run.universes
    has_further = any(one.declared.further_attributes for one in census.universes.values())
    cannot_meet = settings.blocks_only and not census.follows_block_rules
    if settings.run.ghosts == "avoid" and settings.blocks_only:
        refuse(
            "run.ghosts does nothing where every area is estimated by itself; take it out, or "
            "choose the estimator topdown"
        )
    if settings.run.coherent and settings.run.estimator != "topdown":
        refuse(
            "run.coherent needs run.estimator = 'topdown', which propagates requirements of areas "
            f"up the spine; run.estimator = {settings.run.estimator!r} cannot"
        )
    for universe in universes:
        for invariant in census.universes[universe].invariants:
            if cannot_meet and invariant.geolevel != census.geolevels[-1]:
                refuse(
                    f"run.estimator = {settings.run.estimator!r} estimates every area by itself, "
                    f"and cannot hold the invariant {invariant.name!r} of {universe} at "
                    f"{invariant.geolevel}; choose 'topdown', or take the invariant out"
                )
        if settings.workload_of(universe).attributes is not None and not has_further:
            refuse(
                f"workload.{universe}.attributes is set; the census has them under "
                f"census.universes.{universe}.attributes"
            )
        for declared, other in _needed_universes(census.universes[universe]):
            if other is not None and other not in universes:
                refuse(
                    f"{declared} of {universe} needs the released counts of {other}; add it to "
                    "run.universes"
                )
    if settings.run.coherent and settings.measured is not None:
        refuse("run.coherent belongs to runs that measure; take it out")
    if settings.run.coherent and not any(
        census.universes[n].agreements or census.universes[n].accompanied for n in universes
    ):
        refuse(
            f"run.coherent does nothing: no universe of {', '.join(universes)} has a declaration "
            "agree; take it out"
        )
    schemas = {name: settings.schema_of(name) for name in universes}
    with refusing("census", refuse):
        for name in universes:
            for agreement in census.universes[name].agreements:
                schemas[agreement.universe].cells_where(agreement.of)
                marginal_query(schemas[name], agreement.query)
            one = census.universes[name].accompanied
            if one is not None:
                own, possible = (schemas[name].cells_where(of) for of in (one.where, one.of))
                for zero in settings.zeros_of(name):
                    possible &= ~schemas[name].cells_where(zero.where)
                if own.any() and not possible.any():
                    refuse(
                        f"agree {one.name!r} of {name}: the structural zeros leave no cell of its "
                        "companions"
                    )


def _refuse_universe(settings: TopdownSettings, universe: str, refuse: Refuse) -> None:
    """Refuse budgets, passes and measurement on demand that do not fit the schema or the estimator;
    names the universe and the key."""
    census = settings.compiled_census
    if universe not in census.universes:
        refuse(
            f"run.universes names {universe!r}, which the census does not declare; there are "
            f"{', '.join(census.universes)}"
        )
    if universe not in settings.budget:
        refuse(f"run.universes names {universe}, but there is no section budget.{universe}")
    own = census.geolevels
    known = tuple(dict.fromkeys((*GEOLEVELS, *own))) if settings.has_block_rules else own
    _refuse_budget(settings.budget[universe], f"budget.{universe}", known, refuse)
    if settings.budget[universe].accounting and census.universes[universe].charge != Norms():
        refuse(
            f"budget.{universe}.accounting: one person may change several records of {universe}, "
            "and the exact curve of such a change is unknown; give rho"
        )
    last = own[-1] if own else "Block"
    if next(reversed(settings.budget[universe].geolevels), None) != last:
        refuse(f"budget.{universe}.geolevels must end with {last}")
    with refusing(f"workload.{universe}", refuse):
        schema = settings.schema_of(universe)
        for zero in settings.zeros_of(universe):
            schema.positions(zero.where)
    for geolevel in settings.budget[universe].geolevels:
        _refuse_queries(settings, universe, geolevel, schema, refuse)
    where, estimator = f"workload.{universe}", settings.run.estimator
    if settings.is_on_demand(universe) and settings.measured is not None:
        refuse(f"{where}.on_demand belongs to runs that draw noise; take it out")
    if settings.is_on_demand(universe) and estimator != "topdown":
        refuse(
            f"{where}.on_demand draws the answers that the estimator topdown reads; "
            f'run.estimator = "{estimator}" needs them all: take either out'
        )
    if settings.interleaves(universe) and estimator != "topdown":
        refuse(
            f"{where}.passes interleave, which only the estimator topdown supports; "
            f'run.estimator = "{estimator}" needs other passes'
        )


def _refuse_budget(
    budget: BudgetSettings, where: str, geolevels: Sequence[str], refuse: Refuse
) -> None:
    """Refuse contradictory or out-of-range losses, invalid shares, and unknown geolevels."""
    given = [name for name in ("rho", "epsilon") if getattr(budget, name) is not None]
    if budget.mechanism == DISCRETE_LAPLACE and given != ["epsilon"]:
        refuse(f"{where} needs epsilon and no rho under the discrete Laplace mechanism")
    if budget.accounting is not None and (
        budget.mechanism != DISCRETE_GAUSSIAN or budget.epsilon is None
    ):
        refuse(
            f"{where}.accounting = {budget.accounting!r} needs epsilon and delta, and the discrete "
            "Gaussian mechanism"
        )
    if budget.mechanism == DISCRETE_GAUSSIAN:
        if len(given) != 1 and budget.accounting is None:
            refuse(f"{where} needs either rho, or epsilon together with delta")
        if budget.delta is None:
            refuse(f"{where} needs delta, at which epsilon is reported")
    for table, named in (("geolevels", budget.geolevels), ("queries", budget.queries)):
        for name in named:
            if name not in geolevels:
                hint = f"{did_you_mean(name, geolevels)}; there are {', '.join(geolevels)}"
                refuse(f"{where}.{table} names {name!r}, which is no geolevel{hint}")
    refuse_shares(budget.geolevels, f"{where}.geolevels", refuse)
    if any(share == 0 for share in budget.geolevels.values()):
        refuse(f"{where}.geolevels holds a share of 0; leave that geolevel out")


def _refuse_queries(
    settings: TopdownSettings, universe: str, geolevel: str, schema: Schema, refuse: Refuse
) -> None:
    """Refuse query shares and passes of a geolevel that do not fit the schema or each other."""
    key = f"budget.{universe}.queries.{geolevel}"
    shares = settings.budget[universe].queries.get(geolevel)
    if shares is None:
        refuse(f"{key} is missing; every geolevel with a share needs query shares")
    twice = [name for name in shares if match_spelling(name, shares) != name]
    if twice:
        refuse(
            f"{key} names one query twice, as {match_spelling(twice[0], shares)!r} and {twice[0]!r}"
        )
    refuse_shares(shares, key, refuse)
    passes = settings.passes_of(universe, geolevel)
    with refusing(key, refuse):
        for name in shares:
            marginal_query(schema, name)
        chains = [[marginal_query(schema, name) for name in names] for names in passes.rounder]
        measured = {name for names in passes.least_squares for name in names}
        for name in measured:
            marginal_query(schema, name)
    if not all(queries_are_nested(chain) for chain in chains):
        refuse(
            f"workload.{universe}.passes at {geolevel}: each rounder pass must be a chain in "
            "which every query refines the one before it"
        )
    unused = set(settings.budget_of(universe).query_shares[geolevel]) - measured
    if unused:
        refuse(
            f"{key} spends on {sorted(unused)[0]!r}, which no least-squares pass at {geolevel} uses"
        )
