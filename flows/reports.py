"""Work of the command `report`: reports of finished runs written again, or runs compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..tasks.ledger.charging import refuse_unlike_ledger
from ..tasks.pages.document import Document, Section, Table
from ..tasks.products.acceptance import warnings_of
from ..tasks.products.comparison import EXPECTED_FILE, EXPECTED_TITLE, expected_meaning
from ..tasks.products.product import Product, parts_of
from ..tasks.runs.damage import record_anew
from ..tasks.runs.directory import RunDirectory, secure_confidential
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_page
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.settings import TopdownSettings


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
    if isinstance(settings, TopdownSettings) and settings.draws_noise:
        from ..tasks.topdown.checks.replicate import write_expected_page  # 1.2 s

        simulate: Callable[[RunDirectory, Any, int, Path], Path] = write_expected_page
    elif product.accuracy.of_release is not None and not settings.privacy.infinite:
        simulate = partial(_simulate, product)
    else:
        raise InputRefused(
            f"{run.root}: expected errors exist for releases of topdown, group-sizes and trips "
            "with noise; every count of detailed-groups and detailed-households has its margin, "
            "and every row of supplemental-dhc its interval."
        )
    with _reporting([(run, settings)]), tempfile.TemporaryDirectory() as folder:
        return simulate(run, settings, replicates, Path(folder))


def _simulate(
    product: Product, run: RunDirectory, settings: Any, replicates: int, folder: Path
) -> Path:
    """Write the mean errors of runs whose truth is the release of another; returns the page."""
    from .replicates import mean_errors_of_runs  # 1.6 s

    assert product.accuracy.of_release is not None, "others are refused"
    simulated = product.accuracy.of_release(run, settings, folder)
    errors = mean_errors_of_runs(product, simulated, replicates, folder)
    rows = tuple(tuple(row) for row in errors.itertuples(index=False))
    table = Table(tuple(name.replace("_", " ") for name in errors.columns), rows)
    about = expected_meaning(replicates), "Figures are means, with standard deviations (s.d.)."
    document = Document(EXPECTED_TITLE, about, (Section("Errors", (table,)),), settings.stamp)
    return write_page(run.report.parent / EXPECTED_FILE, document)


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
