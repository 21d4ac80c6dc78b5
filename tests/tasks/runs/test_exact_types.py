"""Booleans and whole numbers of all settings, forms and declarations are what they look like."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from spineflow.flows import products_settings, tune_settings
from spineflow.flows.form import form_of
from spineflow.flows.registry import MODULES
from spineflow.tasks.group_sizes.design.design import GroupSizesDesignSettings
from spineflow.tasks.products.registry import product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import Section
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.design.design import TripsDesignSettings
from spineflow.tasks.trips.settings import TripsSettings

PRESETS = Path(__file__).resolve().parents[3] / "flows" / "settings"
ROOTS = (
    products_settings.ProductsSettings,
    *tune_settings.MODELS.values(),
    GroupSizesDesignSettings,
    TripsDesignSettings,
    *(form_of(product(name).settings.chosen_by({})) for name in MODULES),
)
"""Models that lead to all others."""

WRONG = {bool: ("off", "true", "f", 0, 1, 1.0), int: (True, False, "3", 3.0)}
"""Values that were once taken for a boolean or a whole number."""


def within(annotation: Any) -> Iterator[tuple[Any, Any]]:
    """The types inside a type, and what makes a value of the whole of one of theirs."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from within(parts[0])
    elif origin in (typing.Union, types.UnionType):
        for part in parts:
            yield from within(part)
    elif origin is tuple:
        number = 1 if parts[-1] is Ellipsis else len(parts)
        yield from ((kind, lambda x, f=f: [f(x)] * number) for kind, f in within(parts[0]))
    elif origin in (dict, Mapping):
        yield from ((kind, lambda x, f=f: {"1": f(x)}) for kind, f in within(parts[1]))
    elif origin is Literal:
        yield from ((kind, lambda x: x) for kind in {type(part) for part in parts})
    else:
        yield annotation, lambda x: x


def models(*roots: Any) -> set[Any]:
    """The models, and those of all their fields."""
    found: set[Any] = set()
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model not in found and hasattr(model, "model_fields"):
            found.add(model)
            waiting += [
                kind
                for field in model.model_fields.values()
                for kind, _ in within(field.annotation)
            ]
    return found


def cases() -> Iterator[tuple[Any, str, Any]]:
    """Models, keys, and values that are not of the key's type."""
    for model in models(*ROOTS):
        for name, field in model.model_fields.items():
            kinds = {kind for kind, _ in within(field.annotation)}
            for kind, whole in within(field.annotation):
                for wrong in WRONG.get(kind, ()):
                    if type(wrong) not in kinds:
                        yield model, field.alias or name, whole(wrong)


def test_every_boolean_and_whole_number_of_every_model_is_strict() -> None:
    accepted, n_cases = [], 0
    for model, key, value in cases():
        n_cases += 1
        try:
            model.model_validate({key: value})
            accepted.append((model.__name__, key, value))
        except ValidationError as error:
            if not any(one["loc"][0] == key for one in error.errors() if one["loc"]):
                accepted.append((model.__name__, key, value))
    assert n_cases > 200
    assert accepted == []


TRIPS = {
    "input": {"trips": "t.parquet", "origin": "o", "destination": "d", "areas": "a.csv"},
    "privacy": {"dataset": "d", "rho": "1"},
}


def trips(*overrides: str, **tables: Any) -> Section:
    given = {**TRIPS, **tables}
    return load_settings(TripsSettings, given, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize("text", ["off", "0", "f", '"false"', "no", "1.0", "[]"])
def test_what_looks_like_off_does_not_make_data_public(text: str) -> None:
    with pytest.raises(InputRefused) as refused:
        trips(f"input.confidential={text}")
    assert str(refused.value) == (
        "the settings: --set input.confidential: input.confidential must be true or false, without "
        "quotes."
    )
    assert not trips("input.confidential=false").input.confidential


def test_lists_stand_for_tuples_and_nothing_else_does() -> None:
    table = {"table": "t.parquet", "public_levels": True}
    settings = trips(input={**table, "levels": ["state", "county"]})
    assert settings.input.levels == ("state", "county")
    assert settings.with_absolute_paths(str) == settings
    for wrong in ({"state", "county"}, "state", {"state": 1}, [1]):
        with pytest.raises(InputRefused, match=r"input\.levels.* must be "):
            trips(input={**table, "levels": wrong})
