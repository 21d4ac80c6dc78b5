"""Interface of topdown for a search of budgets: trials, replicates and assessment of its runs.

Trials include query strategies: how a geolevel's share of the budget is split among its queries.

Interface of topdown for a comparison of protection methods: people, areas, releases.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from ...geography.levels import OF_THE_SPINE
from ..census.areas import entities
from ..census.census import Census
from ..census.census_input import read_people
from ..census.counting import People
from ..census.declarations import TableDeclaration
from ..census.histograms import write_histogram
from ..census.invariants import read_geography
from ..census.queries import Schema, marginal_query
from ..noise.distributions import DISCRETE_LAPLACE
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from ..study.search import scale_losses
from ..study.trials import Figures, SearchedProduct
from ..tables.columns import temporary_files_in, temporary_folder
from .checks.accuracy.compared import compute_figures
from .checks.replicate import lay_out, link_run, read_dataset, run_replicate, with_estimator
from .ingest.ingest import completed, reading_of
from .paths import geography_file, held_file, invariants_file, state_totals_file
from .settings import TopdownSettings
from .spine.files import RunUniverse
from .workload.costs import cost_of
from .workload.exact_loss import exact_rho
from .workload.sections import ESTIMATORS, Estimator

OWN = "own"
"""The query strategy that leaves the shares as they are."""

STRATEGIES: Mapping[str, int] = {
    "uniform": 0,
    "size": 1,
    "size_squared": 2,
    "inverse_size_squared": -2,
}
"""By name, the exponent such that a query's share is proportional to this power of its number of
answers; the first, third and fourth are from section 8.1 of [TopDown2022]."""


def redistricting_share(criterion: pd.DataFrame, targets: Sequence[str]) -> float:
    """The share of the entities of 500 people or more, over target levels, in which the largest
    group's share is within 5 points; `criterion` comes from `AccuracyFigures`.

    Raises InputRefused if there are no such entities.
    """
    if criterion.empty:
        raise InputRefused(
            "The schema has no race and ethnicity, or the census declares no groups under "
            "census.redistricting; choose a criterion of kind error."
        )
    whole = criterion["population"].iloc[0]
    rows = criterion[criterion["level"].isin(targets) & (criterion["population"] == whole)]
    entities = rows["entities"].to_numpy()
    if not entities.sum():
        raise InputRefused(
            "The data have no entity of 500 people or more at the levels "
            f"{', '.join(targets)}, which the redistricting criterion is about; choose a "
            "criterion of kind error."
        )
    return float(np.average(rows["share_within"].fillna(0).to_numpy(), weights=entities))


@dataclass(frozen=True)
class TopdownTrials(SearchedProduct):
    """Trials of topdown settings, on data that are not confidential."""

    settings: type[TopdownSettings] = TopdownSettings
    methods: tuple[str, ...] = ("fixed", "total", "geolevels")

    def universes(self, settings: TopdownSettings) -> tuple[str, ...]:
        """The universes that the settings measure."""
        return settings.run.universes

    def attributes(self, settings: TopdownSettings, universe: str) -> tuple[str, ...]:
        """The attributes of a universe's schema."""
        return settings.schema_of(universe).attributes

    def losses(self, settings: TopdownSettings, universe: str) -> dict[str, Fraction]:
        """Total times share of every geolevel that is measured, root first."""
        budget = settings.budget_of(universe)
        shares = budget.geolevel_shares
        return {name: budget.total * share for name, share in shares.items() if share}

    def with_losses(
        self, settings: TopdownSettings, universe: str, losses: Mapping[str, Fraction]
    ) -> TopdownSettings:
        """The settings with these losses: rho, or epsilon under the discrete Laplace.

        An epsilon under exact accounting stays, and limits a run.
        """
        total = sum(losses.values(), Fraction(0))
        budget = settings.budget[universe]
        is_pure = budget.mechanism == DISCRETE_LAPLACE
        epsilon = None if budget.guarantee is None else budget.epsilon
        shares = {geolevel: loss / total for geolevel, loss in losses.items()}
        return settings.with_budget(
            universe,
            rho=None if is_pure else total,
            epsilon=total if is_pure else epsilon,
            # Block by block measures one geolevel, whatever the shares are.
            geolevels=dict(budget.geolevels) if settings.blocks_only else shares,
        )

    def apply_guarantee(
        self, settings: TopdownSettings, changed: TopdownSettings, universe: str
    ) -> TopdownSettings:
        """The changed settings, with the rho that keeps an exact guarantee of the first."""
        return settings.apply_guarantee(changed, universe)

    def largest_total(self, settings: TopdownSettings, universe: str) -> Fraction | None:
        """The largest rho with which the settings' split keeps their exact guarantee, if any."""
        guarantee, budget = settings.budget[universe].guarantee, settings.budget_of(universe)
        return None if guarantee is None or budget.infinite else exact_rho(budget, *guarantee)

    def variations(
        self,
        settings: TopdownSettings,
        universe: str,
        estimators: Sequence[str],
        strategies: Sequence[str],
    ) -> dict[str, TopdownSettings]:
        """The settings under each estimator and query strategy that a search names.

        Raises ValueError for unknown names.
        """
        known = (*ESTIMATORS, OWN, *STRATEGIES)
        for name in (*estimators, *strategies):
            if name not in (ESTIMATORS if name in estimators else known[len(ESTIMATORS) :]):
                raise ValueError(f"names {name!r}; there are {', '.join(known)}")
        found = {"": settings}
        if estimators:
            found = {
                f", {settings.in_words(name)}": with_estimator(settings, name)
                for name in estimators
            }
        return {
            f"{key}, {name.replace('_', ' ')}": _with_strategy(made, universe, name)
            for key, made in found.items()
            for name in strategies
        } or found

    def measuring_only(self, settings: TopdownSettings, universe: str) -> TopdownSettings:
        """The settings with one universe, after the universes that constrain it."""
        census, needed = settings.compiled_census, [universe]
        for name in needed:
            needed += [one for one in census.universes[name].needs if one not in needed]
        return settings.with_section("run", universes=tuple(reversed(needed)))

    def epsilon(self, settings: TopdownSettings, universe: str) -> float | str:
        """Tight epsilon of a universe's budget at its delta."""
        return cost_of(settings, universe).epsilons["tight"]

    def read_input(self, settings: TopdownSettings, folder: Path) -> None:
        """Read the census tables and count their histograms; state totals are written last."""
        if state_totals_file(RunDirectory(folder)).exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        read_dataset(settings, folder)

    def lay_out(self, dataset: Path, settings: TopdownSettings, folder: Path) -> None:
        """Build the spine and the constraints."""
        lay_out(RunDirectory(dataset), settings, folder)

    def replicate(
        self, layout: Path, settings: TopdownSettings, seed: int, folder: Path
    ) -> Figures:
        """Measure and estimate under a seed, and compare with the truth.

        The entities are those of the summary levels, which every spine shares: the compared areas
        are the same, whatever a spine's own geounits are.
        """
        found = compute_figures(*run_replicate(RunDirectory(layout), settings, seed, folder))
        is_shared = ~found.errors["level"].str.endswith(OF_THE_SPINE)
        targets = off_spine_levels(settings.compiled_census)
        share = partial(redistricting_share, found.criterion, targets)
        return Figures(found.errors[is_shared], share)


def off_spine_levels(census: Census) -> tuple[str, ...]:
    """Levels of tables whose entities come from a column that is not a geolevel's: none is on the
    spine, and they are the same whatever the spine is."""
    declared, parts = census.declared, census.declared.code_parts
    at_columns = (one for one in declared.summary_levels if parts[one.parts[-1]].column is not None)
    levels = [one.name for one in at_columns]
    levels += [level for table in declared.tables for level in table.levels]
    return tuple(dict.fromkeys(level for level in levels if level not in census.geolevels))


def _with_strategy(settings: TopdownSettings, universe: str, name: str) -> TopdownSettings:
    if name == OWN:
        return settings
    schema = settings.schema_of(universe)

    def split(shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
        return strategy_shares(schema, [query for query in shares if shares[query]], name)

    queries = settings.budget[universe].queries
    return settings.with_budget(universe, queries={n: split(s) for n, s in queries.items()})


TRIALS = TopdownTrials()


def strategy_shares(schema: Schema, queries: Iterable[str], strategy: str) -> dict[str, Fraction]:
    """Shares of queries under a strategy, which add to exactly 1.

    >>> schema = Schema("s", ("sex",), (("f", "m"),))
    >>> [str(share) for share in strategy_shares(schema, ["total", "sex"], "size").values()]
    ['1/3', '2/3']
    """
    power = STRATEGIES[strategy]
    weights = {name: Fraction(marginal_query(schema, name).n_rows) ** power for name in queries}
    whole = sum(weights.values(), Fraction(0))
    return {name: weight / whole for name, weight in weights.items()}


@dataclass(frozen=True)
class TopdownCensus:
    """The census of topdown settings, on data that are not confidential."""

    settings: type[TopdownSettings] = TopdownSettings

    def schema(self, settings: TopdownSettings, universe: str) -> Schema:
        """The schema of a universe."""
        return settings.schema_of(universe)

    def tables(self, settings: TopdownSettings) -> tuple[TableDeclaration, ...]:
        """The tables that the census declares."""
        return settings.compiled_census.declared.tables

    def levels(self, settings: TopdownSettings) -> tuple[str, ...]:
        """Geolevels, and the columns of areas that declared tables are by."""
        census = settings.compiled_census
        of_tables = (level for table in census.declared.tables for level in table.levels)
        return tuple(dict.fromkeys([*census.geolevels, *of_tables]))

    def read(self, settings: TopdownSettings, universe: str, folder: Path) -> People:
        """Read and check the input, keep it in a folder for `release`, and list the people.

        Remains of an interrupted attempt are removed. Raises InputRefused.
        """
        TRIALS.read_input(TRIALS.measuring_only(settings, universe), folder)
        with temporary_files_in(folder), temporary_folder() as own:
            reading, _ = completed(reading_of(settings), Path(own))
            return read_people(reading, universe)

    def entities(
        self, settings: TopdownSettings, folder: Path, level: str
    ) -> tuple[np.ndarray, list[str]]:
        """Each area's entity of one of the `levels`, -1 for none, and the entities' codes."""
        frame = read_geography(geography_file(RunDirectory(folder)))
        number, codes = entities(frame, settings.compiled_census.geolevels, level)
        return number, [str(code) for code in codes]

    def spending(
        self, settings: TopdownSettings, universe: str, rho: Fraction | None, estimator: Estimator
    ) -> TopdownSettings:
        """Settings of a run of one universe, by an estimator, that spends rho or its own budget."""
        own = with_estimator(TRIALS.measuring_only(settings, universe), estimator)
        if rho is None:
            return own
        return TRIALS.with_losses(own, universe, scale_losses(TRIALS.losses(own, universe), rho))

    def keep(
        self, settings: TopdownSettings, universe: str, people: People, dataset: Path, folder: Path
    ) -> None:
        """Keep in a new folder, for `release`, a copy of another, with other people of a universe
        in the same areas, as many in each.
        """
        source = RunDirectory(dataset)
        geocodes = read_geography(geography_file(source))["block_geocode"]
        shape = len(geocodes), settings.schema_of(universe).n_cells
        ones = np.ones(len(people), dtype=np.int64)
        histogram = sparse.csr_array((ones, (people.area, people.cell)), shape=shape)
        histogram.sum_duplicates()
        public = geography_file, invariants_file, held_file, state_totals_file
        names = [path.relative_to(dataset) for of in public if (path := of(source)).exists()]
        run = link_run(source, folder, *(name.as_posix() for name in names))
        write_histogram(run.histogram(universe), histogram, geocodes)

    def release(
        self, settings: TopdownSettings, universe: str, dataset: Path, seed: int, folder: Path
    ) -> sparse.csr_array:
        """Released counts `(n_areas, n_cells)` of a run under a seed, in an empty folder."""
        source = RunDirectory(dataset)
        layout = lay_out(source, settings, folder / "layout")
        run, _ = run_replicate(layout, settings, seed, folder)
        return RunUniverse(run, settings, universe).area_counts()


CENSUS = TopdownCensus()
