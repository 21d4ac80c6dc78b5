"""The products flow: several products of one dataset, one after the other, on one page.

Each product is a separate run in a folder of the parent's run directory, charged to the same
ledger, so that `spineflow resume` continues the product that was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path

from ..tasks.pages.document import Section
from ..tasks.population.checks.agreement import agreement_section
from ..tasks.population.release.population import SUMMARY_FILE
from ..tasks.products.comparison import write_links
from ..tasks.products.product import Accuracy, Product, Words
from ..tasks.products.registry import parts_of, product
from ..tasks.products.several import write_index, write_products_certificate, write_products_report
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.handles import Artifact, stopwatch
from ..tasks.runs.publication import refuse_taken_place
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import with_release_of
from .console import check_input
from .entry import flow_of_product
from .population import make_one_population, sources_of
from .products_settings import ProductsSettings
from .running import prepare, run_stages


def stages(run: RunDirectory, settings: ProductsSettings) -> None:
    """Run all products of a prepared run, each by its flow; finished ones are reused."""
    _refuse_what_cannot_be_run(run, settings)
    for name, chosen in settings.products.chosen().items():
        own = with_release_of(RunDirectory(run.root / name), _with_earlier(chosen, run))
        part = prepare(own, run.root / name)
        with stopwatch() as seconds:
            run_stages(product(own.PRODUCT), part, own)
        run.record_stages({name: [Artifact(f"{name}/release", seconds=seconds())]})
    names = tuple(settings.products.chosen())
    write_index(run, names, partial(_complete, run, settings))
    write_products_report(run, settings, names, _agreement(run, settings))


def _complete(run: RunDirectory, settings: ProductsSettings, folder: Path) -> None:
    """Add one population where the releases allow it, once its checks have passed, and the
    certificate of all products."""
    if settings.population is not None:
        make_one_population(run)
    _write_certificate(run, settings, folder)


def _agreement(run: RunDirectory, settings: ProductsSettings) -> tuple[Section, ...]:
    """Agreement of persons and households, where one population was made of them."""
    names = settings.population
    if names is None or not (run.release / SUMMARY_FILE).exists():
        return ()
    chosen = settings.products.chosen()
    inputs = (settings.input, *(chosen[name].input for name in names))
    may_be_shown = not any(own.confidential for own in inputs)
    section = agreement_section(sources_of(run, names), run.release, with_truth=may_be_shown)
    return (section,)


def _write_certificate(run: RunDirectory, settings: ProductsSettings, folder: Path) -> None:
    """Write the certificate of all products, from their statements."""
    stated = {}
    for name, own in settings.products.chosen().items():
        asked = product(own.PRODUCT)
        if asked.plan is not None:
            stated[name] = asked.plan_of(RunDirectory(run.root / name), own).statement
    write_products_certificate(run, settings, stated, folder)


def _with_earlier(settings: ProductSettings, run: RunDirectory) -> ProductSettings:
    """Settings that name the folders of the earlier products whose releases they read."""
    awaited = settings.input.awaited
    if not awaited:
        return settings
    folders = {name: str(run.root / part) for name, part in awaited.items()}
    return settings.model_copy(update={"input": settings.input.with_releases(folders)})


def _refuse_what_cannot_be_run(run: RunDirectory, settings: ProductsSettings) -> None:
    """Check place and input of every product that has not begun, before any of them spends."""
    for name, own in settings.products.chosen().items():
        if not (run.root / name).exists():
            refuse_taken_place(RunDirectory(run.root / name), own)
            with redirect_stdout(StringIO()):
                check_input(product(own.PRODUCT), own)


def compare(runs: Sequence[tuple[RunDirectory, ProductsSettings]]) -> Path:
    """Compare every product common to all runs; the page of the first run links the comparisons."""
    names = [
        name
        for name in runs[0][1].products.chosen()
        if all(name in own.products.chosen() for _, own in runs)
    ]
    pages = {}
    for name in names:
        parts = [(RunDirectory(run.root / name), own.products.chosen()[name]) for run, own in runs]
        pages[name] = product(parts[0][1].PRODUCT).write_comparison(parts)
    if not pages:
        raise InputRefused("The runs have no product in common; compare runs that do.")
    return write_links(runs[0][0], pages, stamp=runs[0][1].stamp)


def restore(run: RunDirectory, settings: ProductsSettings) -> None:
    """Write the reports of every product, and the page that links them, again."""
    for part, own in islice(parts_of(run, settings), 1, None):
        with part.locked():
            product(own.PRODUCT).words.restore(part, own)
            product(own.PRODUCT).report(part, own)
    names = tuple(settings.products.chosen())
    write_products_report(run, settings, names, _agreement(run, settings))


PRODUCT: Product = Product(
    ProductsSettings,
    words=Words(restore=restore, summary=lambda run, settings: (f"all products: {run.report}",)),
    accuracy=Accuracy(compare=compare),
)

products = flow_of_product(
    PRODUCT,
    stages,
    "Releases several products of one dataset, one after the other, all charged to one ledger. The "
    "products and their own settings are in the settings file.",
)
