"""What households are counted by, as the declared recodes tell it on columns made from members."""

from __future__ import annotations

import numpy as np
from spineflow.tasks.census.households import Members, unit_columns
from spineflow.tasks.population.workload.household_types import DERIVED, universe
from spineflow.tasks.tables.columns import CodedColumn

LARGEST = {"P18": 99, "P60": 99, "P65": 99, "P75": 99}
"""What columns of two digits can say."""


def household_levels(members: Members, n_units: int) -> np.ndarray:
    """Level of each household in the attributes of `DERIVED` `(6, n_units)`, -1 for none."""
    columns = {}
    for name, values in unit_columns(members, n_units).items():
        distinct, codes = np.unique(
            np.minimum(values, LARGEST.get(name, values)), return_inverse=True
        )
        columns[name] = CodedColumn(codes.reshape(-1), tuple(map(str, distinct.tolist())))
    declared = universe()
    recodes = [declared.recodes[declared.schema.attributes[axis]] for axis in DERIVED]
    return np.stack([recode.evaluate(columns, n_units) for recode in recodes]).astype(np.int64)
