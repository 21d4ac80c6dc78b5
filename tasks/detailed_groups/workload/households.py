"""Households by detailed group of the householder: their parameters and their guarantee.

The mechanism is that of [SafeTabH2025], and of the code that the Census Bureau released with it.
One household is in as many groups of a level as its householder, in one region of every type; in
each of these it moves one cell of the tables by type and one of those by tenure. The table of a
group is chosen by the noisy total of persons that a finished run has published, at no loss, and the
noise of a level with budget b and stability s is the discrete Gaussian with sigma^2 = s / (2 b) in
every cell, or under pure DP the two-sided geometric with scale s / b. So a household that is added
or removed costs the budgets of both tabulations at all levels of a pass.

A household that is changed leaves s counts of a level and joins s, which costs twice that rho as in
Theorem 2 of [SafeTabP2025]. Who moves from one household to another changes both. Two records may
leave and join the same counts: these then move by two, which costs four times as much as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ...ledger.accounting import GROUP_OF_TWO, UNBOUNDED_OF_SEVERAL
from ...ledger.plan import Measure, UniversePlan
from .guarantee import plan_of
from .iterations import LEVELS
from .mechanism import MechanismParameters
from .regions import REGION_TYPES
from .tabulations import HOUSEHOLD_TABULATIONS, HouseholdTabulation


@dataclass(frozen=True)
class HouseholdParameters:
    """What the mechanism is run with, by name of a tabulation of households.

    Both have the same passes, states, race codes and kind of noise.
    """

    of: Mapping[str, MechanismParameters]

    @property
    def first(self) -> MechanismParameters:
        """The parameters of the first tabulation, for what both have."""
        return next(iter(self.of.values()))

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee is pure epsilon-DP."""
        return self.first.is_pure

    @property
    def infinite(self) -> bool:
        """Whether noise is switched off."""
        return self.first.infinite

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that are run."""
        return self.first.passes

    def tables(self) -> Iterator[tuple[HouseholdTabulation, MechanismParameters]]:
        """The tabulations with their parameters."""
        for name, own in self.of.items():
            yield HOUSEHOLD_TABULATIONS[name], own

    def levels(self) -> tuple[tuple[str, int], ...]:
        """Region types and iteration levels that either tabulation measures, in their order."""
        measured = {level for own in self.of.values() for level in own.budgets}
        every = ((region_type, level) for region_type in REGION_TYPES for level in LEVELS)
        return tuple(level for level in every if level in measured)

    def total_of(self, region_pass: str) -> Fraction:
        """The budget of both tabulations in a pass: of adding or removing one household there."""
        return sum((own.total_of(region_pass) for own in self.of.values()), Fraction(0))

    @property
    def total(self) -> Fraction:
        """The larger budget of all passes: no household is in two of them."""
        return max((self.total_of(name) for name in self.passes), default=Fraction(0))


def household_plan(parameters: HouseholdParameters, region_pass: str | None = None) -> UniversePlan:
    """What both tabulations are measured with in a pass, or in the whole run."""
    name, total = "households", parameters.total
    if region_pass is not None:
        name, total = f"{region_pass.upper()} pass", parameters.total_of(region_pass)
    return plan_of(name, total, parameters.first, *_OF_HOUSEHOLDS)


def tabulation_plan(
    parameters: HouseholdParameters, name: str, measures: tuple[Measure, ...] = ()
) -> UniversePlan:
    """What one tabulation is measured with in the whole run, which is charged as one draw."""
    what, own = HOUSEHOLD_TABULATIONS[name].what, parameters.of[name]
    return plan_of(what, own.total, own, *_OF_HOUSEHOLDS, measures)


_OF_HOUSEHOLDS = (UNBOUNDED_OF_SEVERAL, GROUP_OF_TWO)
"""The neighbours of a guarantee for households, and what all of a person's move amounts to."""
