"""The flows of the products by name, imported on demand: Prefect is slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect import Flow

    from .stages import Body

TITLES = {
    "topdown": "Census microdata",
    "estimate": "Estimates from measurements",
    "detailed-groups": "Detailed population groups",
    "detailed-households": "Households by detailed group",
    "group-sizes": "Sizes of groups",
    "trips": "Trips",
    "supplemental-dhc": "People in households",
    "products": "Several products",
    "tune": "Search for a budget",
    "evidence": "Evidence on protection methods",
}
"""Titles of the flows' deployments, for people."""

MODULES = {name: f"spineflow.flows.{name.replace('-', '_')}" for name in TITLES}
"""Module of every flow, with the flow under its own name and its function as `stages`."""

DECIDED_ON_THE_WAY = ("products", "tune")
"""Flows whose stages depend on results of others, so that they need a flow run."""


def entry_point(name: str) -> str:
    """Where a deployment finds the flow that runs a settings file."""
    return f"{MODULES[name]}.{name.replace('-', '_')}"


def flow_of(name: str) -> Flow[..., str]:
    """The flow that runs a settings file; deployments call it."""
    return getattr(import_module(MODULES[name]), name.replace("-", "_"))


def stages_of(name: str) -> Body:
    """The function of a flow that submits the stages of a prepared run."""
    body: Body = import_module(MODULES[name]).stages
    return body
