"""Ties of a universe's records to the released ones of earlier universes: linear relations, and
agreements of presence; those of householders and sizes are `agreeing_households`'.

That records can always agree is proven in `tasks.topdown.measurement.agreements`; what the proof
needs of a declaration is asked for here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .agree_declarations import AgreeDeclaration
from .compiled_schemas import refuse_unknown_universe
from .declarations import BoundDeclaration, CensusDeclaration
from .queries import TOTAL, marginal_query
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


def refuse_unfit_presence(
    name: str,
    entry: AgreeDeclaration,
    census: CensusDeclaration,
    schemas: Mapping[str, Schema],
) -> None:
    """Raise ValueError for an agreement of presence that a universe declares, unless every release
    of the earlier universe leaves records that agree; `schemas` are all universes' in the declared
    order.
    """
    what, order = f"agree {entry.name!r} of {name!r}", list(schemas)
    refuse_unknown_universe(what, entry.universe, schemas)
    if order.index(entry.universe) >= order.index(name):
        raise ValueError(f"{what} needs {entry.universe!r} released; declare it before {name!r}")
    declared = census.universes[name]
    schema, query = schemas[name], marginal_query(schemas[name], entry.query)
    inside = schema.cells_where(entry.where)
    if np.unique(query.row_of_cell[inside]).size != 1 or (
        np.isin(query.row_of_cell[~inside], query.row_of_cell[inside]).any()
    ):
        raise ValueError(f"{what} must be on one whole answer to {entry.query!r}")
    invariants = [(one.query, one.geolevel) for one in declared.invariants]
    others = (declared.bounds, declared.relations, declared.held_to, declared.structural_zeros)
    if invariants != [(TOTAL, census.geography.geolevels[-1])] or any(others):
        raise ValueError(
            f"{what} needs the total of {name!r} exact in every finest area, and no bounds, "
            "relations, held_to and structural_zeros beside it, so that records can always agree"
        )
    other_schema, of = schemas[entry.universe], schemas[entry.universe].cells_where(entry.of)
    if not is_bounded(of, other_schema, census.universes[entry.universe].bounds, name, entry.most):
        raise ValueError(
            f"{what} needs a bound on these records of {entry.universe!r} of at most "
            f"{entry.at_most} per {name!r}, so that records can always agree"
        )


def is_bounded(
    of: np.ndarray, schema: Schema, bounds: Sequence[BoundDeclaration], per: str, at_most: int
) -> bool:
    """Whether one of a universe's bounds holds all records in its cells `of` (n_cells,) together to
    so many per record of another universe.
    """
    return any(
        bound.per == per
        and bound.by is None
        and bound.at_most is not None
        and bound.at_most <= at_most
        and not (of & ~schema.cells_where(bound.where)).any()
        and np.unique(marginal_query(schema, bound.query).row_of_cell[of]).size == 1
        for bound in bounds
    )
