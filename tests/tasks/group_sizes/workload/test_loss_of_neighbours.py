"""The loss of every neighbour of small inputs, over all levels of a plan, against its charge."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.census.counting import RawColumns
from spineflow.tasks.group_sizes.ingest.read import SizeRange, count_sizes
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import VECTOR_OF, Plan
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally

from tests.tasks.group_sizes.plans import make_plan
from tests.tasks.group_sizes.workload.test_mechanisms import Dataset, datasets, joined, moved

REGIONS = np.array(["a", "b"])
HIERARCHY = RegionHierarchy(
    (
        AreaLevel("nation", np.array(["n"]), np.array([-1])),
        AreaLevel("region", REGIONS, np.array([0, 0])),
    )
)
LARGEST = 4


def loss(plan: Plan, changes: list[np.ndarray]) -> Fraction:
    """What the changes of all levels' vectors cost under the plan's noise."""
    total = Fraction(0)
    for level, change in zip(plan.levels, changes, strict=True):
        if level.noise is not None and plan.rho is not None:
            total += int((change**2).sum()) / (2 * level.noise.parameter)
        elif level.noise is not None:
            total += int(np.abs(change).sum()) / level.noise.parameter
    return total


@pytest.fixture(scope="module")
def levels_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Dataset], list[np.ndarray]]:
    """Function from a table to the counts of its sizes by level, read as a run reads them."""
    path = tmp_path_factory.mktemp("tables") / "sizes.csv"

    @cache
    def read(dataset: Dataset) -> list[np.ndarray]:
        rows = "".join(f"{REGIONS[region]},{size},1\n" for region, size in dataset)
        path.write_text(f"region,size,count\n{rows}", encoding="utf-8")
        file, sizes = InputFile("sizes", str(path), path.name), SizeRange(0, LARGEST)
        counts = count_sizes(file, REGIONS, sizes, ValueTally(), RawColumns((), len(REGIONS)))
        return HIERARCHY.sum_up(counts.toarray())

    return read


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", VECTOR_OF)
@pytest.mark.parametrize("bounded", [False, True], ids=["joins or leaves", "moves"])
@pytest.mark.parametrize("quantity", [1, 2])
def test_the_charge_is_the_largest_loss_of_a_neighbour(
    mechanism: str, bounded: bool, quantity: int, levels_of: Callable[[Dataset], list[np.ndarray]]
) -> None:
    """Tables of up to three groups."""

    @cache
    def vectors(dataset: Dataset) -> list[np.ndarray]:
        return [true_vector(VECTOR_OF[mechanism], level) for level in levels_of(dataset)]

    plans = [
        make_plan(
            names=HIERARCHY.names,
            n_regions=[1, 2],
            sizes=(0, LARGEST),
            groups=3,
            shares=[Fraction(1, 3), Fraction(2, 3)],
            mechanism=mechanism,
            bounded=bounded,
            quantity=quantity,
            **{"epsilon": None, "rho": None} | {kind: Fraction(3, 2)},
        )
        for kind in ("epsilon", "rho")
    ]
    neighbours = moved if bounded else joined
    most = [Fraction(0), Fraction(0)]
    for n_groups, number in product((1, 2, 3), range(2)):
        for one in datasets(n_groups, 2, LARGEST + 1):
            for two in neighbours(one, LARGEST + 1, quantity):
                pairs = zip(vectors(one), vectors(tuple(sorted(two))), strict=True)
                found = loss(plans[number], [before - after for before, after in pairs])
                most[number] = max(most[number], found)
    assert most == [plan.loss for plan in plans]
