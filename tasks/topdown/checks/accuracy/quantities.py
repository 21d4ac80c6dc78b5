"""What the accuracy of a release is measured on: counts that its readers use.

Each answer counts the cells of a schema whose attributes take some levels; a quantity is a group of
answers that are reported together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.topdown.release.tabulations.variables import (
    ADULT_AGE,
    N_RACES,
    RACE_COMBINATIONS,
)

TOTAL_POPULATION = "total population"
VOTING_AGE = "voting age"
RACE = "race"
HISPANIC_BY_RACE = "hispanic by race"
GROUP_QUARTERS = "group quarters"
OCCUPANCY = "occupancy"

RACE_GROUPS: Mapping[str, tuple[int, ...]] = {
    "white": (0,),
    "black": (1,),
    "American Indian and Alaska Native": (2,),
    "Asian": (3,),
    "Native Hawaiian and Pacific Islander": (4,),
    "some other race": (5,),
    "two or more races": tuple(range(N_RACES, len(RACE_COMBINATIONS))),
}
"""Levels of `cenrace` of each group."""

ORIGINS: Mapping[str, tuple[int, ...]] = {"not Hispanic": (0,), "Hispanic": (1,)}

GROUP_QUARTERS_TYPES = (
    "correctional",
    "juvenile",
    "nursing",
    "other institutional",
    "college",
    "military",
    "other noninstitutional",
)
"""Group quarters by level of `hhgq`, from 1."""

Where = Mapping[str, tuple[int, ...]]
"""Levels that each attribute may take; attributes left out may take any."""


@dataclass(frozen=True)
class Answer:
    """One count: its label, and the cells it counts."""

    label: str
    where: Where


@dataclass(frozen=True)
class Quantity:
    """Answers of one universe that are reported together."""

    name: str
    answers: tuple[Answer, ...]


def answer_matrix(answers: Sequence[Answer], schema: Schema) -> np.ndarray:
    """The 0/1 matrix that turns histograms into answers, shape `(n_cells, n_answers)`."""
    masks = [schema.cells_where(answer.where) for answer in answers]
    return np.array(masks, dtype=np.int64).T


def quantities_of(schema: Schema) -> tuple[Quantity, ...]:
    """The quantities that a schema tells."""
    has = set(schema.attributes)
    if schema.universe == "units":
        statuses = (("occupied", 1), ("vacant", 0))
        return (
            Quantity(
                OCCUPANCY, tuple(Answer(name, {"occupancy": (level,)}) for name, level in statuses)
            ),
        )
    quantities = [Quantity(TOTAL_POPULATION, (Answer("everyone", {}),))]
    adult = _of_voting_age(schema)
    if adult:
        quantities.append(Quantity(VOTING_AGE, (Answer("of voting age", adult),)))
    if "cenrace" in has:
        quantities.append(Quantity(RACE, _by_race({})))
    if {"cenrace", "hispanic"} <= has:
        answers = (
            Answer(f"{origin}, {answer.label}", answer.where)
            for origin, levels in ORIGINS.items()
            for answer in _by_race({"hispanic": levels})
        )
        quantities.append(Quantity(HISPANIC_BY_RACE, tuple(answers)))
    if "hhgq" in has:
        types = enumerate(GROUP_QUARTERS_TYPES, 1)
        quantities.append(
            Quantity(GROUP_QUARTERS, tuple(Answer(name, {"hhgq": (t,)}) for t, name in types))
        )
    return tuple(quantities)


def redistricting_groups(schema: Schema) -> dict[str, tuple[Answer, ...]]:
    """The racial and ethnic groups that partition a population, by population: everyone, and those
    of voting age. Hispanics are one group whatever their race. Empty if the schema tells none.
    """
    if not {"cenrace", "hispanic"} <= set(schema.attributes):
        return {}
    populations = {TOTAL_POPULATION: {}, VOTING_AGE: _of_voting_age(schema)}
    return {
        population: (
            Answer("Hispanic", {**where, "hispanic": ORIGINS["Hispanic"]}),
            *_by_race({**where, "hispanic": ORIGINS["not Hispanic"]}),
        )
        for population, where in populations.items()
        if where is not None
    }


def _by_race(where: Where) -> tuple[Answer, ...]:
    return tuple(
        Answer(group, {**where, "cenrace": levels}) for group, levels in RACE_GROUPS.items()
    )


def _of_voting_age(schema: Schema) -> Where | None:
    """Who is of voting age; None if the schema does not tell."""
    if "votingage" in schema.attributes:
        return {"votingage": (1,)}
    if "age" in schema.attributes:
        return {"age": tuple(range(ADULT_AGE, len(schema.labels("age"))))}
    return None
