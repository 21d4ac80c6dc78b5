"""The types of records that held answers and bounds of another universe imply together.

Held answers give a coarse type, such as persons in noninstitutional group quarters by age and race,
and bounds give a finer one by itself: it is empty without a facility of the type. Where an area's
facilities are of one fine type in each coarse one, both together are exact: all persons of the
coarse answer are of that type. Sums over areas are exact in every geounit, so that passes that
interleave get one table of exact answers in place of two that do not nest, and facilities are never
without persons, nor persons without a facility, in any geounit.

An area with facilities of several fine types in one coarse type leaves a choice, which noise could
only make differently in geounits that contain each other. It is made here, from public numbers
alone: persons are shared out in proportion to facilities, each type getting at least its bound.

The cells of a universe that settings keep, and the cells that are zero by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import sparse

from ...census.census import Bound, Held, Universe
from ...census.queries import Schema, incidence, marginal_query
from ...runs.errors import InputRefused
from ...solvers.highs import LinearProgram
from ..settings import TopdownSettings


def structural_zeros(settings: TopdownSettings, universe: str) -> np.ndarray:
    """Mask `(n_cells,)` of the cells that are zero by definition."""
    schema = settings.schema_of(universe)
    forbidden = np.zeros(schema.n_cells, dtype=bool)
    for zero in settings.zeros_of(universe):
        forbidden |= schema.cells_where(zero.where)
    return forbidden


def possible_cells(settings: TopdownSettings, universe: str) -> np.ndarray:
    """Numbers of the cells that are not structural zeros."""
    return np.flatnonzero(~structural_zeros(settings, universe))


IMPLIED = "settled types"
"""Name of the implied answers among the held ones; runs of earlier versions have it."""


def implying(universe: Universe, schema: Schema) -> tuple[Held, tuple[Bound, ...]] | None:
    """The held answers and the bounds, all on one query, that imply types; None without such.

    The bounds need an upper side, which rules out types without a record of the other universe.
    """
    held = next(
        (one for one in universe.held_to_releases if not one.where and one.query != "total"), None
    )
    if held is None:
        return None
    coarse = marginal_query(schema, held.query)
    bounds = [bound for bound in universe.bounds if bound.at_most is not None]
    finer = [b.query for b in bounds if not coarse.refines(marginal_query(schema, b.query))]
    if not finer:
        return None
    return held, tuple(bound for bound in universe.bounds if bound.query == finer[0])


@lru_cache(maxsize=2)
def implied_labels(
    schema: Schema, held: str, bounded: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The implied type `(n_cells,)` of every cell; the held and the bounded row of each type.

    `held` and `bounded` are the queries of these rows.
    """
    fine, coarse = marginal_query(schema, bounded), marginal_query(schema, held)
    pairs = coarse.row_of_cell * fine.n_rows + fine.row_of_cell
    used, label = np.unique(pairs, return_inverse=True)
    return label.reshape(-1), used // fine.n_rows, used % fine.n_rows


def implied_answers(
    schema: Schema,
    held: Held,
    bounds: Sequence[Bound],
    answers: sparse.csr_array,
    multiples: Sequence[np.ndarray],
    forbidden: np.ndarray,
    places: Sequence[str],
) -> sparse.csr_array:
    """Exact answers `(n_areas, n_types)` by implied type.

    Args:
        answers: (n_areas, n_rows) of the held query.
        multiples: by bound, (n_areas, n_rows) records that the bounds multiply.
        forbidden: (n_cells,) structural zeros.
        places: (n_areas,) names of the areas in messages.

    Raises InputRefused, naming an area, where held answers have no possible type.
    """
    label, coarse_of, fine_of = implied_labels(schema, held.query, bounds[0].query)
    n_types, n_fine = fine_of.size, int(fine_of.max()) + 1
    fine = marginal_query(schema, bounds[0].query).row_of_cell
    n_areas = answers.shape[0]
    lower = np.zeros((n_areas, n_fine), dtype=np.int64)
    type_is_possible = np.ones((n_areas, n_fine), dtype=bool)
    for bound, records in zip(bounds, multiples, strict=True):
        rows = np.unique(fine[schema.cells_where(bound.where)])
        if bound.at_least is not None:
            lower[:, rows] = np.maximum(lower[:, rows], bound.at_least * records[:, rows])
        if bound.at_most is not None:
            type_is_possible[:, rows] &= bound.at_most * records[:, rows] > 0
    types = np.unique(label[~forbidden])
    starts = np.searchsorted(coarse_of[types], np.arange(answers.shape[1] + 1))
    entries = sparse.coo_array(answers)
    sizes = np.diff(starts)[entries.col]
    entry = np.repeat(np.arange(entries.nnz), sizes)
    within = np.arange(entry.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kind = types[starts[entries.col[entry]] + within]
    possible = type_is_possible[entries.row[entry], fine_of[kind]]
    entry, kind = entry[possible], kind[possible]
    n_choices = np.bincount(entry, minlength=entries.nnz)
    if (n_choices == 0).any():
        place = list(places)[entries.row[int(np.argmin(n_choices))]]
        raise InputRefused(
            f"The answers that are held as {held.name!r} contradict the bound {bounds[0].name} and "
            f"the structural zeros in area {place}; take one of them out."
        )
    alone = n_choices[entry] == 1
    of_area, of_type = [entries.row[entry[alone]]], [kind[alone]]
    counts = [entries.data[entry[alone]]]
    for area in np.unique(entries.row[entry[~alone]]).tolist():
        here = entries.row[entry] == area
        own = here & np.isin(fine_of[kind], fine_of[kind[here & ~alone]])
        shared = _shared_types(entry[own], entries.data, fine_of[kind[own]], lower[area])
        open_ones = ~alone[own]
        of_area.append(np.full(int(open_ones.sum()), area))
        of_type.append(kind[own][open_ones])
        counts.append(shared[open_ones])
    found = sparse.csr_array(
        (np.concatenate(counts), (np.concatenate(of_area), np.concatenate(of_type))),
        shape=(n_areas, n_types),
        dtype=np.int64,
    )
    by_fine = found @ incidence(fine_of, n_fine).T
    is_short = np.asarray((by_fine - lower < 0).any(axis=1)).ravel()
    if is_short.any():
        raise InputRefused(
            f"The answers that are held as {held.name!r} contradict the bound {bounds[0].name} in "
            f"area {list(places)[int(is_short.argmax())]}; take one of them out."
        )
    return found


def _shared_types(
    entry: np.ndarray, count: np.ndarray, fine: np.ndarray, lower: np.ndarray
) -> np.ndarray:
    """Records of every pair of a held row and a fine type of one area, which add to the held rows:
    as near to the proportions of the types' lower bounds as can be, none below its bound.
    """
    n = entry.size
    rows, row = np.unique(entry, return_inverse=True)
    types, place = np.unique(fine, return_inverse=True)
    wanted = lower[types] / max(int(lower[types].sum()), 1) * count[rows].sum()
    program = LinearProgram(n + 2 * types.size)
    program.add_rows(row.reshape(-1), np.arange(n), 1.0, count[rows])
    of_type = np.arange(types.size)
    infinite = np.full(types.size, np.inf)
    program.add_rows(place.reshape(-1), np.arange(n), 1.0, lower[types].astype(float), infinite)
    program.add_rows(
        np.concatenate([place.reshape(-1), of_type, of_type]),
        np.concatenate([np.arange(n), n + of_type, n + types.size + of_type]),
        np.concatenate([np.ones(n), np.ones(types.size), -np.ones(types.size)]),
        np.rint(wanted),
    )
    cost = np.r_[np.zeros(n), np.ones(2 * types.size)]
    result = program.solve(cost, integral=np.ones(cost.size, dtype=bool))
    if result.x is None:
        raise InputRefused(
            "The held answers of an area cannot be shared among its types so that each "
            "has at least its bound; correct the bounds."
        )
    return np.rint(result.x[:n]).astype(np.int64)
