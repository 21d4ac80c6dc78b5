"""The products by name, imported when asked for: Prefect is slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .product import Product

MODULES = {
    "topdown": "spineflow.flows.topdown",
    "estimate": "spineflow.flows.estimate",
    "detailed-groups": "spineflow.flows.detailed_groups",
    "group-sizes": "spineflow.flows.group_sizes",
    "trips": "spineflow.flows.trips",
    "products": "spineflow.flows.products",
    "design": "spineflow.flows.design",
    "tune": "spineflow.flows.tune",
}
"""Module of every flow; its `PRODUCT` describes it."""

TITLES = {
    "topdown": "Census microdata",
    "detailed-groups": "Detailed population groups",
    "group-sizes": "Sizes of groups",
    "trips": "Trips",
    "products": "Several products",
    "estimate": "Estimates from measurements",
    "design": "Design of a budget",
    "tune": "Search for a budget",
}
"""What the deployment of every flow is called, for people."""

TOGETHER = {
    "topdown": "topdown",
    "dhc-persons": "topdown",
    "detailed-groups": "detailed-groups",
    "group-sizes": "group-sizes",
}
"""Products of the census tables, which the flow `products` can run on one dataset, in this order,
by the names that they have there, with the flow of each."""


DEMOS = tuple(name for name in MODULES if name != "design")
"""Flows whose input `spineflow demo` can generate: all that end with a release or a search."""

REPLICATED = ("detailed-groups", "group-sizes", "trips")
"""Products that `spineflow replicates` can run again and again; topdown has `tune` for that."""


def product(name: str) -> Product:
    """The product of a flow; raises KeyError for a name that is not in `MODULES`."""
    return import_module(MODULES[name]).PRODUCT
