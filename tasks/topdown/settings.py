"""Settings of the topdown flow: census, tables, spine, budgets and workload of universes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from ...geography.rules import GEOLEVELS
from ..census.census import Census, Zero, compiled, preset_census
from ..census.contradictions import refuse_contradictions
from ..census.declarations import CensusDeclaration, StructuralZeroDeclaration
from ..census.queries import (
    marginal_query,
    normalize_query_name,
    queries_are_nested,
)
from ..census.schema import Schema
from ..ledger.accounting import rho_from_epsilon_simple
from ..noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ..runs.settings import (
    ExactFraction,
    ProductSettings,
    Refuse,
    ReleaseSettings,
    RunnerSettings,
    Section,
    refuse_delta,
    refuse_loss,
    refuse_shares,
)
from ..runs.spelling import did_you_mean
from ..runs.stores import is_url
from .workload.budget import Budget
from .workload.defaults import default_passes, with_defaults
from .workload.estimators import refuse_other_estimators
from .workload.idle import refuse_idle_settings
from .workload.tables import CensusTables, refuse_tables

Universe = str
"""Name of a universe that the census declares."""

CEF_2020 = "cef_2020"
"""The census of settings that declare none."""

Estimator = Literal["topdown", "block_by_block", "full_information"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class AianRange(Section):
    """A range of codes of AIAN areas, and whether its areas form the AIAN branch of the spine."""

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
    """greedy: by Algorithm 2 of [Spines2024]. even: as block groups, from equal AIAN areas."""
    bypass: bool = True
    """Whether geounits are bypassed where that costs no accuracy (Algorithm 3 of [Spines2024])."""
    bypass_cutoff: Annotated[int, Field(ge=0)] | Literal["none"] = 150
    categories: tuple[str, ...] | None = None
    """Off-spine entity categories of the optimised spine; None takes those of the product."""
    school_district_column: str | None = None
    strong_mcd_states: tuple[str, ...] = ()
    aian_areas: tuple[str, ...] | None = None
    """Area types on the AIAN branch; None takes those that the preset marks."""
    aian_ranges: tuple[AianRange, ...] = ()


class RunSettings(RunnerSettings):
    """What is run, and on what."""

    universes: tuple[Universe, ...] = ()
    """Left out, all that have a budget, in the order in which the census declares them."""
    estimator: Estimator = "topdown"
    """How noisy measurements become counts; see `tasks.topdown.estimation.estimators`."""

    @field_validator("universes")
    @classmethod
    def _distinct(cls, universes: tuple[Universe, ...]) -> tuple[Universe, ...]:
        if not universes or len(set(universes)) != len(universes):
            raise ValueError("must name at least one universe, and each once")
        return universes


class BudgetSettings(Section):
    """The budget of one universe; see `tasks.topdown.workload.budget`."""

    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = DISCRETE_GAUSSIAN
    rho: ExactFraction | None = None
    epsilon: ExactFraction | None = None
    delta: ExactFraction | None = None
    geolevels: dict[str, ExactFraction]
    queries: dict[str, dict[str, ExactFraction]]

    @property
    def total(self) -> Fraction:
        """What the universe costs: epsilon under the discrete Laplace, or else rho.

        Rho may follow from epsilon and delta. Raises ValueError for settings that do not tell.
        """
        total = self.epsilon if self.mechanism == DISCRETE_LAPLACE else self.rho
        if total is not None:
            return total
        if self.mechanism == DISCRETE_LAPLACE or self.epsilon is None or self.delta is None:
            raise ValueError("a budget needs rho, or epsilon and delta")
        return rho_from_epsilon_simple(self.epsilon, self.delta)

    @field_validator("geolevels")
    @classmethod
    def _from_the_root_down(cls, shares: dict[str, Fraction]) -> dict[str, Fraction]:
        """Geolevels in the order of the spine, wherever the file or an override put them."""
        if any(name not in GEOLEVELS for name in shares):
            return shares
        return {name: shares[name] for name in GEOLEVELS if name in shares}


class GeolevelPasses(Section):
    """Passes of the estimators at a geolevel; `all` and `all but NAME` stand for queries."""

    least_squares: tuple[tuple[str, ...], ...]
    rounder: tuple[tuple[str, ...], ...]
    interleaved: bool = False
    """Whether every pass of the least squares is followed by the rounder's pass of its number,
    whose answers later passes hold."""

    @model_validator(mode="after")
    def _as_many_of_both(self) -> Self:
        if self.interleaved and len(self.least_squares) != len(self.rounder):
            raise ValueError(
                f"interleaved passes need as many of the rounder ({len(self.rounder)}) as of the "
                f"least squares ({len(self.least_squares)})"
            )
        if self.interleaved and len(self.rounder) < 2:
            raise ValueError("interleaved does nothing to a single pass; remove it")
        return self


class StructuralZero(StructuralZeroDeclaration):
    """Cells that are zero by definition: those whose attributes take the given levels."""

    name: str


class UniverseSettings(Section):
    """What is asked of a universe and how it is estimated."""

    attributes: tuple[str, ...] | None = None
    """Attributes that number the cells; left out, those that the census declares."""
    structural_zeros: tuple[StructuralZero, ...] = ()
    """Beside those that the census declares."""
    passes: dict[str, GeolevelPasses] = {}
    """By geolevel, or `other`; where there are none, the total first, where it is measured."""
    on_demand: bool = False
    """Whether only what can matter is measured, once the parents are estimated."""


class TabulatedReleaseSettings(ReleaseSettings):
    """What is released beside microdata, and where it goes besides the run directory."""

    tables: bool = True
    """Redistricting tables at eight summary levels, as far as the schemas tell them."""
    pl94171: bool = True
    """The same in the P.L. 94-171 format, where the schemas tell all of them."""
    margins: bool = True
    """An interval beside every count of the tables, and in the report where the release lies."""


class MeasuredSettings(Section):
    """What is known of measurements that a run reads instead of drawing noise of its own."""

    not_private: bool = False
    """Whether the measurements are stamped, since their noise protects nobody."""


MEASURED_TABLES = ("measurements", "geography")
"""What a run reads that draws no noise of its own; published state totals come beside them."""
STATE_TOTALS_TABLE = "state_totals"


class TopdownSettings(ProductSettings):
    """All settings of a topdown run, or of an `estimate` run, which reads measurements."""

    PRODUCT: ClassVar[str] = "topdown"

    census: CensusDeclaration | str = CEF_2020
    """The census, declared here or by the name of a preset."""
    input: CensusTables
    geography: GeographySettings
    run: RunSettings = RunSettings()
    release: TabulatedReleaseSettings = TabulatedReleaseSettings()
    budget: dict[Universe, BudgetSettings]
    workload: dict[Universe, UniverseSettings] = {}
    measured: MeasuredSettings | None = None
    """Set in runs of `estimate` alone, which complete it from the measurements."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, tree: Any) -> Any:
        """What the census tells of geolevels, universes and queries where the file is silent."""
        return with_defaults(tree) if isinstance(tree, dict) else tree

    @model_validator(mode="after")
    def _census_compiles(self) -> Self:
        self.compiled_census  # noqa: B018  Raises ValueError with what is wrong.
        return self

    @cached_property
    def compiled_census(self) -> Census:
        """The census that the settings declare or name."""
        if isinstance(self.census, str):
            return preset_census(self.census)
        return compiled(self.census)

    @property
    def is_declared(self) -> bool:
        """Whether the declaration alone says how the tables are read and released."""
        return self.compiled_census.is_declared

    @property
    def draws_noise(self) -> bool:
        """Whether the run measures; one that reads measurements spends nothing."""
        return self.measured is None

    @property
    def why_not_private(self) -> str | None:
        """As of every run; measurements that are stamped protect nobody either."""
        if self.measured is not None and self.measured.not_private:
            return "the measurements that it was made from are stamped so"
        return super().why_not_private

    def schema_of(self, universe: str) -> Schema:
        """The schema of a universe."""
        return self.compiled_census.schema(universe, self.workload_of(universe).attributes)

    @property
    def is_held(self) -> bool:
        """Whether a universe that is run is held to an earlier release."""
        universes = self.compiled_census.universes
        return any(universes[name].held for name in self.run.universes)

    def workload_of(self, universe: str) -> UniverseSettings:
        """What is asked of a universe beside its budget."""
        return self.workload.get(universe, UniverseSettings())

    def is_on_demand(self, universe: str) -> bool:
        """Whether a universe is measured on demand; see `measurement.demand`."""
        return self.workload_of(universe).on_demand

    def interleaves(self, universe: str) -> bool:
        """Whether least squares and rounder alternate in a universe's passes."""
        passes = self.workload_of(universe).passes.values()
        return any(one.interleaved for one in passes)

    @property
    def has_all_measurements(self) -> bool:
        """Whether no universe that is run is measured on demand."""
        return not any(map(self.is_on_demand, self.run.universes))

    def zeros_of(self, universe: str) -> tuple[Zero, ...]:
        """All structural zeros of a universe."""
        own = (Zero(zero.name, zero.where) for zero in self.workload_of(universe).structural_zeros)
        return (*self.compiled_census.universes[universe].zeros, *own)

    def budget_of(self, universe: str) -> Budget:
        """The budget of a universe, with measured queries only and names normalised.

        Block by block, the blocks alone are measured, with the whole budget.
        """
        section = self.budget[universe]
        geolevel_shares = dict(section.geolevels)
        if self.blocks_only:
            last = next(reversed(geolevel_shares))
            geolevel_shares = {name: Fraction(name == last) for name in geolevel_shares}
        return Budget(
            universe,
            section.mechanism,
            section.total,
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
            bool(self.compiled_census.universes[universe].declared.occupants),
        )

    @property
    def blocks_only(self) -> bool:
        """Whether the blocks alone are measured, and state totals are no invariants."""
        return self.run.estimator == "block_by_block"

    def passes_of(
        self, universe: str, geolevel: str, queries: Sequence[str] | None = None
    ) -> GeolevelPasses:
        """Passes at a geolevel with `all` and `all but NAME` spelt out, of `queries` or else of
        those that are measured there."""
        passes = self.workload_of(universe).passes
        asked = list(self.budget_of(universe).query_shares[geolevel])
        asked = asked if queries is None else list(queries)
        chosen = passes.get(geolevel, passes.get("other"))
        if chosen is None:
            default = default_passes(asked)
            chosen = GeolevelPasses(
                least_squares=default["least_squares"], rounder=default["rounder"]
            )

        def spelt_out(names: Sequence[str]) -> tuple[str, ...]:
            found: list[str] = []
            for name in names:
                if name == "all":
                    found += asked
                elif name.startswith("all but "):
                    without = {
                        normalize_query_name(part)
                        for part in name.removeprefix("all but ").split(",")
                    }
                    found += [query for query in asked if query not in without]
                else:
                    found.append(normalize_query_name(name))
            return tuple(found)

        return GeolevelPasses(
            least_squares=tuple(spelt_out(names) for names in chosen.least_squares),
            rounder=tuple(
                tuple(normalize_query_name(name) for name in names) for names in chosen.rounder
            ),
            interleaved=chosen.interleaved,
        )

    @classmethod
    def without_replaced(cls, preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """The preset less what the file's own settings replace as a whole.

        An own rho or epsilon of a universe replaces either; own attributes of its schema replace
        the preset's queries, passes and structural zeros, which belong to other attributes.
        """
        sections = [_table(own, name) for name in ("budget", "workload")]
        for universe in dict.fromkeys(name for section in sections for name in section):
            budget, workload = (_table(section, universe) for section in sections)
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
        """Refuse tables, budgets and passes that do not fit the census."""
        if self.measured is None:
            refuse_tables(self.input.paths(), self.compiled_census.input_tables, refuse)
        else:
            refuse_tables(
                self.input.paths(), MEASURED_TABLES, refuse, optional=(STATE_TOTALS_TABLE,)
            )
        if not self.run.universes:
            refuse("run.universes must name a universe, or budget must have a section for one")
        for universe in self.run.universes:
            _refuse_universe(self, universe, refuse)
        if self.is_declared:
            _refuse_declared(self, refuse)
        if self.input.geometry is not None:
            if is_url(self.input.geometry):
                refuse("input.geometry must be a path")
        refuse_other_estimators(self, refuse)

    def refuse_what_does_nothing(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings of other flows, spines, estimators and geolevels; see `workload.idle`."""
        super().refuse_what_does_nothing(own, refuse)
        if self.measured is not None:
            refuse("measured belongs to the flow estimate; take the section out")
        refuse_idle_settings(self, own, refuse)


def universe_waves(settings: TopdownSettings) -> tuple[tuple[str, ...], ...]:
    """The universes in the order in which they are estimated: those of a wave side by side, each
    wave after what it is held to has been estimated.
    """
    waves: list[tuple[str, ...]] = []
    done: set[str] = set()
    rest = list(settings.run.universes)
    while rest:
        needs = {
            name: {
                side.universe
                for relation in settings.compiled_census.universes[name].relations
                for side in relation.others
            }
            for name in rest
        }
        wave = tuple(name for name in rest if needs[name] <= done)
        waves.append(wave)
        done |= set(wave)
        rest = [name for name in rest if name not in wave]
    return tuple(waves)


def _table(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The table under a key; empty if there is none or something else."""
    found = tree.get(key)
    return found if isinstance(found, Mapping) else {}


def _refuse_declared(settings: TopdownSettings, refuse: Refuse) -> None:
    """Refuse what a declared census does not have, and declarations that contradict each other."""
    census, universes = settings.compiled_census, settings.run.universes
    for universe in universes:
        for invariant in census.universes[universe].invariants:
            if settings.blocks_only and invariant.geolevel != census.geolevels[-1]:
                refuse(
                    f"run.estimator = {settings.run.estimator!r} estimates every area by itself, "
                    f"and cannot hold the invariant {invariant.name!r} of {universe} at "
                    f"{invariant.geolevel}; choose 'topdown', or take the invariant out"
                )
        if settings.workload_of(universe).attributes is not None:
            refuse(
                f"workload.{universe}.attributes is set; a declared census has them under "
                f"census.universes.{universe}.attributes"
            )
        for relation in census.universes[universe].relations:
            for side in relation.others:
                if side.universe not in universes:
                    refuse(
                        f"relation {relation.name!r} of {universe} needs the released counts of "
                        f"{side.universe}; add it to run.universes"
                    )
    for table in census.tables:
        if table.universe not in universes:
            refuse(f"table {table.name!r} is of {table.universe}, which is not in run.universes")
    schemas = {name: settings.schema_of(name) for name in universes}
    try:
        zeros = {name: settings.zeros_of(name) for name in universes}
        refuse_contradictions(census, schemas, zeros)
    except ValueError as error:
        refuse(f"census: {error}")


def _refuse_universe(settings: TopdownSettings, universe: str, refuse: Refuse) -> None:
    """Refuse budgets and passes that do not fit the schema; names the universe and the key."""
    census = settings.compiled_census
    if universe not in census.universes:
        refuse(
            f"run.universes names {universe!r}, which the census does not declare; there are "
            f"{', '.join(census.universes)}"
        )
    if universe not in settings.budget:
        refuse(f"run.universes names {universe}, but there is no section budget.{universe}")
    own = census.geolevels
    has_own = settings.is_declared and settings.geography.spine != "dhc"
    known = own if has_own else (*GEOLEVELS, *own)
    _refuse_budget(settings.budget[universe], f"budget.{universe}", known, refuse)
    last = own[-1] if own else "Block"
    if next(reversed(settings.budget[universe].geolevels), None) != last:
        refuse(f"budget.{universe}.geolevels must end with {last}")
    try:
        schema = settings.schema_of(universe)
        for zero in settings.zeros_of(universe):
            schema.cells_where(zero.where)
    except ValueError as error:
        refuse(f"workload.{universe}: {error}")
    for geolevel in settings.budget[universe].geolevels:
        _refuse_queries(settings, universe, geolevel, schema, refuse)


def _refuse_budget(
    budget: BudgetSettings, where: str, geolevels: Sequence[str], refuse: Refuse
) -> None:
    """Refuse losses that do not go together or are out of range, and shares that are not sound or
    are of none of the geolevels.
    """
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
    for table, named in (("geolevels", budget.geolevels), ("queries", budget.queries)):
        for name in named:
            if name not in geolevels:
                hint = did_you_mean(name, geolevels)
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
    refuse_shares(shares, key, refuse)
    spelt = settings.passes_of(universe, geolevel)
    try:
        for name in shares:
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
            f"{key} spends on {sorted(unused)[0]!r}, which no least-squares pass at {geolevel} uses"
        )
