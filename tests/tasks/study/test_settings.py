"""Searches that make no sense, and what a product offers to a search if it says nothing else."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.study.search import bound_grid, scale_losses
from spineflow.tasks.study.settings import TuneSettings

TREE: dict[str, Any] = {
    "input": {
        "trips": "t.parquet",
        "areas": "a.csv",
        "origin": "o",
        "destination": "d",
        "count": "n",
        "confidential": False,
    },
    "privacy": {"dataset": "d", "delta": "1e-8"},
    "trips": {"privacy": {"epsilon": "1"}},
    "criterion": {"level": "4", "at_most": 3.0},
    "search": {"method": "total", "lowest": "1/10", "highest": "10", "step": "2"},
}


def loaded(**sections: Any) -> TuneSettings:
    tree = TREE | {name: TREE.get(name, {}) | own for name, own in sections.items()}
    return load_settings(AnyTuneSettings, tree, presets=PRESETS).resolved()


def test_a_search_without_variants_tries_the_settings_as_they_are() -> None:
    settings = loaded()
    assert list(settings.choices) == ["as set"] and settings.product == "trips"
    assert settings.choices["as set"].privacy.epsilon == 1
    assert not settings.is_private and "fixed seeds" in settings.why_not_private
    two = loaded(variants={"a": {}, "b": {"privacy": {"epsilon": "2"}}})
    assert [choice.privacy.epsilon for choice in two.choices.values()] == [1, 2]


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"search": {"lowest": "10"}}, "search.lowest must be below search.highest"),
        ({"search": {"step": "1"}}, "search.step is the ratio of neighbouring points"),
        ({"search": {"lowest": "0"}}, "search.lowest"),
        ({"search": {"method": "geolevels"}}, "search.method must be one of fixed, total for"),
        ({"criterion": {"at_most": None}}, "criterion.at_most is missing"),
        ({"criterion": {"share": "3/2"}}, "share"),
        ({"variants": {"a": {"input": {"count": "m"}}}}, "variants.a reads another input"),
        (
            {"search": {"strategies": ["uniform"]}},
            "search tries estimators or strategies, which belong",
        ),
        ({"search": {"method": "guess"}}, "search.method"),
        ({"input": {"confidential": True}}, "input.confidential = false"),
        ({"criterion": {"kind": "errors"}}, "criterion.kind"),
        ({"criterion": {"quantity": "persons"}}, "criterion.quantity"),
        ({"group-sizes": {}}, "unknown setting 'group-sizes'"),
    ],
)
def test_searches_that_make_no_sense_are_refused(sections: dict, told: str) -> None:
    sections = {
        name: {key: value for key, value in own.items() if value is not None}
        for name, own in sections.items()
    }
    if sections == {"criterion": {}}:
        tree = TREE | {"criterion": {"level": "4"}}
        with pytest.raises(InputRefused, match=told):
            load_settings(AnyTuneSettings, tree, presets=PRESETS)
        return
    with pytest.raises(InputRefused, match=told):
        loaded(**sections)


def test_losses_are_scaled_in_proportion_and_a_grid_ends_at_the_most() -> None:
    losses = {"a": Fraction(1), "b": Fraction(3)}
    assert scale_losses(losses, Fraction(2)) == {"a": Fraction(1, 2), "b": Fraction(3, 2)}
    grid = (Fraction(1), Fraction(2), Fraction(4))
    assert (
        bound_grid(grid, None)
        == bound_grid(grid, Fraction(4))
        == bound_grid(grid, Fraction(5))
        == grid
    )
    assert bound_grid(grid, Fraction(3)) == (1, 2, 3)
    assert bound_grid(grid, Fraction(2)) == (1, 2)
