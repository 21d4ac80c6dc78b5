"""The products by name: paths of modules as text, so that only the requested product is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..runs.directory import RunDirectory, refuse_odd_name
from ..runs.errors import InputRefused
from ..runs.names import did_you_mean
from ..runs.settings import ProductSettings
from ..runs.settings_files import settings_of_run, with_release_of

PRODUCTS: Mapping[str, str] = {
    "topdown": "tasks.topdown.product:TOPDOWN",
    "estimate": "tasks.topdown.product:ESTIMATE",
    "detailed-groups": "tasks.detailed_groups.product:DETAILED_GROUPS",
    "detailed-households": "tasks.detailed_groups.product:DETAILED_HOUSEHOLDS",
    "group-sizes": "tasks.group_sizes.product:GROUP_SIZES",
    "trips": "tasks.trips.product:TRIPS",
    "supplemental-dhc": "tasks.supplemental_dhc.product:SUPPLEMENTAL",
    "products": "flows.products:PRODUCT",
    "tune": "flows.tune:PRODUCT",
    "evidence": "flows.evidence:PRODUCT",
}
"""Module and name of every product within the package."""

OF_ONE_INPUT = tuple(name for name, place in PRODUCTS.items() if place.startswith("tasks."))
"""Products with a release of one input."""

TOGETHER = {
    "topdown": "topdown",
    "dhc-units": "topdown",
    "dhc-persons": "topdown",
    "detailed-groups": "detailed-groups",
    "detailed-households": "detailed-households",
    "group-sizes": "group-sizes",
    "supplemental-dhc": "supplemental-dhc",
}
"""Products of the census tables, which `products` can run on one dataset, in this order, by the
names that they have there, with the product of each."""

_PACKAGE = __name__.partition(".")[0]


def product(name: str) -> Any:
    """The product of a name, a `Product`; raises KeyError for one that is not in `PRODUCTS`."""
    return _load_product(PRODUCTS[name])


def _load_product(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{_PACKAGE}.{module}"), name)


def product_of(run: RunDirectory) -> Any:
    """The product of a run; raises InputRefused for one that this version does not have."""
    name = run.read_manifest()["product"]
    if name not in PRODUCTS:
        raise InputRefused(f"{run.root} is a run of {name}, which this version does not have.")
    return product(name)


def existing_run(folder: Path) -> tuple[RunDirectory, Any, ProductSettings]:
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


def find_product(name: str) -> Any:
    """The product of one input of a name, as a person spells it; raises InputRefused."""
    spelt = name.replace("_", "-")
    if spelt not in OF_ONE_INPUT:
        raise InputRefused(
            f"unknown product {name!r}{did_you_mean(spelt, OF_ONE_INPUT)}; there are "
            f"{', '.join(OF_ONE_INPUT)}."
        )
    return product(spelt)


def settings_of(run: RunDirectory) -> type[Any]:
    """The model of a run's settings."""
    return product_of(run).settings
