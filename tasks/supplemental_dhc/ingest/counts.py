"""Counts of people in households by area, of every measure, iteration and cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy import sparse

from ...census.histograms import HistogramSum
from ...census.households import Members
from ..workload.measures import MEASURES, N_COLUMNS, columns_of
from .households import Households, cells_of, is_of_persons, iteration_of, orders, truncated


def count_people(
    households: Households,
    members: Members,
    area_of_unit: np.ndarray,
    taus: Mapping[str, int],
    n_areas: int,
) -> sparse.csr_array:
    """True counts `(n_areas, N_COLUMNS)`, after truncation.

    Args:
        households, members: of `read_households`.
        area_of_unit: area of every unit, `(n_units,)`.
        taus: of every measure of persons, the most that count of a household.
    """
    order = orders(households, members)
    total = HistogramSum(n_areas, N_COLUMNS)
    for name in MEASURES:
        for unit, column in columns_of_records(name, households, members, order, taus):
            total.add(area_of_unit[unit], column, np.ones(len(unit), dtype=np.int64))
    return total.total()


def columns_of_records(
    name: str, households: Households, members: Members, order: np.ndarray, taus: Mapping[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Unit and column of all that a measure counts, `(n,)` each, by key of its iterations.

    Of a household's members in the universe the first tau in `order` stay, before anything else.
    """
    measure = MEASURES[name]
    cell = cells_of(name, households, members)
    record = np.flatnonzero(cell >= 0)
    unit, race, hispanic = record, households.race, households.hispanic
    if is_of_persons(name):
        record = record[truncated(members.unit[record], order[record], taus[name])]
        unit = members.unit[record]
        race, hispanic = race[unit], hispanic[unit]
        if measure.is_by_person:
            race, hispanic = members.race[record], members.hispanic[record]
    else:
        race, hispanic = race[unit], hispanic[unit]
    for key in measure.iterations:
        iteration = iteration_of(key, race, hispanic)
        is_in = iteration >= 0
        first = columns_of(name, key).start
        yield unit[is_in], first + iteration[is_in] * measure.n_cells + cell[record[is_in]]
