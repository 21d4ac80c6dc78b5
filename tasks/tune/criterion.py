"""How well the replicates of a trial meet a criterion."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.checks.accuracy.figures import AccuracyFigures
from spineflow.tasks.topdown.checks.accuracy.quantities import TOTAL_POPULATION
from spineflow.tasks.tune.settings import Criterion


def value_of(figures: AccuracyFigures, criterion: Criterion) -> float:
    """The figure that a criterion is about, of one replicate.

    Raises InputRefused if the data have nothing that it could be computed from.
    """
    if criterion.kind == "redistricting":
        return _share_within(figures)
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
    return value <= criterion.at_most


def described(criterion: Criterion) -> str:
    """The criterion in words."""
    if criterion.kind == "redistricting":
        return (
            f"the largest group's share is within 5 points for {float(criterion.share):.1%} of "
            "the off-spine entities of 500 people or more"
        )
    return (
        f"{criterion.statistic.replace('_', ' ')} of {criterion.quantity} at {criterion.level} "
        f"of at most {criterion.at_most:g}"
    )


def _share_within(figures: AccuracyFigures) -> float:
    """Share of all large off-spine entities, over their levels, that are within 5 points."""
    rows = figures.criterion
    if rows.empty:
        raise InputRefused(
            "The schema has no race and ethnicity; choose a criterion of kind error."
        )
    rows = rows[~rows["on_spine"] & (rows["population"] == TOTAL_POPULATION)]
    entities = rows["entities"].to_numpy()
    if not entities.sum():
        raise InputRefused(
            "The data have no off-spine entity of 500 people or more, which the redistricting "
            "criterion is about; choose a criterion of kind error."
        )
    return float(np.average(rows["share_within"].fillna(0).to_numpy(), weights=entities))
