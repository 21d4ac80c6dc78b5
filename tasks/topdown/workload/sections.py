"""Sections of the settings of topdown, and the quantities derived for every universe.

Defaults are universes, geolevels' order and shares, passes, and the tables of a run's input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import ConfigDict, Field, field_validator, model_validator

from ....geography.levels import level_names
from ....geography.rules import GEOLEVELS
from ...census.census import Census, Zero, compiled, preset_census
from ...census.compiled_schemas import format_of_others
from ...census.declarations import CensusDeclaration
from ...census.queries import Schema, normalize_query_name
from ...ledger.accounting import rho_from_epsilon_simple
from ...noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from ...runs.directory import RunDirectory
from ...runs.names import FileName, checked_file_name, did_you_mean
from ...runs.settings import (
    ExactFraction,
    FilePath,
    InputSettings,
    Loss,
    Probability,
    ProductSettings,
    Refuse,
    ReleaseSettings,
    RunnerSettings,
    Section,
    table_of,
)
from ...runs.stores import is_url
from ...tables.formats import TextFormat
from ...tables.sources import input_files
from .budget import Budget


class CensusTables(InputSettings):
    """The tables of a census, by the names that its declaration gives them.

    In the Census Edited File layout they are persons, units and geography.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    geometry: FilePath | None = None
    """Boundaries of areas, for maps: GeoParquet, or a folder of shapefiles."""

    @model_validator(mode="after")
    def _are_named(self) -> Self:
        for name in self.__pydantic_extra__:
            try:
                checked_file_name(name)
            except ValueError as error:
                raise ValueError(f"has a table whose name {error}") from None
        return self

    def paths(self) -> dict[str, FilePath]:
        """The tables' paths by name."""
        return dict(self.__pydantic_extra__)

    @property
    def releases(self) -> Collection[str]:
        """Inputs that may be earlier releases: all of them."""
        return self.paths()

    def files(self) -> tuple[str, ...]:
        """Files and folders that hold the input, globs spelt out; of earlier runs, the release."""
        found: list[str] = []
        for name, path in self.paths().items():
            if name in self.awaited:
                continue
            earlier = RunDirectory(Path(path))
            if not is_url(path) and earlier.manifest.exists():
                found.append(str(earlier.release))
            else:
                found += [file.path for file in input_files(name, path)]
        return tuple(found)

    def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
        """These settings with `absolute` applied to every path."""
        found = super().with_absolute_paths(absolute)
        if self.geometry is None:
            return found
        return found.model_copy(update={"geometry": absolute(self.geometry)})


def refuse_tables(
    paths: Mapping[str, str], needed: Sequence[str], refuse: Refuse, optional: Sequence[str]
) -> None:
    """Refuse tables that are missing, and settings that are no tables."""
    known = (*needed, *optional, "confidential")
    for name in paths:
        if name not in known:
            hint = did_you_mean(name, known)
            refuse(f"unknown setting 'input.{name}'{hint}; known here: {', '.join(sorted(known))}")
    for name in needed:
        if name not in paths:
            refuse(f"the setting 'input.{name}' is missing; add it, or name a preset that has it")


Universe = FileName
"""Name of a universe that the census declares."""

OTHER = "other"
"""Key in `queries` for the geolevels that it does not name."""

DHC = "dhc"
"""The kind of spine of the demographic and housing characteristics product."""
CEF_2020 = "cef_2020"
"""The census of settings that declare none."""

Estimator = Literal["topdown", "block_by_block", "full_information"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


class AianRange(Section):
    """A range of codes of AIAN areas, and whether its areas form the AIAN branch of the spine."""

    low: str = Field(pattern=r"^\d{4}$")
    """First code of the range, four digits."""
    high: str = Field(pattern=r"^\d{4}$")
    """Last code of the range, four digits."""
    area: str
    """Type of the areas in the range."""
    on_spine: bool
    """Whether these areas form the AIAN branch."""


class GeographySettings(Section):
    """Construction of the spine."""

    spine: Literal["conventional", "aian", "optimized", "dhc"] = Field(
        default="optimized",
        title="Spine",
        description="The kind of tree of geounits that noise is spent on; declared censuses begin "
        "with the conventional one.",
    )
    fanout_cutoff: int = Field(default=12, ge=0)
    """A group of n candidates has at most sqrt(n) + this many members."""
    block_groups: Literal["even", "production"] = "even"
    """How blocks of one combination of entities are cut into optimised block groups: even pieces
    within the limit, or, as in production in 2020, runs of one more than it by geocode."""
    tract_subset_groups: Literal["greedy", "even"] = "greedy"
    """greedy: by Algorithm 2 of [Spines2024]. even: as block groups, from equal AIAN areas."""
    bypass: bool = True
    """Whether geounits are bypassed where that costs no accuracy (Algorithm 3 of [Spines2024])."""
    bypass_cutoff: Annotated[int, Field(ge=0)] | Literal["none"] = 150
    """Pure differential privacy: a geounit with several children is kept if its parent would
    get more children than this."""
    categories: tuple[str, ...] | None = None
    """Off-spine entities that groups follow: aian, group_quarters, mcd, place, school_district,
    block_group, or a column of the geography table; left out, the spine's own categories."""
    school_district_column: str | None = None
    """Column of the geography table with the school district."""
    strong_mcd_states: tuple[str, ...] = ()
    """States where county subdivisions count, and places only inside AIAN areas."""
    aian_areas: tuple[str, ...] | None = None
    """Values of `area` that form the AIAN branch; they replace `on_spine` of the ranges."""
    aian_ranges: tuple[AianRange, ...] = ()
    """Types of area by range of the code of the area."""


class RunSettings(RunnerSettings):
    """Universes and estimator of a run, and its runner."""

    universes: tuple[Universe, ...] = Field(
        default=(), title="Universes", description="Released universes, such as persons and units."
    )
    """Left out, all that have a budget, in the order in which the census declares them."""
    estimator: Estimator = Field(
        default="topdown",
        title="Estimator",
        description="How noisy measurements become counts.",
    )
    """How noisy measurements become counts. `block_by_block` measures the last geolevel alone."""
    coherent: bool = False
    """Whether universes agree with released ones where the census declares so (`agree`)."""
    ghosts: Literal["allow", "avoid"] | None = None
    """`avoid`: finest areas are left empty or filled by what noisy answers and public facts say,
    rather than by rounding (`tasks.topdown.estimation.siblings`). Left out, so in coherent
    runs."""

    @field_validator("universes")
    @classmethod
    def _distinct(cls, universes: tuple[Universe, ...]) -> tuple[Universe, ...]:
        if not universes or len(set(universes)) != len(universes):
            raise ValueError("must name at least one universe, and each once")
        return universes


class BudgetSettings(Section):
    """The budget of one universe; see `tasks.topdown.workload.budget`."""

    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = DISCRETE_GAUSSIAN
    """Zero-concentrated (discrete Gaussian) or pure (discrete Laplace) differential privacy."""
    rho: Loss | None = Field(
        default=None, title="rho", description="Budget, as a fraction such as 1/2."
    )
    epsilon: Loss | None = None
    """Total under the discrete Laplace; under the discrete Gaussian, converted to rho at
    `delta`."""
    delta: Probability | None = None
    """Delta at which epsilon is stated."""
    accounting: Literal["exact"] | None = None
    """exact: rho follows from epsilon and delta by the exact curve of the noise, once the settings
    are resolved. Left out, by the simple bound."""
    geolevels: dict[str, ExactFraction]
    """Share of each geolevel, root first; they sum to exactly 1."""
    queries: dict[str, dict[str, ExactFraction]]
    """Share of each query by geolevel; they sum to exactly 1. `other` is for geolevels that are not
    named."""

    @property
    def total(self) -> Fraction:
        """Budget of the universe: epsilon under the discrete Laplace, or else rho.

        Rho may follow from epsilon and delta: by the simple bound, also under exact accounting
        as long as the settings are not resolved. Raises ValueError for incomplete settings.
        """
        total = self.epsilon if self.mechanism == DISCRETE_LAPLACE else self.rho
        if total is not None:
            return total
        if self.mechanism == DISCRETE_LAPLACE or self.epsilon is None or self.delta is None:
            raise ValueError("a budget needs rho, or epsilon and delta")
        return rho_from_epsilon_simple(self.epsilon, self.delta)

    @property
    def guarantee(self) -> tuple[Fraction, Fraction] | None:
        """The epsilon and delta that limit rho by the exact curve of the noise, if any."""
        if self.accounting is None or self.epsilon is None or self.delta is None:
            return None
        return self.epsilon, self.delta

    @field_validator("geolevels")
    @classmethod
    def _from_the_root_down(cls, shares: dict[str, Fraction]) -> dict[str, Fraction]:
        """Geolevels in the order of the spine, wherever the file or an override put them."""
        if any(name not in GEOLEVELS for name in shares):
            return shares
        return {name: shares[name] for name in GEOLEVELS if name in shares}


class GeolevelPasses(Section):
    """Passes of the estimators at a geolevel; `all` and `all but NAME` name queries."""

    least_squares: tuple[tuple[str, ...], ...]
    """Queries of each least-squares problem; later ones keep the answers of earlier ones. `all`
    and `all but NAME` mean the queries of the geolevel."""
    rounder: tuple[tuple[str, ...], ...]
    """Queries of each rounding problem, from coarse to fine, each refining the one before."""
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


TOTAL_FIRST = GeolevelPasses(
    least_squares=(("total",), ("all but total",)), rounder=(("total",), ("detailed",))
)
AT_ONCE = GeolevelPasses(least_squares=(("all",),), rounder=(("total", "detailed"),))
"""Passes where the settings give none, with the total measured among others and otherwise."""


class UniverseSettings(Section):
    """Attributes, structural zeros and passes of a universe."""

    attributes: tuple[str, ...] | None = None
    """Attributes that number the cells; left out, the declared ones."""
    structural_zeros: tuple[Zero, ...] = ()
    """Cells that are empty by definition, in addition to the census's own."""
    passes: dict[str, GeolevelPasses] = {}
    """Passes by geolevel, or `other`; left out, the total first, if it is measured."""
    on_demand: bool = False
    """Whether only answers that can matter are measured, once the parents are estimated."""


class TabulatedReleaseSettings(ReleaseSettings):
    """Released files other than microdata, and the place of a copy."""

    tables: bool = True
    """Redistricting tables at eight summary levels, as far as the schemas have their attributes."""
    pl94171: bool = True
    """Redistricting tables in the P.L. 94-171 format, where there are all of them."""
    margins: bool = True
    """An interval for every count of the tables, and the release's place in them in the
    report."""
    sdmx: str | None = Field(default=None, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """Agency under whose name the tables are written as SDMX, too; none without."""
    csvw: bool = False
    """Metadata of CSV on the Web for the CSV tables."""
    geoparquet: bool = False
    """Tables with the geometry of the input as GeoParquet, too."""


class MeasuredSettings(Section):
    """Properties of measurements that a run reads instead of drawing noise of its own."""

    not_private: bool = False
    """Whether the measurements are stamped, since their noise gives no protection."""


MEASURED_TABLES = ("measurements", "geography")
"""Input of a run that draws no noise of its own; published state totals are optional."""
STATE_TOTALS_TABLE = "state_totals"


def with_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A settings file's tree completed with the defaults of the census.

    The universes are those with a budget, in the order of their declaration. Where a file declares
    its census, the spine is the conventional one unless the section geography names another, and
    where that has geolevels, budgets have them in this order, with equal shares if they give none,
    and geolevels whose queries are not given use the queries of `other`.
    """
    found = dict(tree)
    budgets = found.get("budget")
    if not isinstance(budgets, Mapping):
        return found
    census = found.get("census", "cef_2020")
    geolevels: list[str] = []
    if isinstance(census, Mapping):
        geography = found.get("geography", {})
        if isinstance(geography, Mapping):
            found["geography"] = {"spine": "conventional", **geography}
        declared = [name for name in table_of(census, "universes") if name in budgets]
        listed = table_of(census, "geography").get("geolevels", [])
        if isinstance(listed, list | tuple):
            geolevels = [name for name in listed if isinstance(name, str)]
    else:
        declared = _preset_universes(census, budgets)
    run = found.get("run", {})
    if declared and isinstance(run, Mapping) and "universes" not in run:
        found["run"] = {**run, "universes": declared}
    if geolevels:
        found["budget"] = {
            name: _budget(budget, geolevels) if isinstance(budget, Mapping) else budget
            for name, budget in budgets.items()
        }
    return found


def _preset_universes(census: Any, budgets: Mapping[str, Any]) -> list[str]:
    """Universes of a preset's census that have a budget; all budgets if there is no such census."""
    try:
        return [name for name in preset_census(census).universes if name in budgets]
    except (ValueError, TypeError):
        return list(budgets)


def _budget(budget: Mapping[str, Any], geolevels: Sequence[str]) -> dict[str, Any]:
    shares, queries = budget.get("geolevels"), budget.get("queries")
    found = dict(budget)
    if shares is None:
        shares = {name: str(Fraction(1, len(geolevels))) for name in geolevels}
    if isinstance(shares, Mapping):
        unknown = [name for name in shares if name not in geolevels]
        found["geolevels"] = {n: shares[n] for n in (*unknown, *geolevels) if n in shares}
        if isinstance(queries, Mapping) and OTHER in queries:
            asked = {name: queries.get(name, queries[OTHER]) for name in found["geolevels"]}
            found["queries"] = asked
    return found


class TopdownSections(ProductSettings):
    """The settings of a topdown run, and the quantities derived for every universe."""

    PRODUCT: ClassVar[str] = "topdown"

    census: CensusDeclaration | str = CEF_2020
    """The census, declared here or by the name of a preset."""
    input: CensusTables
    geography: GeographySettings
    run: RunSettings = RunSettings()
    release: TabulatedReleaseSettings = TabulatedReleaseSettings()
    budget: dict[Universe, BudgetSettings] = Field(examples=["persons", "units"])
    workload: dict[Universe, UniverseSettings] = {}
    measured: MeasuredSettings | None = None
    """Set in runs of `estimate` alone, which complete it from the measurements."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, tree: Any) -> Any:
        """Defaults of the census for geolevels, universes and queries missing in the file."""
        return with_defaults(tree) if isinstance(tree, dict) else tree

    @model_validator(mode="after")
    def _census_compiles(self) -> Self:
        self.compiled_census  # noqa: B018  Raises ValueError with the reason.
        return self

    @cached_property
    def compiled_census(self) -> Census:
        """The census that the settings declare or name."""
        if isinstance(self.census, str):
            census = preset_census(self.census)
        else:
            census = compiled(self.census)
        return census if self.run.coherent else census.without_agreements

    @property
    def avoids_ghosts(self) -> bool:
        """Whether finest areas are emptied and filled by what is known of them; without noise the
        estimates are the truth."""
        ghosts = self.run.ghosts or ("avoid" if self.run.coherent else "allow")
        return ghosts == "avoid" and not self.privacy.infinite

    @property
    def has_block_rules(self) -> bool:
        """Whether spines follow the rules of the blocks of 2020, as a DHC spine always does."""
        follow = self.compiled_census.follows_block_rules
        return follow or self.geography.spine == DHC

    @property
    def written(self) -> TextFormat:
        """The text format of files other than input, such as lists of areas."""
        return TextFormat() if isinstance(self.census, str) else format_of_others(self.census)

    def in_words(self, estimator: str) -> str:
        """The name of an estimator on pages."""
        return estimator.replace("_", " ").replace("block", self.compiled_census.area_word)

    @property
    def draws_noise(self) -> bool:
        """Whether the run measures; one that reads measurements spends nothing."""
        return self.measured is None

    @property
    def why_not_private(self) -> str | None:
        """As in every run; measurements marked as not private also give no protection."""
        if self.measured is not None and self.measured.not_private:
            return "the measurements that it was made from are stamped so"
        return super().why_not_private

    def schema_of(self, universe: str) -> Schema:
        """The schema of a universe."""
        return self.compiled_census.schema(universe, self.workload_of(universe).attributes)

    @property
    def is_held(self) -> bool:
        """Whether a universe in the run is constrained by an earlier release."""
        universes = self.compiled_census.universes
        return any(universes[name].held_to_releases for name in self.run.universes)

    def workload_of(self, universe: str) -> UniverseSettings:
        """The workload of a universe, apart from its budget."""
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
        """Whether no universe in the run is measured on demand."""
        return not any(map(self.is_on_demand, self.run.universes))

    def zeros_of(self, universe: str) -> tuple[Zero, ...]:
        """All structural zeros of a universe."""
        own = self.workload_of(universe).structural_zeros
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
            self.compiled_census.universes[universe].charge,
            self.compiled_census.universes[universe].stated,
            self.level_names(universe),
        )

    def level_names(self, universe: str) -> dict[str, str]:
        """Names of the geolevels of a universe's spine for readers; see `geography.levels`."""
        return level_names(self.geography.spine, tuple(self.budget[universe].geolevels))

    @property
    def blocks_only(self) -> bool:
        """Whether the blocks alone are measured, and state totals are not invariants."""
        return self.run.estimator == "block_by_block"

    def passes_of(
        self, universe: str, geolevel: str, queries: Sequence[str] | None = None
    ) -> GeolevelPasses:
        """Passes at a geolevel with `all` and `all but NAME` spelt out, of `queries` or else of
        the measured ones."""
        passes = self.workload_of(universe).passes
        measured = self.budget_of(universe).query_shares[geolevel]
        asked = list(measured if queries is None else queries)
        default = TOTAL_FIRST if "total" in asked and len(asked) > 1 else AT_ONCE
        chosen = passes.get(geolevel, passes.get("other", default))

        def spelt_out(names: Sequence[str]) -> tuple[str, ...]:
            found: list[str] = []
            for name in names:
                if name == "all":
                    found += asked
                elif name.startswith("all but "):
                    parts = name.removeprefix("all but ").split(",")
                    without = set(map(normalize_query_name, parts))
                    found += [query for query in asked if query not in without]
                else:
                    found.append(normalize_query_name(name))
            return tuple(found)

        return GeolevelPasses(
            least_squares=tuple(spelt_out(names) for names in chosen.least_squares),
            rounder=tuple(tuple(map(normalize_query_name, names)) for names in chosen.rounder),
            interleaved=chosen.interleaved,
        )
