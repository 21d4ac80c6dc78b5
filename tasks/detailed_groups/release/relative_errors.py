"""How large a group must be for its tables to have a small relative error, from the noise alone.

A group of N persons has N / k of them in the average of the k cells of a table. With a margin m of
every noisy count, the average cell is within the part r of its size from N = k m / r on; with a
margin M of the sum of k counts, the group's total is from N = M / r on. The thresholds that choose
tables can be set by these ([SafeTabP2025], section 6.3, which uses expected errors instead).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ...noise.sums import margin_of_sum
from ...pages.document import Table
from ..workload.explorer import LevelBudget
from ..workload.iterations import N_CELLS
from .tables import TABLE_NAMES


def table_populations(
    level: LevelBudget,
    thresholds: tuple[int, ...],
    relative_errors: tuple[Fraction, ...],
    coverage: Fraction,
) -> list[dict[str, Any]]:
    """The populations that each of the four tables needs; margins hold with the coverage.

    Of every table `cells` is the number of noisy counts, `from_total` the noisy total from which on
    a group gets it, `margin_of_cell` and `margin_of_total` are those of one count and of the sum of
    all, and the others, by relative error, the population from which on the average cell, and the
    total, are within it.

    >>> level = LevelBudget(Fraction("0.159"), 9, Fraction("0.1"))
    >>> tables = table_populations(level, (1000, 5000, 20000), (Fraction(1, 10),), Fraction("0.95"))
    >>> [table["population_for_cells"]["1/10"] for table in tables]
    [110, 880, 1980, 5060]
    """
    found = []
    for name, table, start in zip(TABLE_NAMES, sorted(N_CELLS), (None, *thresholds), strict=True):
        k = N_CELLS[table]
        one, whole = (margin_of_sum(level.second_stage, n, coverage) for n in (1, k))
        found.append(
            {
                "table": name,
                "cells": k,
                "from_total": start,
                "margin_of_cell": one,
                "margin_of_total": whole,
                "population_for_cells": {str(r): math.ceil(k * one / r) for r in relative_errors},
                "population_for_total": {str(r): math.ceil(whole / r) for r in relative_errors},
            }
        )
    return found


def populations_table(levels: Iterable[Mapping[str, Any]]) -> Table:
    """The populations that tables need, of `levels`, at least one, as `budget_report` has them."""

    def within(what: str, populations: Mapping[str, int]) -> dict[str, int]:
        percent = {r: f"{float(100 * Fraction(r)):.6g} %" for r in populations}
        return {f"{what} within {percent[r]}": number for r, number in populations.items()}

    rows = [
        {
            "region type": level["region_type"],
            "level": level["level"],
            "table": table["table"],
            "cells": table["cells"],
            "given from": table["from_total"],
            "margin of a cell": table["margin_of_cell"],
            "of the total": table["margin_of_total"],
            **within("average cell", table["population_for_cells"]),
            **within("total", table["population_for_total"]),
        }
        for level in levels
        for table in level["tables"]
    ]
    return Table.of(rows, "of the total")
