"""Suppression of small noisy counts, with the threshold that a probability implies.

A sub-state group that received only a total is released if its noisy count is above the
threshold T, the smallest k for which a group of nobody would have a noisy count of at most k with
the given probability (equation 12 of [SafeTabP2025]). Groups with a sex by age table, groups
that are measured by a total only, and the nation and the states are never suppressed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import inverse_cdf
from ..workload.regions import COARSE, REGION_TYPES
from .groups import counts_of, mask_of, with_mask


def threshold_of(
    region_type: str, noise: IntegerDistribution | None, zero_suppression_chance: Fraction | None
) -> int | None:
    """The largest noisy count of a region type's groups that is suppressed; None where none is: for
    the nation and states, or a chance of 0 or none.

    `noise` is that of the second stage, None if there is no noise; counts of 0 and below are
    then suppressed. Raises ValueError for a chance outside [0, 1).

    >>> threshold_of("TRACT", IntegerDistribution(Fraction("0.0001"), 2), Fraction("0.9999"))
    263
    """
    if not zero_suppression_chance or REGION_TYPES[region_type].granularity != COARSE:
        return None
    return 0 if noise is None else inverse_cdf(noise, zero_suppression_chance)


def suppress(measured: pa.Table, threshold: int | None) -> pa.Table:
    """Mark the groups whose total alone was measured in the second stage and is not above T.

    `measured` has the columns `MEASURED`, of groups at one population group level; the result has
    `SCREENED`, in the same order.
    """
    is_suppressed = np.zeros(measured.num_rows, dtype=bool)
    if threshold is not None and measured.num_rows:
        counts, offsets = counts_of(measured)
        is_total = measured["table"].to_numpy() == 0
        is_total &= ~mask_of(measured, "total_only")
        is_suppressed = is_total & (counts[offsets[:-1]] <= threshold)
    screened = with_mask(measured, "is_suppressed", is_suppressed)
    return screened.append_column("measured_at", measured["region_type"])
