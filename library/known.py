"""What the library knows of each product: where its settings, costs and errors are.

The flows know more (`flows/registry.py`), but they load Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.spelling import did_you_mean

Source = Mapping[str, Any] | str | Path
"""Settings: the tables of a settings file as nested mappings, or the path of one."""


@dataclass(frozen=True)
class Known:
    """Places of a product's parts, each as `module:name` within `spineflow.tasks`.

    refuse : what refuses settings before input is read; empty where nothing does.
    """

    settings: str
    costs: str
    accuracy: str
    refuse: str = ""

    @property
    def model(self) -> type[ProductSettings]:
        """The model of the settings."""
        return _part(self.settings)

    def costs_of(self, settings: ProductSettings) -> dict[str, Any]:
        """What a run would cost, by universe."""
        return _part(self.costs)(settings)

    def errors_of(self, run: RunDirectory) -> pd.DataFrame | None:
        """Errors of a run by what they are of; None if its truth is gone."""
        return _part(self.accuracy)(run)

    def load(self, source: Source) -> ProductSettings:
        """Settings as the command line reads them; raises SpineflowError."""
        from spineflow.flows.presets import PRESETS
        from spineflow.tasks.runs.settings_files import load_settings

        settings = load_settings(self.model, source, presets=PRESETS).settled()
        if self.refuse:
            _part(self.refuse)(settings)
        return settings


def _part(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"spineflow.tasks.{module}"), name)


TOPDOWN = Known(
    "topdown.settings:TopdownSettings",
    "topdown.workload.costs:costs",
    "topdown.checks.accuracy.queries:read_accuracy",
    "topdown.estimation.estimators:refuse_settings",
)
PRODUCTS: Mapping[str, Known] = {
    "topdown": TOPDOWN,
    "estimate": Known(
        "topdown.published.settings:EstimateSettings", TOPDOWN.costs, TOPDOWN.accuracy
    ),
    "detailed-groups": Known(
        "detailed_groups.settings:DetailedGroupsSettings",
        "detailed_groups.release.budget:costs",
        "detailed_groups.checks.accuracy:read_accuracy",
        "detailed_groups.release.budget:refuse_settings",
    ),
    "group-sizes": Known(
        "group_sizes.settings:GroupSizesSettings",
        "group_sizes.ingest.read:costs",
        "group_sizes.checks.accuracy:read_accuracy",
    ),
    "trips": Known(
        "trips.settings:TripsSettings",
        "trips.ingest.ingest:costs",
        "trips.checks.accuracy:read_accuracy",
    ),
}
"""The products that release something of one input, by the names of their flows."""


def known(product: str) -> Known:
    """What is known of a product; raises SpineflowError for another name."""
    name = product.replace("_", "-")
    if name not in PRODUCTS:
        raise InputRefused(
            f"unknown product {product!r}{did_you_mean(name, list(PRODUCTS))}; there are "
            f"{', '.join(PRODUCTS)}."
        )
    return PRODUCTS[name]
