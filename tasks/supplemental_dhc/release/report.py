"""The public report of a run of the supplemental tables: what was asked, how exact it is.

Errors against the input are shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

import pandas as pd

from ...pages.document import Cell, Document, Section, Table
from ...products.certificate import exact_section
from ...products.reports import report_document
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..settings import SupplementalDhcSettings
from ..workload.costs import noise_plan
from ..workload.plan import Plan
from ..workload.rows import TITLES
from .certificate import EXACT
from .front_page import overview
from .noise import noise_section

NEIGHBORS = "one person joins or leaves, with up to two records of units"


def report(
    run: RunDirectory, settings: SupplementalDhcSettings, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    plan = read_plan(run)
    sections = [_release(plan), exact_section(EXACT), noise_section(plan)]
    if accuracy is not None:
        sections.append(_accuracy(accuracy))
    return report_document(run, settings, overview(run, settings, plan, accuracy), sections)


def loss_text(plan: Plan) -> str:
    """What the run costs, in its own terms."""
    if not plan.is_noisy:
        return "nothing is guaranteed, since there is no noise"
    tight, simple = noise_plan(plan).epsilons().values()
    return (
        f"rho {float(plan.rho):g} (epsilon {tight:.4g} at delta 1e-10; simple conversion "
        f"{simple:.4g})"
    )


def _release(plan: Plan) -> Section:
    rows: tuple[tuple[Cell, ...], ...] = (
        ("loss", loss_text(plan)),
        ("neighbouring datasets", NEIGHBORS),
        ("rho of bounded zCDP that this implies", noise_plan(plan).bounded_rho),
        *((f"regions of {level}", number) for level, number in plan.levels.items()),
    )
    return Section(
        "The release",
        (
            "Estimates are posterior means under a flat prior on what is possible: counts of at "
            "least 0, and of 1 to 10 persons in a household, 2 to 10 in a family, on average. "
            "Intervals have a probability of 90 %. Tables, iterations and levels were estimated "
            "apart, and need not agree.",
            Table(("what", "value"), rows),
            Table(("table", "of"), tuple(TITLES.items())),
        ),
    )


def _accuracy(accuracy: pd.DataFrame) -> Section:
    headers = ("table", "level", "iteration", "rows", "root mean square error", "of noisy values")
    rows = tuple(
        (
            row.table,
            row.level,
            row.iteration,
            int(row.rows),
            float(row.rmse),
            float(row.rmse_noisy),
            f"{100 * row.covered:.1f}",
        )
        for row in accuracy.itertuples()
    )
    return Section(
        "Error",
        (
            "Estimates beside the true values of the input, which is not confidential, with at "
            "most tau persons of a household.",
            Table((*headers, "% within the interval"), rows),
        ),
    )
