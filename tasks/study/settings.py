"""Settings of the tune flow: the variations, the criterion, and the search.

The table of a product names it; here it is topdown.

[input]                          # as for topdown; confidential = false
[privacy]
dataset = "published-2010"
[topdown]                        # the rest of a topdown settings file
preset = "pl94_2020_us"
[variants.aian]                  # settings that win over [topdown]; none: [topdown] alone
geography = { spine = "aian" }
[criterion]
kind = "redistricting"
[search]
method = "geolevels"
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ..runs.errors import InputRefused
from ..runs.names import FileName
from ..runs.settings import (
    Conditions,
    ExactFraction,
    Loss,
    ProductSettings,
    Refuse,
    Section,
    WithPreset,
    merged_tables,
    refuse_within,
    table_of,
)
from .trials import Figures, SearchedProduct

AS_SET = "as set"
"""Name of the only variant where none are given."""


class Criterion(Section):
    """Criterion of a budget, on average over the replicates."""

    kind: Literal["redistricting", "error"] = "redistricting"
    """redistricting: the largest group's share is within 5 points for enough targeted entities of
    500 people or more. error: a statistic of the accuracy report is small enough."""
    share: ExactFraction = Fraction(95, 100)
    """For redistricting: the share of the entities that must be within 5 points."""
    universe: str = "persons"
    """Whose budget is searched for."""
    quantity: str = "total population"
    """Quantity of the accuracy report."""
    answer: str = "all"
    """Answer of the quantity."""
    level: str = "county"
    """Level of the answer."""
    size_class: str = "all"
    """Size class of the areas."""
    statistic: str = "mean_absolute_error"
    """Column of the accuracy report; `predicted_standard_deviation` needs one replicate
    only."""
    at_most: float | None = Field(
        default=None,
        title="Largest error",
        description="The largest error of the criterion that will do.",
    )
    """For error; None compares variants at their own budgets, and the best is found."""

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        if self.kind == "redistricting" and self.universe != "persons":
            raise ValueError("of kind redistricting is about persons")
        return self

    @property
    def is_comparison(self) -> bool:
        """Whether variants are compared at their own losses, and nothing is to be met."""
        return self.kind == "error" and self.at_most is None

    @property
    def is_share(self) -> bool:
        """Whether larger values are better."""
        return self.kind == "redistricting"

    def value_of(self, figures: Figures) -> float:
        """The figure of one replicate that the criterion is about.

        Raises InputRefused if the data have nothing that it could be computed from.
        """
        if self.is_share:
            return figures.redistricting()
        errors = figures.errors
        if self.statistic not in errors.columns:
            raise InputRefused(
                f"criterion.statistic: there is no {self.statistic!r} in an accuracy report; "
                "there is for example 'mean_absolute_error'."
            )
        for key in ("universe", "quantity", "answer", "level", "size_class"):
            known = list(dict.fromkeys(errors[key]))
            errors = errors[errors[key] == getattr(self, key)]
            if errors.empty:
                raise InputRefused(
                    f"criterion.{key}: the accuracy report has no {getattr(self, key)!r} here; "
                    f"there are {', '.join(known)}."
                )
        return float(errors[self.statistic].iloc[0])

    def is_met(self, value: float) -> bool:
        """Whether the mean over replicates is good enough."""
        if self.is_share:
            return value >= float(self.share)
        return self.at_most is None or value <= self.at_most

    @property
    def in_words(self) -> str:
        """The criterion as a clause."""
        if self.is_share:
            return (
                f"the largest group's share is within 5 points for {float(self.share):.1%} of "
                "the targeted entities of 500 people or more"
            )
        error = f"{self.statistic.replace('_', ' ')} of {self.quantity} at {self.level}"
        if self.at_most is None:
            return f"{error} is the least of all variants"
        return f"{error} is at most {self.at_most:g}"


class Search(Section):
    """How the smallest budget is searched for."""

    method: Literal["fixed", "total", "geolevels"] = "total"
    """fixed: every variant at its own budget. total: the smallest total at a variant's shares.
    geolevels: a loss for each geolevel, from the root down, as in [TopDown2022]."""
    estimators: tuple[str, ...] = ()
    """Estimators to try with each variant; if omitted, its own."""
    strategies: tuple[str, ...] = ()
    """Query strategies to try with each variant: own, uniform, size, size_squared,
    inverse_size_squared; if omitted, own."""
    replicates: int = Field(
        default=3,
        ge=1,
        title="Replicates",
        description="Runs per trial, with noise of their own.",
    )
    lowest: Loss = Fraction(1, 100)
    """Smallest loss of the grid: rho, or epsilon under pure differential privacy."""
    highest: Loss = Fraction(100)
    """Largest loss of the grid."""
    step: ExactFraction = Fraction(5, 4)
    """Ratio of neighbouring points of the grid between the lowest and the highest loss."""


class TuneSettings(ProductSettings):
    """All settings of a search; in the file the variants are changes to the product's table.

    A flow names the product in `SEARCHED` and gives the fields `input`, `variants` and, where its
    errors are of other things, `criterion` its types.
    """

    PRODUCT: ClassVar[str] = "tune"
    NEEDS_PUBLIC_DATA: ClassVar[str] = (
        "a search spends losses that no ledger records, and its results depend on the data: tune "
        "on data that may be disclosed, and set input.confidential = false"
    )

    SEARCHED: ClassVar[SearchedProduct]
    """The product whose budget is searched for; its name is that of the table of its settings."""

    product: str = "topdown"
    """The product whose settings are compared."""
    criterion: Criterion = Criterion()
    search: Search = Search()
    variants: Mapping[FileName, ProductSettings]

    @property
    def parts(self) -> Mapping[str, ProductSettings]:
        """All that is compared."""
        return self.choices

    @cached_property
    def choices(self) -> Mapping[str, Any]:
        """Compared choices: each variant with every estimator and strategy named, all under
        the variant's guarantee."""
        universe = self.criterion.universe
        return {
            f"{name}{kind}": self.SEARCHED.apply_guarantee(variant, made, universe)
            for name, variant in self.variants.items()
            for kind, made in self.SEARCHED.variations(
                variant, universe, self.search.estimators, self.search.strategies
            ).items()
        }

    @property
    def reading(self) -> ProductSettings:
        """Settings that read the input, which all variants share."""
        first = next(iter(self.variants.values()))
        return self.SEARCHED.measuring_only(first, self.criterion.universe)

    @property
    def why_not_private(self) -> str:
        """A search never is."""
        return "replicates are drawn from fixed seeds, and the results depend on the data"

    @classmethod
    def expanded(cls, own: Mapping[str, Any], with_preset: WithPreset) -> Mapping[str, Any]:
        """The variants as whole settings of the product, each with its preset beneath it."""
        shared = {name: own[name] for name in ("input", "privacy", "run") if name in own}
        changes = own.get("variants", {AS_SET: {}})
        model = cls.SEARCHED.settings
        common = own.get(model.PRODUCT, {})
        if not isinstance(changes, Mapping) or not isinstance(common, Mapping):
            return own
        base = merged_tables(shared, common)
        rest = {name: value for name, value in own.items() if name != model.PRODUCT}
        variants = {
            name: with_preset(model, merged_tables(base, change))
            if isinstance(change, Mapping)
            else change
            for name, change in changes.items()
        }
        return rest | {"product": model.PRODUCT, "variants": variants}

    def resolved(self) -> Self:
        """With every variant resolved."""
        found = self.model_copy(
            update={"variants": {name: own.resolved() for name, own in self.variants.items()}}
        )
        # They were computed from the variants as given in the file.
        found.__dict__.pop("choices", None)
        return found

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse a grid without points, and variants that do not read the same input."""
        search = self.search
        if search.lowest >= search.highest:
            refuse("search.lowest must be below search.highest")
        if search.step <= 1:
            refuse("search.step is the ratio of neighbouring points; it must be above 1")
        if not 0 < self.criterion.share <= 1:
            refuse("criterion.share must be positive and at most 1")
        searched, universe = self.SEARCHED, self.criterion.universe
        if search.method not in searched.methods:
            refuse(f"search.method must be one of {', '.join(searched.methods)} for {self.product}")
        if self.criterion.is_comparison and search.method != "fixed":
            refuse(
                "criterion.at_most is missing: the largest error that will do; without it "
                'only search.method = "fixed" finds anything, the best of the variants'
            )
        first = next(iter(self.variants.values()))
        for name, variant in self.variants.items():
            where = f"variants.{name}"
            if variant.input != self.input:
                refuse(f"{where} reads another input; a search compares variants on the same data")
            if universe not in searched.universes(variant):
                refuse(f"{where}.run.universes lacks {universe}, which the criterion is about")
            if searched.attributes(variant, universe) != searched.attributes(first, universe):
                refuse(
                    f"{where}.workload.{universe} has attributes of its own; all must share them"
                )
            variant.refuse_invalid(refuse_within(where, refuse))
        try:
            choices = self.choices
        except ValueError as error:
            refuse(f"search {error}")
            return
        for name, choice in choices.items():
            choice.refuse_invalid(refuse_within(f"variants.{name}", refuse))

    @property
    def conditions(self) -> Conditions:
        """As for every product, and keys of the other kind of criterion, and of searched grids."""
        is_error = (self.criterion.kind == "error", 'criterion.kind = "error"')
        of_error = ("quantity", "answer", "level", "size_class", "statistic", "at_most")
        is_searched = (self.search.method != "fixed", "a search for budgets")
        return {
            **super().conditions,
            "criterion.share": (
                self.criterion.kind == "redistricting",
                'criterion.kind = "redistricting"',
            ),
            **{f"criterion.{name}": is_error for name in of_error},
            **{f"search.{name}": is_searched for name in ("lowest", "highest", "step")},
        }

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings without effect, of a variant too."""
        super().refuse_ineffective(own, refuse)
        product = self.SEARCHED.settings.PRODUCT
        if "preset" in own:
            refuse(f"preset does nothing here; the table {product} names the preset")
        for name, variant in self.variants.items():
            place = ("variants", name) if "variants" in own else (product,)
            change = table_of(own, *place)
            variant.refuse_ineffective(change, refuse_within(".".join(place), refuse))
