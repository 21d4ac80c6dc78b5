"""Errors that a release can be expected to have, from the release itself.

A release cannot report its distance from the truth without revealing something about the truth. But
the mechanism is public: measured and estimated again with fresh noise, as if the released counts
were the true ones, it is off by about as much as the release itself was. Nothing confidential is
read, and no budget is spent. Losses of the release, such as the smallest groups, the simulation
cannot lose again: where counts are mostly zero, expect somewhat more.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ...census.histograms import write_histogram
from ...pages.document import Details, Document, Section
from ...products.comparison import EXPECTED_FILE, EXPECTED_TITLE, errors_table, expected_meaning
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...runs.files import write_page
from ..settings import TopdownSettings
from ..spine.files import released_counts, spine_of
from .accuracy.compared import compute_figures
from .accuracy.errors import ALL_ANSWERS
from .replicate import link_run, run_replicate

SIMULATED = (
    "pairs",
    "root_mean_square_error",
    "predicted_standard_deviation",
    "bias",
    "mean_absolute_error",
    "false_zeros",
    "false_positives",
)
"""Statistics of the simulated errors."""
KEYS = ("universe", "quantity", "level", "size_class")
_ROOTS = ["root_mean_square_error", "predicted_standard_deviation"]
"""Roots of mean squares, which are averaged as such."""


def expected_errors(
    run: RunDirectory, settings: TopdownSettings, replicates: int, folder: Path
) -> pd.DataFrame:
    """Mean figures of replicates whose truth is the release of a run; columns `KEYS`, `SIMULATED`.

    Works in `folder`. Raises InputRefused for a run without noise.
    """
    if settings.privacy.infinite:
        raise InputRefused(f"{run.root}: errors can be expected of releases with noise.")
    settings = settings.with_section("input", confidential=False)
    layout = _lay_out_release(run, settings, folder / "release")
    frames = []
    for seed in range(1, replicates + 1):
        errors = compute_figures(*run_replicate(layout, settings, seed, folder / str(seed))).errors
        frames.append(errors[errors["answer"] == ALL_ANSWERS])
    together = pd.concat(frames)
    together[_ROOTS] **= 2
    means = together.groupby(list(KEYS), sort=False)[list(SIMULATED)].mean().reset_index()
    means[_ROOTS] **= 0.5
    return means


def write_expected_page(
    run: RunDirectory, settings: TopdownSettings, replicates: int, folder: Path
) -> Path:
    """Write the page of `expected_errors` next to the public report; returns its path."""
    errors = expected_errors(run, settings, replicates, folder)
    document = Document(
        EXPECTED_TITLE,
        (
            expected_meaning(replicates),
            "The predicted standard deviation is for unbiased estimates. Losses of the release "
            "do not recur in a simulation on it: where counts are mostly zero, expect "
            "somewhat more.",
        ),
        tuple(
            Section(f"{universe}", _figure_tables(of_universe))
            for universe, of_universe in errors.groupby("universe", sort=False)
        ),
        settings.stamp,
    )
    return write_page(run.report.parent / EXPECTED_FILE, document)


def _figure_tables(errors: pd.DataFrame) -> tuple[Details, ...]:
    """A table for each quantity: level, size class, and the figures."""
    shown = {name: name.replace("_", " ") for name in ("level", "size_class", *SIMULATED)}
    return tuple(
        Details(str(quantity), (errors_table(of_quantity, shown),))
        for quantity, of_quantity in errors.groupby("quantity", sort=False)
    )


def _lay_out_release(run: RunDirectory, settings: TopdownSettings, folder: Path) -> RunDirectory:
    """A laid out run whose truth is the release of another."""
    layout = link_run(run, folder, "spine")
    for universe in settings.run.universes:
        spine = spine_of(run, universe)
        for geolevel in spine.names:
            link_run(run, folder, f"measurements/{universe}/{geolevel}/constraints")
        n_cells = settings.schema_of(universe).n_cells
        counts = released_counts(run, universe, spine.geolevels[-1], n_cells)
        write_histogram(layout.histogram(universe), counts, spine.block_geocode)
    return layout
