"""Privacy accounting of a run of the supplemental tables, recomputed from its public files.

Nothing here uses the code that planned or measured. Neighbours differ by one record of a person and
up to two records of units. A record of a unit that comes or goes takes with it the rows of the
persons who are joined with it: tau at most, 2 tau for two. A record of a person that comes or goes
adds or removes its own row, and lets one more of the household in, or one out, if there are more
than tau: two rows. So the counts of persons move by 2 tau + 2 in the L1 norm, which bounds the L2
norm; numbers of households, which read the units alone, by 2.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ..outcome import Failures
from ..plan import (
    Plan,
    answers_file,
    check_measured,
    check_plan,
    check_sums,
    make_guarantee,
    make_measure,
    read_plan,
)
from ..run_files import read_settings, read_whole

UNIVERSE = "people_in_households"
AREAS = "geography/areas.parquet"

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


TAUS = {"PH1_num": 10, "PH2": 10, "PH3": 6, "PH4": 10, "PH6": 6, "PH7": 10}
"""The most persons of a household who are joined, in production."""


def regions_by_level(root: Path) -> dict[str, list[str]]:
    """The regions of every level, in ascending order; raises UnusableRunFile."""
    table = read_whole(root, Path(AREAS))
    return {name: sorted(set(table[name].drop_null().to_pylist())) for name in table.column_names}


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a plan of another form.
    """
    settings, regions = read_settings(root), regions_by_level(root)
    if list(regions) != settings["geography"]["levels"]:
        failures.add("the levels of the areas differ from the settings")
    rhos = {
        (measure, level, key): Fraction(rho)
        for measure, levels in settings["mechanism"]["budgets"].items()
        for level, keys in levels.items()
        for key, rho in keys.items()
        if Fraction(rho)
    }
    taus, total = TAUS | settings["mechanism"]["truncation"], sum(rhos.values())
    measures = []
    for (measure, level, key), rho in rhos.items():
        n_areas = len(regions[level])
        change = 2 if measure in OF_UNITS else 2 * taus[measure] + 2
        own = make_measure(
            UNIVERSE,
            level,
            f"{measure} {key}",
            areas=n_areas,
            answers=n_areas * CELLS[measure] * len(CODES[key]),
            share=rho / total,
            loss=None if settings["privacy"]["infinite"] else rho,
            moved=change**2,
        )
        measures.append(own)
    guarantees = (make_guarantee(UNIVERSE, "unbounded", Fraction(total)),)
    wanted = Plan(
        "supplemental-dhc",
        settings["privacy"]["dataset"],
        tuple(measures),
        guarantees,
        guarantees,
        ("areas",),
        frozenset(["settings.toml", AREAS]),
        (f"confidential/histograms/{UNIVERSE}.parquet",),
    )
    check_plan(root, wanted, settings, failures)
    check_sums(root, failures)


def read_noisy(root: Path) -> dict[tuple[str, str, str, str], np.ndarray]:
    """Noisy counts by level, region, measure and iteration code, `(n_cells,)` each."""
    found = {}
    for level in {own.level for own in read_plan(root).measures}:
        table = pq.read_table(answers_file(root, UNIVERSE, level))
        for row in table.select(["geocode", "query_name", "value"]).to_pylist():
            measure, _, key = row["query_name"].removesuffix("_dpq").partition(" ")
            values = np.array(row["value"]).reshape(len(CODES[key]), CELLS[measure])
            for code, own in zip(CODES[key], values, strict=True):
                found[level, row["geocode"], measure, code] = own
    return found


def check_measurements(root: Path, failures: Failures) -> None:
    """Each level's file has every query in every region once, with the plan's variance and loss."""
    check_measured(root, UNIVERSE, regions_by_level(root), failures)
