"""Figures of accuracy beside sums worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.census.counting import People
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.evidence.ingest import Places, Population, PublishedTable, RequestedTable
from spineflow.tasks.evidence.methods.publish import accuracy

SCHEMA = Schema("persons", ("sex",), (("f", "m"),))
COUNTS = np.array([[1, 0], [5, 120], [0, 0]])
"""Counts of three blocks, of which the first two are a tract."""


@pytest.fixture(scope="module")
def population():
    area, cell = (np.repeat(at.ravel(), COUNTS.ravel()) for at in np.indices(COUNTS.shape))
    people = People(area, cell, np.arange(len(area)))
    tract = np.array([0, 0, 1])
    places = (
        Places("tract", tract, ("0", "1"), None, np.full(2, -1)),
        Places("block", np.arange(3), ("0", "1", "2"), "tract", tract),
    )
    query, whole = marginal_query(SCHEMA, "sex"), np.ones(2, dtype=bool)
    tables = [RequestedTable("SEX", query, whole, own) for own in places]
    nobody = np.zeros(len(area), dtype=bool)
    return Population(people, tables, [places[0]], cell, nobody)


def figures(population, blocks, tracts=((6, 120), (0, 0))):
    published = {
        ("SEX", "block"): PublishedTable.exactly(np.array(blocks, dtype=float)),
        ("SEX", "tract"): PublishedTable.exactly(np.array(tracts, dtype=float)),
    }
    return {row[:3]: row[3] for row in accuracy(population, published, [("SEX", "tract")])}


def test_true_tables_have_no_errors(population):
    found = figures(population, COUNTS)
    assert found["block", "mean absolute error", "all"] == 0
    assert found["block", "false zeros", "all"] == found["block", "false positives", "all"] == 0
    assert found["tract", "largest gap between areas and their sum", "all"] == 0
    assert found["block", "counts", "all"] == 6
    assert found["block", "totals off by more than 5 %", "100 and over"] == 0


def test_errors_by_class_of_the_true_count(population):
    found = figures(population, [[0, 3], [4, 130], [0, 0]])
    assert found["block", "mean absolute error", "all"] == pytest.approx((1 + 3 + 1 + 10) / 6)
    assert found["block", "mean absolute error", "1-2"] == 1
    assert found["block", "mean error", "100 and over"] == 10
    assert found["block", "false zeros", "all"] == pytest.approx(1 / 3)
    assert found["block", "false positives", "all"] == pytest.approx(1 / 3)
    # Blocks add up to 4 and 133 where the tract has 6 and 120.
    assert found["tract", "largest gap between areas and their sum", "all"] == 13
    # Totals of 1 and 125 became 3 and 134.
    assert found["block", "totals off by more than 5 %", "1-2"] == 1
    assert found["block", "totals off by more than 5 %", "100 and over"] == 1


def test_withheld_counts_are_counted_by_themselves(population):
    found = figures(population, [[np.nan, 0], [5, 120], [0, 0]])
    assert found["block", "mean absolute error", "all"] == 0
    assert found["block", "withheld", "all"] == pytest.approx(1 / 6)
    assert found["block", "withheld", "1-2"] == 1
    assert ("block", "mean absolute error", "1-2") not in found
    assert found["block", "totals off by more than 5 %", "1-2"] == 1
