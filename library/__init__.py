"""Spineflow: census-like data released under differential privacy, as Prefect flows.

These names are the public interface: it is documented in `docs/library.md`, typed, and kept
from one minor version to the next. Everything else may change. Importing it is cheap: a name is
looked up when it is used, and Prefect is loaded when a run starts.

Errors are exceptions of one class, `SpineflowError`, with the sentences of the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "spineflow":  # A second copy would have classes of its own.
    raise ImportError("import spineflow; library is not its name")

if TYPE_CHECKING:
    from spineflow.budgets import budget as budget
    from spineflow.budgets import guarantee as guarantee
    from spineflow.budgets import ledger as ledger
    from spineflow.budgets import make_ledger as make_ledger
    from spineflow.budgets import privacy_curve as privacy_curve
    from spineflow.budgets import trade_off as trade_off
    from spineflow.mechanisms import detailed_groups as detailed_groups
    from spineflow.mechanisms import detailed_households as detailed_households
    from spineflow.mechanisms import group_sizes as group_sizes
    from spineflow.mechanisms import people_in_households as people_in_households
    from spineflow.mechanisms import supplemental_dhc as supplemental_dhc
    from spineflow.mechanisms import topdown as topdown
    from spineflow.mechanisms import trips as trips
    from spineflow.plots import plot_budget as plot_budget
    from spineflow.plots import plot_errors as plot_errors
    from spineflow.plots import plot_margins as plot_margins
    from spineflow.runs import Run as Run
    from spineflow.runs import open_run as open_run
    from spineflow.runs import read_table as read_table
    from spineflow.tasks.runs.errors import SpineflowError as SpineflowError

    __version__: str

_NAMES = {
    "budgets": ("budget", "guarantee", "ledger", "make_ledger", "privacy_curve", "trade_off"),
    "mechanisms": (
        "detailed_groups",
        "detailed_households",
        "group_sizes",
        "people_in_households",
        "supplemental_dhc",
        "topdown",
        "trips",
    ),
    "plots": ("plot_budget", "plot_errors", "plot_margins"),
    "runs": ("Run", "open_run", "read_table"),
    "tasks.runs.errors": ("SpineflowError",),
}
"""Public names by module."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("spineflow")
    if name not in _MODULES:
        raise AttributeError(f"module 'spineflow' has no attribute {name!r}")
    return getattr(import_module(f"spineflow.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
