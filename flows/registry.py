"""The products by name, imported when asked for: Prefect is slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.running import Product

MODULES = {
    "topdown": "flows.topdown",
    "detailed-groups": "flows.detailed_groups",
    "group-sizes": "flows.group_sizes",
    "trips": "flows.trips",
    "products": "flows.products",
    "tune": "flows.tune",
}
"""Module of every flow; its `PRODUCT` describes it."""


def product(name: str) -> Product:
    """The product of a flow; raises KeyError for a name that is not in `MODULES`."""
    return import_module(MODULES[name]).PRODUCT
