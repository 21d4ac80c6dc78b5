"""Settings of the supplemental-dhc flow: the census tables, areas, budgets and truncation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Self

from pydantic import Field, PositiveInt

from ..runs.names import FileName
from ..runs.settings import (
    Conditions,
    ExactFraction,
    FilePath,
    InputSettings,
    Probability,
    ProductSettings,
    Refuse,
    Section,
    checked_loss,
    refusing,
    table_of,
)
from .plan import CONFIDENCE, MEASURES, TRUNCATION, rho_for_margin, stability_of

MOST_PERSONS = 1000
"""tau at most: no household is larger."""

Key = tuple[str, str, str]
"""A measure, a level and a key of `ITERATIONS`."""


class SupplementalTables(InputSettings):
    """The census tables."""

    persons: FilePath
    """Table of persons, in the layout of the Census Edited File."""
    units: FilePath
    """Table of housing units and group-quarters facilities."""
    geography: FilePath
    """Table of blocks."""


class LevelSettings(Section):
    """The areas that are tabulated."""

    levels: tuple[FileName, ...] = Field(
        default=("US", "State"),
        title="Levels",
        description="Areas that are tabulated: US, State, County, Tract, Block_Group, Block, or "
        "any column of the geography table.",
    )


class MechanismSettings(Section):
    """Budget by kind of count, and the number of household members that are joined."""

    truncation: dict[str, PositiveInt] = {}
    """tau by measure of persons; left out, production's."""
    budgets: dict[str, dict[str, dict[str, ExactFraction]]] = {}
    """rho by measure, level and iterations; 0 for counts that are not measured."""
    margins: dict[str, dict[str, dict[str, PositiveInt]]] = {}
    """Margins of error that set budgets, by measure, level and iterations; they replace the budgets
    of a preset."""
    confidence: Probability | None = None
    """Probability with which margins of error hold; None for 90 %."""

    @property
    def coverage(self) -> Fraction:
        """The probability with which margins of error hold."""
        return CONFIDENCE if self.confidence is None else self.confidence

    @property
    def taus(self) -> dict[str, int]:
        """tau of every measure of persons."""
        return {**TRUNCATION, **self.truncation}

    def stability(self, measure: str) -> int:
        """The most by which the counts of a measure move."""
        return stability_of(MEASURES[measure], self.taus.get(measure, 0))


class SupplementalDhcSettings(ProductSettings):
    """All settings of a run of the supplemental tables."""

    PRODUCT: ClassVar[str] = "supplemental-dhc"

    input: SupplementalTables
    geography: LevelSettings = LevelSettings()
    mechanism: MechanismSettings = MechanismSettings()

    @classmethod
    def without_replaced(cls, preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """The preset without its budgets, where the file has margins of error."""
        if not table_of(own, "mechanism", "margins"):
            return preset
        mechanism = {k: v for k, v in table_of(preset, "mechanism").items() if k != "budgets"}
        return {**preset, "mechanism": mechanism}

    def resolved(self) -> Self:
        """These settings with budgets in place of margins; budgets that are given stay."""
        own = self.mechanism
        if not own.margins:
            return self
        budgets = {m: {level: dict(of) for level, of in n.items()} for m, n in own.budgets.items()}
        for (measure, level, key), margin in _entries(own.margins):
            of_level = budgets.setdefault(measure, {}).setdefault(level, {})
            of_level[key] = rho_for_margin(own.stability(measure), margin, own.coverage)
        update = {"budgets": budgets, "margins": {}, "confidence": None}
        return self.model_copy(update={"mechanism": own.model_copy(update=update)})

    @property
    def rhos(self) -> dict[Key, Fraction]:
        """rho of everything that is measured, in the order of levels and measures."""
        given = {key: rho for key, rho in _entries(self.resolved().mechanism.budgets) if rho}
        return {
            (measure, level, key): given[measure, level, key]
            for level in self.geography.levels
            for measure, own in MEASURES.items()
            for key in own.iterations
            if (measure, level, key) in given
        }

    @property
    def taus(self) -> dict[str, int]:
        """tau of every measure of persons that is measured."""
        measured = {measure for measure, _, _ in self.rhos}
        return {name: tau for name, tau in self.mechanism.taus.items() if name in measured}

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse unknown measures, levels and iterations, and budgets that measure nothing."""
        own, levels = self.mechanism, self.geography.levels
        if not levels or len(set(levels)) < len(levels):
            refuse("geography.levels must name at least one level, and none twice")
        for name, tau in own.truncation.items():
            if name not in TRUNCATION:
                refuse(
                    f"mechanism.truncation.{name}: persons are joined with households in "
                    f"{', '.join(TRUNCATION)}"
                )
            if tau > MOST_PERSONS:
                refuse(f"mechanism.truncation.{name} must be at most {MOST_PERSONS}")
        for place in ("budgets", "margins"):
            for (measure, level, key), value in _entries(getattr(own, place)):
                where = f"mechanism.{place}.{measure}"
                if measure not in MEASURES:
                    refuse(f"{where}: there are {', '.join(MEASURES)}")
                if level not in levels:
                    refuse(f"{where}.{level}: geography.levels has {', '.join(levels)}")
                if key not in MEASURES[measure].iterations:
                    named = ", ".join(f'"{name}"' for name in MEASURES[measure].iterations)
                    refuse(f"{where}.{level}.{key!r}: it is counted by {named}")
                if place == "budgets" and value:
                    with refusing(f'{where}.{level}."{key}"', refuse):
                        checked_loss(Fraction(value))
                if place == "margins":
                    with refusing(f'{where}.{level}."{key}"', refuse):
                        rho_for_margin(own.stability(measure), value, own.coverage)
        both = {key for key, _ in _entries(own.budgets)} & {key for key, _ in _entries(own.margins)}
        if both:
            measure, level, key = sorted(both)[0]
            refuse(f'{measure}.{level}."{key}" has both a budget and a margin; remove one of them')
        for level in levels:
            if not any(of == level for _, of, _ in self.rhos):
                refuse(
                    f"nothing is measured at the level {level}: give it mechanism.budgets or "
                    'mechanism.margins, or a preset such as "supplemental_dhc_2020_us", or leave '
                    "it out of geography.levels"
                )

    @property
    def conditions(self) -> Conditions:
        """As for every product, and the confidence of margins."""
        of_margins = (bool(self.mechanism.margins), "mechanism.margins")
        return {**super().conditions, "mechanism.confidence": of_margins}


def _entries(nested: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[Key, Any]]:
    for measure, levels in nested.items():
        for level, own in levels.items():
            for key, value in own.items():
                yield (measure, level, key), value
