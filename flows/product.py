"""What the command line, deployments and the parent flow need of a product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from prefect import Flow

from ..tasks.pages.document import Table
from ..tasks.products.certificate import Facts
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.settings import ProductSettings, RunnerSettings
from ..tasks.runs.settings_files import load_settings
from .order import Order
from .presets import PRESETS

SizesOf = Callable[[RunDirectory, Any, str, Sequence[tuple]], list[float] | None]
"""Public sizes of the calls of a stage of a run, by their step and keys; None while not known."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of a run: a table, its columns that say of what, and those that say how large."""

    table: pd.DataFrame
    keys: Sequence[str]
    figures: Mapping[str, str]


@dataclass(frozen=True)
class Product:
    """What the command line, deployments and the parent flow need of a product.

    settings : the model of its settings file; its PRODUCT is the name of the flow.
    flow : flow that runs a settings file; what a deployment calls.
    stages : flow that runs all stages of a prepared run, given the run directory as a string;
        returns the release's folder.
    order : the steps of a prepared run; None where what comes next is decided on the way.
    check : reads and checks the input, prints the outcome of its rules; raises InputRefused.
    costs : what a run would cost, as what JSON can hold.
    print_costs : prints that for people.
    finished : prints the summary at the end of a run.
    facts : what the certificate of a run that has been checked says; None where a run has several
        certificates, or none.
    accuracy : how accurate the release of public input is, in a small table; None if nothing tells.
    report : writes the public report of a finished run again, and returns its path.
    compare : writes a report of several finished runs and their settings side by side, and
        returns its path; None where a product has none.
    errors : the errors of a released run of some settings, with the columns that say of what they
        are and those of the figures; None where replicates are tried in another way.
    of_release : the settings of a finished run with its release as public input, whose tables go to
        a folder; None where errors to be expected are told in another way.
    needed : a sentence on the budget that the 95 % margin of error of something needs, given its
        name and the margin; None where a product has none.
    needed_at_once : the same of several margins by name, with the split of the smallest budget that
        meets them all; None where budgets are split in another way.
    refuse : further checks of the settings before anything is read; raises InputRefused.
    sizes : public sizes of a stage's calls, by their step and keys; None while not known.
    """

    settings: type[ProductSettings]
    flow: Flow
    stages: Flow[[str], str]
    check: Callable[[Any], None]
    costs: Callable[[Any], dict[str, Any]]
    print_costs: Callable[[Any], None]
    finished: Callable[[RunDirectory, Any], None]
    report: Callable[[RunDirectory, Any], Path]
    facts: Callable[[RunDirectory, Any], Facts] | None = None
    accuracy: Callable[[RunDirectory, Any], Table | None] | None = None
    order: Callable[[RunDirectory, Any], Order] | None = None
    compare: Callable[[Sequence[tuple[RunDirectory, Any]]], Path] | None = None
    errors: Callable[[RunDirectory, Any], Errors] | None = None
    of_release: Callable[[RunDirectory, Any, Path], ProductSettings] | None = None
    needed: Callable[[Any, str, int], str] | None = None
    needed_at_once: Callable[[Any, Mapping[str, int]], str | None] | None = None
    refuse: Callable[[Any], None] = lambda settings: None
    sizes: SizesOf | None = None

    @property
    def name(self) -> str:
        """Name of the flow."""
        return self.settings.PRODUCT

    def load(
        self, source: str | Path | Mapping[str, Any] | None, overrides: Sequence[str] = ()
    ) -> ProductSettings:
        """Settings from a file, tables or overrides, checked as far as that needs no input."""
        settings = load_settings(self.settings, source, presets=PRESETS, overrides=overrides)
        settings = settings.settled()
        self.refuse(settings)
        refuse_missing_runner(settings.run)
        return settings


def refuse_missing_runner(runner: RunnerSettings) -> None:
    """Raise InputRefused for a runner whose package is not installed."""
    if runner.runner == "dask" and find_spec("prefect_dask") is None:
        raise InputRefused(
            'run.runner = "dask" needs prefect-dask: install spineflow[dask], or choose threads.'
        )
