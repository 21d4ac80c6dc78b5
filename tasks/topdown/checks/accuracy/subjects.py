"""Subjects of the accuracy report: the geographic entities, and the counts that its readers use.

Entities are the members of the summary levels of the redistricting tables, and the geounits of all
other geolevels of the spine. Uninhabitable blocks are left out; they are on no spine, and nothing
about them is uncertain. Each answer counts the cells of a schema whose attributes take some levels;
a quantity is a group of answers that are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product

import numpy as np
import pandas as pd
from scipy import sparse

from .....geography.hierarchy import group_equally
from .....geography.levels import OF_THE_SPINE, Spine
from ....census.cef_2020 import CENSUS
from ....census.census import Census
from ....census.declarations import QuantityDeclaration
from ....census.queries import TOTAL, Schema, has_attributes, incidence, label_parts, marginal_query
from ...release.tabulations.levels import tabulated_entities


@dataclass(frozen=True, eq=False)
class EntityLevel:
    """Entities of one kind, each a set of the spine's blocks."""

    name: str
    geolevels: frozenset[str]
    """The geolevels of the spine whose geounits are the entities."""
    entity: np.ndarray
    """(n_blocks,) integers: each block's entity, in the order of the spine's blocks; -1 for
    none."""
    n_entities: int

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(n_entities, n) sums of the blocks' `values` (n_blocks, n)."""
        return self._incidence @ values

    @cached_property
    def _incidence(self) -> sparse.csr_array:
        return incidence(self.entity, self.n_entities)


def own_level(geolevel: str) -> str:
    """The name of the level whose entities are the geounits of a geolevel, where these are the
    entities of no other level.

    >>> own_level("Block_Group")
    'block group of the spine'
    """
    return geolevel.replace("_", " ").lower() + OF_THE_SPINE


def own_geolevels(spine: Spine) -> list[str]:
    """The geolevels of which a spine has more than one geounit, the only ones with own levels."""
    return [level.name for level in spine.geolevels if len(level) > 1]


def entity_levels(
    spine: Spine, geography: pd.DataFrame, census: Census = CENSUS, whole: Spine | None = None
) -> tuple[EntityLevel, ...]:
    """All levels, from large to small entities within each of the two kinds.

    They are the summary levels of a census, or else its geolevels and the columns of areas that its
    tables are by; and the own levels of those other geolevels whose geounits are the entities of
    none of these.

    Args:
        geography: rows of the geography frame of the spine's blocks, in their order.
        whole: the spine that this is a subspine of. The levels are then those of the whole, also
            without entities in the subspine.
    """
    geounits = {name: spine.ancestors(name) for name in spine.names}
    levels = []
    found = tabulated_entities(geography.reset_index(drop=True), census)
    for name, (entity, n_entities) in found.items():
        same = (own for own, geounit in geounits.items() if group_equally(entity, geounit))
        levels.append(EntityLevel(name, frozenset(same), entity, n_entities))
    matched = set(chain(*(level.geolevels for level in levels)))
    for name in own_geolevels(whole or spine):
        if name not in matched:
            n_entities = len(spine.geolevel(name))
            levels.append(
                EntityLevel(own_level(name), frozenset([name]), geounits[name], n_entities)
            )
    return tuple(level for level in levels if level.n_entities or whole is not None)


MOST_ANSWERS = 100
"""Most answers of a measured query in the report of a census without declared quantities."""

Where = Mapping[str, Sequence[int]]
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
    meaning: str = ""


def answer_matrix(answers: Sequence[Answer], schema: Schema) -> sparse.csr_array:
    """The 0/1 matrix that turns histograms into answers, shape `(n_cells, n_answers)`."""
    cells = [np.flatnonzero(schema.cells_where(answer.where)) for answer in answers]
    column = np.repeat(np.arange(len(cells)), [own.size for own in cells])
    ones = np.ones(column.size, dtype=np.int64)
    return sparse.csr_array((ones, (np.concatenate(cells), column)), (schema.n_cells, len(cells)))


def quantities_of(
    schema: Schema, census: Census = CENSUS, queries: Sequence[str] = ()
) -> tuple[Quantity, ...]:
    """The declared quantities that a schema determines.

    For a census without declared ones, the total and the answers of `queries` that have few.
    """
    found = []
    for declared in census.declared.quantities or _query_quantities(schema, (TOTAL, *queries)):
        own = declared.where
        if declared.universe == schema.universe and has_attributes(schema, (*own, *declared.by)):
            by = {
                name: schema.spelt_out(name, own.get(name, schema.grouping(name).levels))
                for name in declared.by
            }
            answers = tuple(_answers(schema, schema.positions(own), by, declared.label))
            found.append(Quantity(declared.name, answers, declared.meaning))
    return tuple(found)


def redistricting_groups(schema: Schema, census: Census = CENSUS) -> dict[str, tuple[Answer, ...]]:
    """The groups that partition a population, by population, for the redistricting criterion.

    Empty if the census declares no groups, or the schema determines none.
    """
    declared = census.declared.redistricting
    if declared is None or declared.universe != schema.universe:
        return {}
    groups = declared.groups
    needed = {name for g in groups for name in (*g.where, *((g.each,) if g.each else ()))}
    if not has_attributes(schema, needed):
        return {}
    found = {}
    for population, where in declared.populations.items():
        if has_attributes(schema, where):
            inside, answers = schema.positions(where), list[Answer]()
            for group in groups:
                own = _intersect_conditions(inside, schema.positions(group.where))
                each = {group.each: schema.grouping(group.each).levels} if group.each else {}
                answers += _answers(schema, own, each, group.label)
            found[population] = tuple(answers)
    return found


def _query_quantities(schema: Schema, queries: Sequence[str]) -> Iterator[QuantityDeclaration]:
    """Quantities of the answers to queries that have few, each named by its kept attributes."""
    for query in (marginal_query(schema, name) for name in dict.fromkeys(queries)):
        if query.n_rows <= MOST_ANSWERS:
            by = tuple(part for part, _, _ in label_parts(schema, query.name))
            # A query's name may be longer than declared names.
            yield QuantityDeclaration.model_construct(
                name=query.name, universe=schema.universe, by=by
            )


def _answers(
    schema: Schema, where: Where, by: Mapping[str, Sequence[str | int]], label: str
) -> Iterator[Answer]:
    """An answer for each combination of levels `by` attributes or coarsenings, named by them;
    without any, one with the label."""
    for chosen in product(*by.values()):
        levels = {name: (level,) for name, level in zip(by, chosen, strict=True)}
        own = _intersect_conditions(where, schema.positions(levels))
        yield Answer(", ".join(map(str, chosen)) or label, own)


def _intersect_conditions(first: Where, second: Where) -> Where:
    """The levels that two conditions both allow."""
    found = dict(first)
    for attribute, levels in second.items():
        allowed = found.get(attribute, levels)
        found[attribute] = tuple(level for level in levels if level in allowed)
    return found
