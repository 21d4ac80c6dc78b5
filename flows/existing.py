"""Lookup of started runs, for commands that need no Prefect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..tasks.products.product import Product
from ..tasks.products.registry import product_of
from ..tasks.runs.directory import RunDirectory, refuse_odd_name
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import settings_of_run, with_release_of


def existing_run(folder: Path) -> tuple[RunDirectory, Product, ProductSettings]:
    """A run that has been started: its directory, its product and its frozen settings.

    Raises InputRefused if it does not exist, or its settings were edited.
    """
    run = RunDirectory(folder.resolve())
    refuse_odd_name(run)
    asked = product_of(run)
    run.refuse_edited_settings()
    return run, asked, settings_of_run(asked.settings, run)


def parts_of(
    run: RunDirectory, settings: ProductSettings
) -> Iterator[tuple[RunDirectory, ProductSettings]]:
    """A run, and the runs of the products that it is made of, if it is one of several."""
    yield run, settings
    chosen = getattr(settings, "products", None)
    for name, own in chosen.chosen().items() if chosen is not None else ():
        part = RunDirectory(run.root / name)
        yield part, with_release_of(part, own)
