"""Small tables of population groups, written out group by group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from spineflow.tasks.detailed_groups.postprocess import MEASURED

N_CELLS = (1, 8, 18, 46)
REGION_TYPES = ("USA", "STATE", "COUNTY", "TRACT", "PLACE", "AIANNH")


def measured_table(groups: list[dict]) -> pa.Table:
    """Measured groups from dictionaries; what is left out is that of a total of 5."""
    plain = {"region_type": "TRACT", "region_id": "1", "iteration_code": "1001", "table": 0}
    plain |= {"total_only": False, "value": [5], "variance": 2.0}
    rows = [plain | group for group in groups]
    columns = {name: [row[name] for row in rows] for name in MEASURED.names}
    arrays = []
    for field in MEASURED:
        array = pa.array(columns[field.name])
        if pa.types.is_dictionary(field.type):
            array = array.cast(pa.string()).dictionary_encode()
        arrays.append(array.cast(field.type))
    return pa.table(arrays, schema=MEASURED)


@pytest.fixture
def measured():
    """Function from a list of dictionaries to a table of measured groups."""
    return measured_table


@pytest.fixture
def random_groups():
    """Function from a seed to measured groups: every iteration in every region once."""

    def build(seed: int, n_regions: int = 4, n_iterations: int = 5) -> pa.Table:
        random = np.random.default_rng(seed)
        rows = []
        for region_type in REGION_TYPES:
            for region in range(n_regions):
                for iteration in range(n_iterations):
                    table = int(random.choice(4, p=[0.7, 0.1, 0.1, 0.1]))
                    rows.append(
                        {
                            "region_type": region_type,
                            "region_id": str(region),
                            "iteration_code": f"{1001 + iteration}",
                            "table": table,
                            "total_only": table == 0 and bool(random.random() < 0.1),
                            "value": random.integers(-9, 20, N_CELLS[table]).tolist(),
                            "variance": float(random.integers(1, 9)),
                        }
                    )
        random.shuffle(rows)
        return measured_table(rows)

    return build
