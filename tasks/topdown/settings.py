"""Settings of the topdown flow: tables, spine, budgets and workload of persons and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator
from spineflow.geography.rules import GEOLEVELS
from spineflow.tasks.census.schema import UNIVERSE_ATTRIBUTES, Schema
from spineflow.tasks.ledger.accounting import rho_from_epsilon_simple
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.runs.settings import (
    ExactFraction,
    FilePath,
    InputSettings,
    ProductSettings,
    Refuse,
    ReleaseSettings,
    RunnerSettings,
    Section,
    refuse_delta,
    refuse_loss,
    refuse_shares,
)
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.queries import (
    marginal_query,
    normalize_query_name,
    queries_are_nested,
)

Universe = Literal["persons", "units"]
UNIVERSES: tuple[Universe, ...] = get_args(Universe)

Estimator = Literal["topdown", "block_by_block", "full_information"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class CensusTables(InputSettings):
    """The three tables of the Census Edited File layout."""

    persons: FilePath
    units: FilePath
    geography: FilePath


class AianRange(Section):
    """A range of AIANNHCE codes, and whether its areas form the AIAN branch of the spine."""

    low: str = Field(pattern=r"^\d{4}$")
    high: str = Field(pattern=r"^\d{4}$")
    area: str
    on_spine: bool


class GeographySettings(Section):
    """How the spine is built."""

    spine: Literal["conventional", "aian", "optimized", "dhc"] = "optimized"
    fanout_cutoff: int = Field(default=12, ge=0)
    block_groups: Literal["even", "production"] = "even"
    """How blocks of equal combinations are cut; see `spineflow.geography.optimize.cut_groups`."""
    tract_subset_groups: Literal["greedy", "even"] = "greedy"
    """greedy: by the search of Algorithm 2. even: as block groups, from equal AIAN areas."""
    bypass: bool = True
    """Whether geounits are bypassed where that costs no accuracy (Algorithm 3)."""
    bypass_cutoff: Annotated[int, Field(ge=0)] | Literal["none"] = 150
    categories: tuple[str, ...] | None = None
    """Off-spine entity categories of the optimised spine; None takes those of the product."""
    school_district_column: str | None = None
    strong_mcd_states: tuple[str, ...]
    aian_areas: tuple[str, ...] | None = None
    """Area types on the AIAN branch; None takes those that the preset marks."""
    aian_ranges: tuple[AianRange, ...]


class RunSettings(RunnerSettings):
    """What is run, and on what."""

    universes: tuple[Universe, ...] = UNIVERSES
    estimator: Estimator = "topdown"
    """How noisy measurements become counts; see `tasks.topdown.estimation.estimators`."""

    @model_validator(mode="after")
    def _universes_are_distinct(self) -> RunSettings:
        if not self.universes or len(set(self.universes)) != len(self.universes):
            raise ValueError("universes must name persons, units, or both, once each")
        return self


class BudgetSettings(Section):
    """The budget of one universe; see `tasks.topdown.workload.budget`."""

    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = DISCRETE_GAUSSIAN
    rho: ExactFraction | None = None
    epsilon: ExactFraction | None = None
    delta: ExactFraction | None = None
    geolevels: dict[str, ExactFraction]
    queries: dict[str, dict[str, ExactFraction]]

    @field_validator("geolevels")
    @classmethod
    def _from_the_root_down(cls, shares: dict[str, Fraction]) -> dict[str, Fraction]:
        """Geolevels in the order of the spine, wherever the file or an override put them."""
        unknown = [name for name in shares if name not in GEOLEVELS]
        return {name: shares[name] for name in (*unknown, *GEOLEVELS) if name in shares}


class GeolevelPasses(Section):
    """Passes of the estimators at a geolevel; `all` and `all but NAME` stand for queries."""

    least_squares: tuple[tuple[str, ...], ...]
    rounder: tuple[tuple[str, ...], ...]


class StructuralZero(Section):
    """Cells that are zero by definition: those whose attributes take the given levels."""

    name: str
    where: dict[str, tuple[int, ...]]


class UniverseSettings(Section):
    """What is asked of a universe and how it is estimated."""

    attributes: tuple[str, ...]
    structural_zeros: tuple[StructuralZero, ...] = ()
    passes: dict[str, GeolevelPasses]


class TabulatedReleaseSettings(ReleaseSettings):
    """What is released beside microdata, and where it goes besides the run directory."""

    tables: bool = True
    """Redistricting tables at eight summary levels, as far as the schemas tell them."""
    pl94171: bool = True
    """The same in the P.L. 94-171 format, where the schemas tell all of them."""


class TopdownSettings(ProductSettings):
    """All settings of a topdown run."""

    PRODUCT: ClassVar[str] = "topdown"

    input: CensusTables
    geography: GeographySettings
    run: RunSettings = RunSettings()
    release: TabulatedReleaseSettings = TabulatedReleaseSettings()
    budget: dict[Universe, BudgetSettings]
    workload: dict[Universe, UniverseSettings]

    def schema_of(self, universe: str) -> Schema:
        """The schema of a universe."""
        return Schema(universe, self.workload[universe].attributes)

    def budget_of(self, universe: str) -> Budget:
        """The budget of a universe, with measured queries only and names normalised.

        Block by block, the blocks alone are measured, with the whole budget.
        """
        section = self.budget[universe]
        if section.mechanism == DISCRETE_LAPLACE:
            total = section.epsilon
        elif section.rho is not None:
            total = section.rho
        else:
            total = rho_from_epsilon_simple(section.epsilon, section.delta)
        geolevel_shares = dict(section.geolevels)
        if self.blocks_only:
            geolevel_shares = {name: Fraction(name == "Block") for name in geolevel_shares}
        return Budget(
            universe,
            section.mechanism,
            total,
            section.delta,
            geolevel_shares,
            {
                geolevel: {
                    normalize_query_name(name): share
                    for name, share in shares.items()
                    if share and geolevel_shares[geolevel]
                }
                for geolevel, shares in section.queries.items()
                if geolevel in geolevel_shares
            },
            self.privacy.infinite,
        )

    @property
    def blocks_only(self) -> bool:
        """Whether the blocks alone are measured, and state totals are no invariants."""
        return self.run.estimator == "block_by_block"

    def passes_of(self, universe: str, geolevel: str) -> GeolevelPasses:
        """Passes at a geolevel with `all` and `all but NAME` spelt out."""
        passes = self.workload[universe].passes
        asked = list(self.budget_of(universe).query_shares[geolevel])
        chosen = passes.get(geolevel, passes.get("other"))

        def spelt_out(names: Sequence[str]) -> tuple[str, ...]:
            queries: list[str] = []
            for name in names:
                if name == "all":
                    queries += asked
                elif name.startswith("all but "):
                    without = {
                        normalize_query_name(part)
                        for part in name.removeprefix("all but ").split(",")
                    }
                    queries += [query for query in asked if query not in without]
                else:
                    queries.append(normalize_query_name(name))
            return tuple(queries)

        return GeolevelPasses(
            least_squares=tuple(spelt_out(names) for names in chosen.least_squares),
            rounder=tuple(
                tuple(normalize_query_name(name) for name in names) for names in chosen.rounder
            ),
        )

    @classmethod
    def without_replaced(cls, preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """The preset less what the file's own settings replace as a whole.

        An own rho or epsilon of a universe replaces either; own attributes of its schema replace
        the preset's queries, passes and structural zeros, which belong to other attributes.
        """
        for universe in UNIVERSES:
            budget, workload = (
                _table(_table(own, name), universe) for name in ("budget", "workload")
            )
            replaced: list[tuple[str, str]] = []
            if {"rho", "epsilon"} & set(budget):
                replaced += [("budget", "rho"), ("budget", "epsilon")]
            if "attributes" in workload:
                replaced += [("budget", "queries")]
                replaced += [("workload", "passes"), ("workload", "structural_zeros")]
            for section, key in replaced:
                preset.get(section, {}).get(universe, {}).pop(key, None)
        return preset

    def refuse_what_does_not_fit(self, refuse: Refuse) -> None:
        """Refuse budgets and passes that do not fit the schema."""
        for universe in self.run.universes:
            _refuse_universe(self, universe, refuse)


def _table(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The table under a key; empty if there is none or something else."""
    found = tree.get(key)
    return found if isinstance(found, Mapping) else {}


def _refuse_universe(settings: TopdownSettings, universe: str, refuse: Refuse) -> None:
    """Refuse budgets and passes that do not fit the schema; names the universe and the key."""
    for section in ("budget", "workload"):
        if universe not in getattr(settings, section):
            refuse(f"run.universes names {universe}, but there is no section {section}.{universe}")
    where = f"budget.{universe}"
    budget = settings.budget[universe]
    given = [name for name in ("rho", "epsilon") if getattr(budget, name) is not None]
    if budget.mechanism == DISCRETE_LAPLACE and given != ["epsilon"]:
        refuse(f"{where} needs epsilon and no rho under the discrete Laplace mechanism")
    if budget.mechanism == DISCRETE_GAUSSIAN:
        if len(given) != 1:
            refuse(f"{where} needs either rho, or epsilon together with delta")
        if budget.delta is None:
            refuse(f"{where} needs delta, at which epsilon is reported")
    for name in given:
        refuse_loss(getattr(budget, name), f"{where}.{name}", refuse)
    if budget.delta is not None:
        refuse_delta(budget.delta, f"{where}.delta", refuse)
    refuse_shares(budget.geolevels, f"{where}.geolevels", refuse)
    if any(share == 0 for share in budget.geolevels.values()):
        refuse(f"{where}.geolevels holds a share of 0; leave that geolevel out")
    if next(reversed(budget.geolevels), None) != "Block":
        refuse(f"{where}.geolevels must end with Block")
    try:
        schema = settings.schema_of(universe)
        foreign = set(schema.attributes) - set(UNIVERSE_ATTRIBUTES[universe])
        if foreign:
            raise ValueError(
                f"attribute {min(foreign)!r} is not one of {universe}; there are "
                f"{', '.join(UNIVERSE_ATTRIBUTES[universe])}"
            )
        for zero in settings.workload[universe].structural_zeros:
            schema.cells_where(zero.where)
    except ValueError as error:
        refuse(f"workload.{universe}: {error}")
    for geolevel in budget.geolevels:
        key = f"{where}.queries.{geolevel}"
        if geolevel not in budget.queries:
            refuse(f"{key} is missing; every geolevel with a share needs query shares")
        refuse_shares(budget.queries[geolevel], key, refuse)
        passes = settings.workload[universe].passes
        if geolevel not in passes and "other" not in passes:
            refuse(f"workload.{universe}.passes has neither {geolevel} nor other")
        spelt = settings.passes_of(universe, geolevel)
        try:
            for name in budget.queries[geolevel]:
                marginal_query(schema, name)
            chains = [[marginal_query(schema, name) for name in names] for names in spelt.rounder]
            measured = {name for names in spelt.least_squares for name in names}
            for name in measured:
                marginal_query(schema, name)
        except ValueError as error:
            refuse(f"{key}: {error}")
        if not all(queries_are_nested(chain) for chain in chains):
            refuse(
                f"workload.{universe}.passes at {geolevel}: each rounder pass must be a chain in "
                "which every query refines the one before it"
            )
        unused = set(settings.budget_of(universe).query_shares[geolevel]) - measured
        if unused:
            refuse(
                f"{key} spends on {sorted(unused)[0]!r}, which no least-squares pass at "
                f"{geolevel} uses"
            )
