"""The products flow: several products of one dataset, one after the other, on one page.

Each product is a run of its own in a folder of the parent's run directory, charged to the same
ledger, so that `spineflow resume` continues the product that was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from prefect import flow

from ..tasks.products.comparison import write_links
from ..tasks.products.several import write_index, write_products_report
from ..tasks.products.several_certificate import write_products_certificate
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.handles import Artifact
from ..tasks.runs.publication import refuse_taken_place
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.timing import stopwatch
from ..tasks.topdown.settings import TopdownSettings
from .entry import settings_flow
from .form import CensusForm
from .product import Product
from .products_settings import ProductsSettings
from .registry import TOGETHER, product
from .results import show_result
from .running import entered, prepare, run_stages, stages_run_name

products = settings_flow(
    __name__,
    "products",
    lambda: PRODUCT,
    CensusForm(),
    (
        "Releases several products of one dataset, one after the other, all charged "
        "to one ledger. The products and their own settings stand in the settings "
        "file."
    ),
)


@flow(name="products-stages", flow_run_name=stages_run_name, persist_result=False)
def products_stages(run_directory: str) -> str:
    """All products of a prepared run; finished ones are reused. Returns the index's folder."""
    with entered(run_directory, ProductsSettings) as (run, settings):
        _refuse_what_cannot_be_run(run, settings)
        for name, chosen in settings.products.chosen().items():
            own = _with_earlier(chosen, run)
            part = prepare(own, run.root / name)
            with stopwatch() as seconds:
                run_stages(_product(name), part, own)
            run.record_stages({name: [Artifact(f"{name}/release", seconds=seconds())]})
        names = tuple(settings.products.chosen())
        write_index(run, names, partial(_write_certificate, run, settings))
        write_products_report(run, settings, names)
        show_result(run, settings)
    return str(run.release)


def _product(name: str) -> Product:
    """The product that has this name among several."""
    return product(TOGETHER[name])


def _write_certificate(run: RunDirectory, settings: ProductsSettings, folder: Path) -> None:
    """Write the certificate of all products, from what each of them states."""
    stated = {}
    for name, own in settings.products.chosen().items():
        facts = _product(name).facts
        if facts is not None:
            stated[name] = facts(RunDirectory(run.root / name), own).statement
    write_products_certificate(run, settings, stated, folder)


def _with_earlier(settings: ProductSettings, run: RunDirectory) -> ProductSettings:
    """Settings that name the folders of the earlier products that they are held to."""
    if not isinstance(settings, TopdownSettings) or not settings.input.awaited:
        return settings
    folders = {name: str(run.root / part) for name, part in settings.input.awaited.items()}
    tables = settings.input.model_validate({**settings.input.model_dump(), **folders})
    return settings.model_copy(update={"input": tables})


def _refuse_what_cannot_be_run(run: RunDirectory, settings: ProductsSettings) -> None:
    """Check place and input of every product that has not begun, before any of them spends."""
    for name, own in settings.products.chosen().items():
        if not (run.root / name).exists():
            refuse_taken_place(RunDirectory(run.root / name), own)
            with redirect_stdout(StringIO()):
                _product(name).check(own)


def check(settings: ProductsSettings) -> None:
    """Check the input of every product."""
    for name, own in settings.products.chosen().items():
        print(f"{name}:")
        _product(name).check(own)


def refuse(settings: ProductsSettings) -> None:
    """The further checks of every product's settings."""
    for name, own in settings.products.chosen().items():
        _product(name).refuse(own)


def costs(settings: ProductsSettings) -> dict[str, Any]:
    """What every product would cost, by name."""
    return {name: _product(name).costs(own) for name, own in settings.products.chosen().items()}


def needed(settings: ProductsSettings, target: str, margin: int) -> str:
    """The budget that a product's target needs; the product's name and a colon stand before it."""
    name, _, what = target.partition(":")
    own = settings.products.chosen().get(name)
    if own is None:
        raise InputRefused(
            f"--target {target}: write PRODUCT:WHAT, with one of "
            f"{', '.join(settings.products.chosen())}."
        )
    asked = _product(name)
    if asked.needed is None:
        raise InputRefused(f"Margins cannot be turned into a budget for {name}.")
    return f"{name}: {asked.needed(own, what, margin)}"


def compare(runs: Sequence[tuple[RunDirectory, ProductsSettings]]) -> Path:
    """Compare every product that all runs have; the page of the first run links the comparisons."""
    names = [
        name
        for name in runs[0][1].products.chosen()
        if all(name in own.products.chosen() for _, own in runs)
    ]
    pages = {}
    for name in names:
        parts = [(RunDirectory(run.root / name), own.products.chosen()[name]) for run, own in runs]
        if (write := _product(name).compare) is not None:
            pages[name] = write(parts)
    if not pages:
        raise InputRefused("The runs have no product in common; compare runs that do.")
    return write_links(runs[0][0], pages, stamp=runs[0][1].stamp)


def print_costs(settings: ProductsSettings) -> None:
    """The same, one product after the other."""
    for name, own in settings.products.chosen().items():
        print(f"{name}:")
        _product(name).print_costs(own)


def finished(run: RunDirectory, settings: ProductsSettings) -> None:
    """The summaries of all products, then the page that links them."""
    for name, own in settings.products.chosen().items():
        print(f"{name}:")
        _product(name).finished(RunDirectory(run.root / name), own)
    print(f"all products: {run.report}")


def report(run: RunDirectory, settings: ProductsSettings) -> Path:
    """Write the report of every product, and the page that links them, again."""
    for name, own in settings.products.chosen().items():
        part = RunDirectory(run.root / name)
        with part.locked():
            _product(name).report(part, own)
    return write_products_report(run, settings, tuple(settings.products.chosen()))


PRODUCT: Product = Product(
    settings=ProductsSettings,
    flow=products,
    stages=products_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    compare=compare,
    needed=needed,
    refuse=refuse,
)
