"""How well the replicates of a trial meet a criterion."""

from __future__ import annotations

from ..products.searched import Figures
from ..runs.errors import InputRefused
from .settings import Criterion


def value_of(figures: Figures, criterion: Criterion) -> float:
    """The figure that a criterion is about, of one replicate.

    Raises InputRefused if the data have nothing that it could be computed from.
    """
    if criterion.kind != "error":
        return figures.named(criterion.kind)
    errors = figures.errors
    keys = ("universe", "quantity", "answer", "level", "size_class")
    if criterion.statistic not in errors.columns:
        raise InputRefused(
            f"criterion.statistic: there is no {criterion.statistic!r} in an accuracy report; "
            "there is for example 'mean_absolute_error'."
        )
    for key in keys:
        known = list(dict.fromkeys(errors[key]))
        errors = errors[errors[key] == getattr(criterion, key)]
        if errors.empty:
            raise InputRefused(
                f"criterion.{key}: the accuracy report has no {getattr(criterion, key)!r} here; "
                f"there are {', '.join(known)}."
            )
    return float(errors[criterion.statistic].iloc[0])


def is_met(value: float, criterion: Criterion) -> bool:
    """Whether the mean over replicates is good enough."""
    if criterion.kind == "redistricting":
        return value >= float(criterion.share)
    return criterion.at_most is None or value <= criterion.at_most


def is_better(value: float, other: float, criterion: Criterion) -> bool:
    """Whether one value of the criterion is better than another."""
    return value > other if criterion.kind == "redistricting" else value < other


def described(criterion: Criterion) -> str:
    """The criterion in words."""
    if criterion.kind == "redistricting":
        return (
            f"the largest group's share is within 5 points for {float(criterion.share):.1%} of "
            "the targeted entities of 500 people or more"
        )
    error = f"{criterion.statistic.replace('_', ' ')} of {criterion.quantity} at {criterion.level}"
    if criterion.at_most is None:
        return f"{error} is the least of all variants"
    return f"{error} is at most {criterion.at_most:g}"
