"""Suppression of 'alone' counts that exceed those of 'alone or in any combination'.

Whoever is in a race group alone is also in it alone or in any combination, but the two counts get
independent noise. Where the released total of the first exceeds that of the second in one
region, the first is suppressed, its sex by age table included. A group whose counterpart is
itself suppressed stays: nothing that is shown contradicts it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from spineflow.tasks.detailed_groups.postprocess.groups import codes_of, mask_of, with_mask


def suppress_alone(groups: pa.Table, counterparts: Mapping[str, str]) -> pa.Table:
    """Mark as suppressed every 'alone' group with a larger total than its counterpart.

    Args:
        groups: columns `COUNTED`; a region's groups of one iteration level all among them.
        counterparts: 'alone' iteration code to the 'alone or in any combination' code of the
            same race group.
    """
    iteration, iteration_names = codes_of(groups, "iteration_code")
    place = {name: code for code, name in enumerate(iteration_names)}
    counterpart = np.array(
        [place.get(counterparts.get(name, ""), -1) for name in iteration_names], dtype=np.int64
    )
    hidden = mask_of(groups, "is_suppressed").copy()
    rows = np.flatnonzero(~hidden)
    if not rows.size:
        return groups
    region = codes_of(groups, "region_type")[0].astype(np.int64)
    region_id, region_names = codes_of(groups, "region_id")
    region = (region * len(region_names) + region_id)[rows]
    total = groups["total"].to_numpy(zero_copy_only=False)[rows].astype(np.int64)
    iteration = iteration[rows].astype(np.int64)
    key = region * len(iteration_names) + iteration
    by_key = np.argsort(key)
    partner = np.where(counterpart[iteration] >= 0, key - iteration + counterpart[iteration], -1)
    where = np.minimum(np.searchsorted(key, partner, sorter=by_key), rows.size - 1)
    match = by_key[where]
    exceeds = (partner >= 0) & (key[match] == partner) & (total > total[match])
    hidden[rows[exceeds]] = True
    return with_mask(groups, "is_suppressed", hidden)
