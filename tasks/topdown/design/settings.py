"""Settings of a design: a settings file of topdown, and the goals of its budget.

[design.persons]
objective = "largest_ratio"
[design.persons.targets.tracts]
query = "hispanic * race_groups"
level = "tract"
margin = "25"
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from pydantic import Field

from ...census.queries import marginal_query
from ...runs.names import Label, did_you_mean
from ...runs.settings import ExactFraction, FilePath, Refuse, Section, refusing, without_section
from ...solvers.split import Goal
from ..settings import TopdownSettings
from ..workload.sections import Universe


class Target(Goal):
    """Answers that should be precise."""

    query: str
    """A marginal query; it need not be measured."""
    level: str | None = None
    """A level of the accuracy report, such as tract, place or "block group of the spine"."""
    areas: FilePath | None = None
    """Instead of a level: CSV or Parquet with the columns area and block, 16 digits; of a declared
    census, a code of its last geolevel, under whose name the column may be given."""
    smallest_housing_units: int = Field(default=0, ge=0)
    """Only areas with at least so many housing units, which are public."""


class UniverseDesign(Section):
    """Targets of the budget of a universe."""

    objective: Literal["largest_ratio", "weighted_sum", "smallest_rho"] = "largest_ratio"
    """largest_ratio: the largest ratio of a target's margin to the wanted one is least.
    weighted_sum: the weighted sum of the mean variances is least. smallest_rho: as largest_ratio,
    and the budget is the smallest rho at which all wanted margins are met."""
    targets: dict[Label, Target] = Field(min_length=1)
    queries: tuple[str, ...] = ()
    """Queries that may be measured at every geolevel; left out, all queries of the budget."""
    tolerance: ExactFraction = Fraction(1, 100)
    """The search ends when no allocation can be better by more than this, in terms of variances."""


class DesignSettings(TopdownSettings):
    """A settings file of topdown with a section [design]."""

    ASIDE = frozenset()

    design: dict[Universe, UniverseDesign] = Field(min_length=1)

    @property
    def topdown(self) -> TopdownSettings:
        """The settings without the design."""
        return without_section(TopdownSettings, self)

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse budgets outside the program, and targets without effect."""
        super().refuse_invalid(refuse)
        if self.blocks_only or self.privacy.infinite:
            refuse(
                "design splits a budget over geolevels and queries; take out "
                "run.estimator = 'block_by_block' and privacy.infinite"
            )
        for universe, design in self.design.items():
            where = f"design.{universe}"
            if universe not in self.run.universes:
                hint = did_you_mean(universe, self.run.universes)
                refuse(f"{where} is of no universe of run.universes{hint}")
            if self.budget_of(universe).is_pure:
                refuse(
                    f"{where} needs the discrete Gaussian mechanism: under pure differential "
                    "privacy precision is not linear in the budget"
                )
            self._refuse_targets(universe, design, where, refuse)

    def _refuse_targets(
        self, universe: str, design: UniverseDesign, where: str, refuse: Refuse
    ) -> None:
        schema = self.schema_of(universe)
        if not 0 < design.tolerance < 1:
            refuse(f"{where}.tolerance must be positive and below 1")
        with refusing(f"{where}.queries", refuse):
            for name in design.queries:
                marginal_query(schema, name)
        for name, target in design.targets.items():
            place = f"{where}.targets.{name}"
            with refusing(f"{place}.query", refuse):
                marginal_query(schema, target.query)
            if (target.level is None) == (target.areas is None):
                refuse(f"{place} needs either level or areas")
            target.refuse_invalid(design.objective, place, refuse)
            if design.objective == "smallest_rho" and target.margin is None:
                refuse(f"{place}.margin is missing; the smallest rho is the one that meets it")
