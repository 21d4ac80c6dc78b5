"""Settings of the tune flow, by the product whose settings are compared.

[input]                          # as for the product; confidential = false
[privacy]
dataset = "commuters-2011"
rho = "1/50"
[trips]                          # the rest of its settings file; the table's name is the product's
[variants.uniform]
[variants.optimised]
mechanism = { shares = "optimised" }
[criterion]
level = "8"
[search]
method = "fixed"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import create_model

from ..tasks.runs.names import FileName
from ..tasks.study.settings import Criterion, TuneSettings
from ..tasks.study.trials import SearchedProduct
from ..tasks.topdown.trials import TRIALS
from .replicates import DETAILED_GROUPS, GROUP_SIZES, TRIPS


class AnyTuneSettings(TuneSettings):
    """All settings of a search for any product: a file's tables choose the model."""

    @classmethod
    def chosen_by(cls, tree: Mapping[str, Any]) -> type[AnyTuneSettings]:
        """The model of the product whose table there is, or that a run has frozen."""
        named = [name for name in MODELS if name in tree]
        asked = tree.get("product", next(iter(named), ""))
        return MODELS.get(asked, MODELS[TRIALS.settings.PRODUCT])


class LevelCriterion(Criterion):
    """A figure of a level's errors, as comparisons of runs show them."""

    kind: Literal["error"] = "error"
    level: str


class TripsCriterion(LevelCriterion):
    """A figure of the errors of trips."""

    universe: Literal["trips"] = "trips"
    quantity: Literal["trips"] = "trips"


class GroupSizesCriterion(LevelCriterion):
    """A figure of the errors of group sizes."""

    universe: Literal["groups"] = "groups"
    quantity: Literal["groups"] = "groups"
    statistic: str = "absolute_error"


class DetailedGroupsCriterion(LevelCriterion):
    """A figure of the errors of detailed groups; a level is a region type and an iteration level,
    such as TRACT:2."""

    quantity: str = "all"
    """A table, or all of them together."""


def _model(searched: SearchedProduct, criterion: type[Criterion]) -> type[AnyTuneSettings]:
    """The settings of a search of a product."""
    own = searched.settings.model_fields
    fields: dict[str, Any] = {
        "input": (own["input"].annotation, ...),
        "privacy": (own["privacy"].annotation, ...),
        "criterion": (criterion, Criterion() if criterion is Criterion else ...),
        "variants": (dict[FileName, searched.settings], ...),  # type: ignore[name-defined]
    }
    made = create_model(f"{searched.settings.__name__}Tune", __base__=AnyTuneSettings, **fields)
    made.SEARCHED = searched
    return made


MODELS: dict[str, type[AnyTuneSettings]] = {
    searched.settings.PRODUCT: _model(searched, criterion)
    for searched, criterion in (
        (TRIALS, Criterion),
        (TRIPS, TripsCriterion),
        (GROUP_SIZES, GroupSizesCriterion),
        (DETAILED_GROUPS, DetailedGroupsCriterion),
    )
}
"""The models by the product that is compared."""
