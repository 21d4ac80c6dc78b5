"""Work of the command `report`: reports of finished runs written again, or runs compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..tasks.ledger.charging import refuse_unlike_ledger
from ..tasks.pages.document import Document, Section
from ..tasks.products.acceptance import warnings_of
from ..tasks.products.comparison import errors_table
from ..tasks.products.product import Product, parts_of
from ..tasks.runs.damage import record_anew
from ..tasks.runs.directory import RunDirectory, secure_confidential
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_page
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.settings import TopdownSettings

EXPECTED_FILE = "expected_error.html"
"""Page of the errors to be expected, next to the public report."""


def write_report(run: RunDirectory, product: Product, settings: ProductSettings) -> Path:
    """Write the report of a finished run again; returns its path.

    Raises InputRefused for a run without a release, or that was altered since its charge.
    """
    with _reporting([(run, settings)]):
        product.words.restore(run, settings)
        path = product.report(run, settings)
        run.update_manifest(warnings=list(warnings_of(run)))
    return path


def write_expected_errors(
    run: RunDirectory, product: Product, settings: ProductSettings, replicates: int
) -> Path:
    """Write the expected errors of a finished run, by simulation on its release.

    Raises InputRefused for runs of other products, without noise or a release, or not as charged.
    """
    simulate: Callable[[int, Path], pd.DataFrame]
    if isinstance(settings, TopdownSettings) and settings.draws_noise:
        from ..tasks.topdown.checks.replicate import expected_errors  # 1.2 s

        simulate = partial(expected_errors, run, settings)
        about = (
            "The predicted standard deviation is for unbiased estimates. Losses of the release do "
            "not recur in a simulation on it: where counts are mostly zero, expect somewhat more."
        )
    elif product.accuracy.of_release is not None and not settings.privacy.infinite:
        simulate = partial(_mean_errors, product, run, settings)
        about = "Figures are means, with standard deviations (s.d.)."
    else:
        raise InputRefused(
            f"{run.root}: expected errors exist for releases of topdown, group-sizes and trips "
            "with noise; every count of detailed-groups and detailed-households has its margin, "
            "and every row of supplemental-dhc its interval."
        )
    with _reporting([(run, settings)]), tempfile.TemporaryDirectory() as folder:
        errors = simulate(replicates, Path(folder))
        keys = [name for name in ("universe", "quantity") if name in errors]
        shown = {name: name.replace("_", " ") for name in errors if name not in keys}
        parts = errors.groupby(keys, sort=False) if keys else [(("errors",), errors)]
        sections = tuple(Section(": ".join(key), (errors_table(own, shown),)) for key, own in parts)
        meaning = (
            f"How far {replicates} releases were from this one, when the mechanism was run on the "
            "released counts with fresh noise. The release is from the truth about as far. Nothing "
            "confidential was read and nothing was spent."
        )
        title = "Errors to be expected of this release"
        document = Document(title, (meaning, about), sections, settings.stamp)
        return write_page(run.report.parent / EXPECTED_FILE, document)


def _mean_errors(
    product: Product, run: RunDirectory, settings: Any, replicates: int, folder: Path
) -> pd.DataFrame:
    """The mean errors of runs whose truth is the release of another."""
    from .replicates import mean_errors_of_runs  # 1.6 s

    assert product.accuracy.of_release is not None, "others are refused"
    simulated = product.accuracy.of_release(run, settings, folder)
    return mean_errors_of_runs(product, simulated, replicates, folder)


def write_comparison(existing: Sequence[tuple[RunDirectory, Product, ProductSettings]]) -> Path:
    """Write a report of several finished runs of one product side by side; returns its path.

    Raises InputRefused for runs of several products, without a release, or not as charged.
    """
    products = {product.name: product for _, product, _ in existing}
    first, *others = products.values()
    if others:
        names = " and ".join(sorted(products))
        raise InputRefused(f"Runs of {names} cannot be compared; name runs of one product.")
    runs = [(run, settings) for run, _, settings in existing]
    with _reporting(runs):
        return first.write_comparison(runs)


@contextmanager
def _reporting(runs: Sequence[tuple[RunDirectory, ProductSettings]]) -> Iterator[None]:
    """In the block, pages of finished runs are written again, while the runs are locked.

    Raises InputRefused for a run without a release, and for one whose settings, spine or plan, or
    those of its parts, differ from the charged files. The folders of confidential reports are
    closed to others first, and the digests of the pages are entered in the manifests at the end.
    """
    for run, _ in runs:
        if not run.release.exists():
            raise InputRefused(
                f"{run.root} has no release yet; finish it with 'spineflow resume' first."
            )
    parts = [part for own in runs for part in parts_of(*own)]
    with ExitStack() as stack:
        for root in sorted({run.root for run, _ in runs}):
            stack.enter_context(RunDirectory(root).locked())
        for part, settings in parts:
            secure_confidential(part)
            refuse_unlike_ledger(part, settings)
        yield
        for part, _ in parts:
            record_anew(part, part.report.parent.name)
