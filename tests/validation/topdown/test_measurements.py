"""Conservation checks against dense histograms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.declaration import no_counts
from spineflow.validation.topdown.measurements import check_children_add_to_parents
from spineflow.validation.topdown.spine import SpineLevel

N_CELLS = 3


def level(name: str, parent: list[int]) -> SpineLevel:
    n = len(parent)
    return SpineLevel(
        name=name,
        geocode=pa.array([f"{i:02d}" for i in range(n)], pa.string()),
        parent=np.array(parent, dtype=np.int64),
        shares=(Fraction(1),),
        share_code=np.zeros(n, dtype=np.int32),
        bypassed=np.zeros(n, dtype=bool),
        n_blocks=np.ones(n, dtype=np.int64),
    )


@settings(deadline=None, max_examples=30)
@given(
    parent=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    seed=st.integers(0, 2**32 - 1),
    n_changes=st.integers(0, 3),
)
def test_every_cell_that_differs_is_one_failure(parent, seed, n_changes):
    generator = np.random.default_rng(seed)
    children = generator.integers(0, 3, (len(parent), N_CELLS))
    parents = np.zeros((4, N_CELLS), dtype=np.int64)
    np.add.at(parents, parent, children)
    for _ in range(n_changes):
        parents[generator.integers(0, 4), generator.integers(0, N_CELLS)] += 1
    sums = np.zeros_like(parents)
    np.add.at(sums, parent, children)
    failures = Failures()
    check_children_add_to_parents(
        level("State", [0] * 4), csr_array(parents), level("County", parent), csr_array(children),
        failures,
    )  # fmt: skip
    assert failures.count == (sums != parents).sum()


def test_failure_names_geounit_cell_and_difference():
    failures = Failures()
    parents = csr_array(np.array([[0, 0, 0], [0, 5, 0]]))
    check_children_add_to_parents(
        level("State", [0, 0]), parents, level("County", [0, 1]), no_counts(2, N_CELLS), failures
    )
    assert failures.texts == ["in cell 1 of State 01 the children's sum is off by -5"]
