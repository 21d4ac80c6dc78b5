"""Linear relations between the counts of a universe and those of earlier ones, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .declarations import CensusDeclaration
from .schema import Schema


@dataclass(frozen=True)
class Side:
    """Weights of a universe's cells in a relation, `(n_cells,)` int64."""

    universe: str
    weights: np.ndarray


@dataclass(frozen=True)
class Relation:
    """A linear relation of every geounit: own . x `sign` - sum of others . released counts.

    All terms stand on the left: `own` are the weights of the universe's cells, `others` those of
    earlier universes, and `sign` compares their sum with 0.
    """

    name: str
    sign: str
    own: np.ndarray
    others: tuple[Side, ...]


def compiled_relation(
    name: str, number: int, census: CensusDeclaration, schemas: Mapping[str, Schema]
) -> Relation:
    """The relation of a number that a universe declares.

    Raises ValueError for a universe that is unknown or comes later, and for a relation that says
    nothing of its own.
    """
    entry = census.universes[name].relations[number]
    weights: dict[str, Any] = {}
    for sign, terms in ((1, entry.left), (-1, entry.right)):
        for term in terms:
            other = term.universe or name
            if other not in schemas:
                raise ValueError(f"relation {entry.name!r} names {other!r}, which is no universe")
            schema = schemas[other].of(census.universes[other].attributes)
            moved = sign * term.times * schema.cells_where(term.where)
            weights[other] = weights.get(other, 0) + moved
    own = weights.pop(name, None)
    if own is None or not own.any():
        raise ValueError(f"relation {entry.name!r} says nothing of {name!r}, which declares it")
    order = list(census.universes)
    late = [other for other in weights if order.index(other) > order.index(name)]
    if late:
        raise ValueError(
            f"relation {entry.name!r} of {name!r} needs the released counts of {late[0]!r}; "
            f"declare {late[0]!r} before {name!r}"
        )
    sides = tuple(Side(other, values) for other, values in weights.items())
    return Relation(entry.name, entry.sign, own, sides)
