"""Privacy accounting of a run of the supplemental tables, recomputed from its public files.

Nothing here uses the code that planned or measured. Neighbours differ by one record of a person and
up to two records of units. A record of a unit that comes or goes takes with it the rows of the
persons who are joined with it: tau at most, 2 tau for two. A record of a person that comes or goes
adds or removes its own row, and lets one more of the household in, or one out, if there are more
than tau: two rows. So the counts of persons move by 2 tau + 2 in the L1 norm, which bounds the L2
norm; numbers of households, which read the units alone, by 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ..noise import gaussian_variance
from ..outcome import Failures
from ..run_files import UnusableRunFile, check_answers, read_json, read_whole

GEOGRAPHY = Path("geography")
MEASUREMENTS = Path("measurements") / "people_in_households"

CELLS = {
    "PH1_num": 2,
    "PH1_denom": 1,
    "PH2": 8,
    "PH3": 7,
    "PH4": 2,
    "PH5_denom": 1,
    "PH6": 16,
    "PH7": 3,
    "PH8_denom": 2,
}
"""Cells of every count."""

OF_UNITS = ("PH1_denom", "PH5_denom", "PH8_denom")
"""Counts that read the records of units alone."""

CODES = {"*": "*", "A-G": "ABCDEFG", "H,I": "HI"}
"""Codes of the iterations that are measured together."""


@dataclass(frozen=True)
class ExpectedSupplemental:
    """What the settings promise: rho by measure, level and iterations; tau by measure."""

    rhos: Mapping[tuple[str, str, str], Fraction]
    taus: Mapping[str, int]
    levels: Sequence[str]
    infinite: bool


def read_plan(root: Path) -> dict[str, Any]:
    """The plan of a run; raises UnusableRunFile."""
    return read_json(root, GEOGRAPHY / "plan.json")


def regions_by_level(root: Path) -> dict[str, list[str]]:
    """The regions of every level, in ascending order; raises UnusableRunFile."""
    table = read_whole(root, GEOGRAPHY / "areas.parquet")
    return {name: sorted(set(table[name].drop_null().to_pylist())) for name in table.column_names}


def check_plan(root: Path, expected: ExpectedSupplemental, failures: Failures) -> None:
    """The stored plan is what the settings promise, and its noise covers what a person can change.

    To be called before noise is drawn too. Raises UnusableRunFile for a plan of another form.
    """
    plan, regions = read_plan(root), regions_by_level(root)
    try:
        if list(regions) != list(expected.levels) or plan["levels"] != {
            name: len(own) for name, own in regions.items()
        }:
            failures.add("the levels and regions of the plan are not those of the settings")
        spent: dict[tuple[str, str, str], Fraction] = {}
        for query in plan["queries"]:
            key = query["measure"], query["level"], query["iterations"]
            if key in spent:
                failures.add(f"{' '.join(key)} is measured twice")
            spent[key] = Fraction(query["rho"])
            tau = expected.taus.get(key[0], 0)
            if key[0] not in OF_UNITS and plan["taus"][key[0]] != tau:
                failures.add(f"{key[0]} is truncated otherwise than the settings say")
            change = 2 if key[0] in OF_UNITS else 2 * tau + 2
            sigma_squared = query["sigma_squared"]
            if expected.infinite:
                if sigma_squared is not None:
                    failures.add("there is noise, against the settings")
            elif (
                sigma_squared is None
                or Fraction(change**2) / (2 * Fraction(sigma_squared)) != spent[key]
            ):
                failures.add(f"the noise of {' '.join(key)} does not cost what the plan says")
        if spent != dict(expected.rhos):
            failures.add("the plan spends otherwise than the settings say")
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise UnusableRunFile("geography/plan.json is not a plan") from None


def read_noisy(root: Path) -> dict[tuple[str, str, str, str], np.ndarray]:
    """Noisy counts by level, region, measure and iteration code, `(n_cells,)` each."""
    plan, found = read_plan(root), {}
    for level in plan["levels"]:
        table = pq.read_table(_measured_file(root, level))
        for row in table.select(["geocode", "query_name", "value"]).to_pylist():
            measure, _, key = row["query_name"].removesuffix("_dpq").partition(" ")
            values = np.array(row["value"]).reshape(len(CODES[key]), CELLS[measure])
            for code, own in zip(CODES[key], values, strict=True):
                found[level, row["geocode"], measure, code] = own
    return found


def check_measurements(root: Path, failures: Failures) -> None:
    """Each level's file has every query in every region once, with the plan's variance and loss."""
    plan, regions = read_plan(root), regions_by_level(root)
    for level, own in regions.items():
        queries = {}
        for query in plan["queries"]:
            if query["level"] == level:
                n_values = CELLS[query["measure"]] * len(CODES[query["iterations"]])
                loss, variance, noise = "inf", 0.0, query["sigma_squared"]
                if noise is not None:
                    loss, variance = query["rho"], gaussian_variance(Fraction(noise))
                name = f"{query['measure']} {query['iterations']}_dpq"
                queries[name] = n_values, loss, variance
        check_answers(_measured_file(root, level), own, queries, failures)


def _measured_file(root: Path, level: str) -> Path:
    return root / MEASUREMENTS / level / "dpqueries" / "00000.parquet"
