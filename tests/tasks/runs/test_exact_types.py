"""Booleans and whole numbers of all settings, forms and declarations are what they look like."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from spineflow.flows import products, replicates
from spineflow.flows.form import form_of
from spineflow.flows.registry import MODULES
from spineflow.tasks.group_sizes.measurement import GroupSizesDesignSettings
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import Section
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.charge import TripsDesignSettings
from spineflow.tasks.trips.settings import TripsSettings

PRESETS = Path(__file__).resolve().parents[3] / "flows" / "settings"
ROOTS = (
    products.ProductsSettings,
    *replicates.MODELS.values(),
    GroupSizesDesignSettings,
    TripsDesignSettings,
    *(form_of(product(name).settings.chosen_by({})) for name in MODULES),
)
"""Models that lead to all others."""


def within(annotation: Any) -> Iterator[Any]:
    """A type, and those inside it."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from within(part)


def models(*roots: Any) -> set[Any]:
    """The models, and those of all their fields."""
    found: set[Any] = set()
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model not in found and isinstance(model, type) and issubclass(model, BaseModel):
            found.add(model)
            for field in model.model_fields.values():
                waiting += within(field.annotation)
    return found


def test_every_boolean_and_whole_number_of_every_model_is_strict() -> None:
    """And no number is one of a list of values, for whose 1 Python holds true and 1.0.

    Threat model: settings that look like another type.
    """
    found = models(*ROOTS)
    assert len(found) > 80
    for model in found:
        assert model.model_config["strict"], model.__name__
        for field in model.model_fields.values():
            for kind in within(field.annotation):
                assert not isinstance(kind, int | float), (model.__name__, field)


TRIPS = {
    "input": {"trips": "t.parquet", "origin": "o", "destination": "d", "areas": "a.csv"},
    "privacy": {"dataset": "d", "rho": "1"},
}


def trips(*overrides: str, **tables: Any) -> Section:
    given = {**TRIPS, **tables}
    return load_settings(TripsSettings, given, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize("text", ["off", "0", "f", '"false"', "no", "1.0", "[]"])
def test_what_looks_like_off_does_not_make_data_public(text: str) -> None:
    """Threat model: settings that look like another type."""
    with pytest.raises(InputRefused) as refused:
        trips(f"input.confidential={text}")
    assert str(refused.value) == "the settings: input.confidential must be a valid boolean."
    assert not trips("input.confidential=false").input.confidential


@pytest.mark.parametrize("text", ["true", '"3"', "3.0", "[3]"])
def test_what_looks_like_a_whole_number_is_none(text: str) -> None:
    with pytest.raises(InputRefused, match=r"run\.workers must be a valid integer"):
        trips(f"run.workers={text}")
