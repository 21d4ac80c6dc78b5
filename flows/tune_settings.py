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
from typing import Any, ClassVar, Literal

from ..tasks.detailed_groups.settings import DetailedGroupsSettings, GroupsInput
from ..tasks.group_sizes.settings import GroupPrivacy, GroupSizesSettings, GroupTables
from ..tasks.products.searched import SearchedProduct
from ..tasks.runs.names import FileName
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.trials import TRIALS
from ..tasks.topdown.workload.sections import CensusTables
from ..tasks.trips.settings import TripsInput, TripsPrivacy, TripsSettings
from ..tasks.tune.settings import Criterion, TuneSettings
from .searched import DETAILED_GROUPS, GROUP_SIZES, TRIPS


class AnyTuneSettings(TuneSettings):
    """All settings of a search for any product: a file's tables choose the model."""

    @classmethod
    def chosen_by(cls, tree: Mapping[str, Any]) -> type[AnyTuneSettings]:
        """The model of the product whose table there is, or that a run has frozen."""
        named = [name for name in MODELS if name in tree]
        return MODELS.get(tree.get("product", named[0] if named else ""), TopdownTuneSettings)


class TopdownTuneSettings(AnyTuneSettings):
    """All settings of a search for budgets of topdown."""

    SEARCHED: ClassVar[SearchedProduct] = TRIALS

    input: CensusTables
    variants: dict[FileName, TopdownSettings]


class LevelCriterion(Criterion):
    """A figure of a level's errors, as comparisons of runs show them."""

    kind: Literal["error"] = "error"
    level: str


class TripsCriterion(LevelCriterion):
    """A figure of the errors of trips."""

    universe: Literal["trips"] = "trips"
    quantity: Literal["trips"] = "trips"


class TripsTuneSettings(AnyTuneSettings):
    """All settings of a search among those of trips."""

    SEARCHED: ClassVar[SearchedProduct] = TRIPS

    input: TripsInput
    privacy: TripsPrivacy
    criterion: TripsCriterion
    variants: dict[FileName, TripsSettings]


class GroupSizesCriterion(LevelCriterion):
    """A figure of the errors of group sizes."""

    universe: Literal["groups"] = "groups"
    quantity: Literal["groups"] = "groups"
    statistic: str = "absolute_error"


class GroupSizesTuneSettings(AnyTuneSettings):
    """All settings of a search among those of group sizes."""

    SEARCHED: ClassVar[SearchedProduct] = GROUP_SIZES

    input: GroupTables
    privacy: GroupPrivacy
    criterion: GroupSizesCriterion
    variants: dict[FileName, GroupSizesSettings]


class DetailedGroupsCriterion(LevelCriterion):
    """A figure of the errors of detailed groups; a level is a region type and an iteration level,
    such as TRACT:2."""

    quantity: str = "all"
    """A table, or all of them together."""


class DetailedGroupsTuneSettings(AnyTuneSettings):
    """All settings of a search among those of detailed groups."""

    SEARCHED: ClassVar[SearchedProduct] = DETAILED_GROUPS

    input: GroupsInput
    criterion: DetailedGroupsCriterion
    variants: dict[FileName, DetailedGroupsSettings]


MODELS: dict[str, type[AnyTuneSettings]] = {
    model.SEARCHED.settings.PRODUCT: model
    for model in (
        TopdownTuneSettings,
        TripsTuneSettings,
        GroupSizesTuneSettings,
        DetailedGroupsTuneSettings,
    )
}
"""The models by the product that is compared."""
