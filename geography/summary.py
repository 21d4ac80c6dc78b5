"""Report of a spine: sizes, fan-outs, off-spine distances and predicted standard deviations.

All of it is public: it is computed from the geography, the shares and declared invariants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .categories import Category
from .levels import Spine
from .optimize import off_spine_distances
from .variance import entity_variances, measurement_precision, total_covariances

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, eq=False)
class SpineSummary:
    """Frames for the report of one universe."""

    geounits: pd.DataFrame
    """spine, geolevel, geounits, aian_geounits, bypassed, measured, distinct_shares."""
    fan_out: pd.DataFrame
    """spine, geolevel (of the parent), n_children, geounits: how many parents have so many."""
    distances: pd.DataFrame
    """spine, category, entities, mean, quantiles ("q50", ...), max of the off-spine distance."""
    standard_deviations: pd.DataFrame
    """spine, category, entities, mean, quantiles, max of the predicted standard deviation of an
    entity's total."""


def summarise_spines(
    spines: Mapping[str, Spine],
    categories: Sequence[Category],
    *,
    is_pure: bool,
    privacy_loss: float = 1.0,
    total_shares: Mapping[str, float] | None = None,
) -> SpineSummary:
    """Compare spines of one geography, for example {"aian": before, "optimized": after}.

    Statistics run over the targeted entities of each category; the area outside all entities is
    left out.

    Args:
        privacy_loss: rho, or epsilon if `is_pure`.
        total_shares: share that measures the total, by geolevel; see `measurement_precision`.
    """
    distances, deviations = [], []
    for label, spine in spines.items():
        precision = measurement_precision(
            spine, is_pure=is_pure, privacy_loss=privacy_loss, total_shares=total_shares
        )
        totals = total_covariances(spine, precision)
        for category in categories:
            targeted = category.targeted()
            if not targeted.any():
                continue
            head = {"spine": label, "category": category.name, "entities": int(targeted.sum())}
            distance = off_spine_distances(spine, category)[targeted]
            distances.append(head | statistics(distance))
            deviation = np.sqrt(entity_variances(spine, category, totals)[targeted])
            deviations.append(head | statistics(deviation))
    return SpineSummary(
        geounits=_labelled({label: geounit_counts(spine) for label, spine in spines.items()}),
        fan_out=_labelled({label: fan_out(spine) for label, spine in spines.items()}),
        distances=pd.DataFrame(distances),
        standard_deviations=pd.DataFrame(deviations),
    )


def fan_out(spine: Spine) -> pd.DataFrame:
    """geolevel, n_children, geounits: how many geounits of a geolevel have so many children."""
    frames = []
    for level in spine.geolevels[:-1]:
        count = np.bincount(np.diff(spine.children(level.name)))
        n_children = np.flatnonzero(count)
        found = {"geolevel": level.name, "n_children": n_children, "geounits": count[n_children]}
        frames.append(pd.DataFrame(found))
    return pd.concat(frames, ignore_index=True)


def geounit_counts(spine: Spine) -> pd.DataFrame:
    """geolevel, geounits, aian_geounits, bypassed, measured, distinct_shares; root first."""
    return pd.DataFrame(
        {
            "geolevel": level.name,
            "geounits": len(level),
            "aian_geounits": int(level.is_aian.sum()),
            "bypassed": int(level.bypassed.sum()),
            "measured": int((~level.bypassed).sum()),
            "distinct_shares": len(level.plb_shares),
        }
        for level in spine.geolevels
    )


def _labelled(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, names=["spine"]).reset_index("spine").reset_index(drop=True)


def statistics(values: np.ndarray) -> dict[str, float]:
    """Mean, quantiles and maximum of some values, by the names of a summary's columns."""
    quantiles = np.quantile(values, QUANTILES)
    named = {f"q{round(100 * q)}": float(v) for q, v in zip(QUANTILES, quantiles, strict=True)}
    return {"mean": float(values.mean()), **named, "max": float(values.max())}
