"""Great Expectations judges the values of a column by itself, whatever our own code counted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.group_sizes.ingest.tables import count_sizes
from spineflow.tasks.tables.findings import RuleTally
from spineflow.validation.group_sizes.input_rules import size_rules
from spineflow.validation.trips.input_rules import LARGEST_COUNT, RULES

SIZES = size_rules(1, 3)[1]
WHOLE, NOT_NEGATIVE = RULES.of("counts", table="trips", column="n", largest=LARGEST_COUNT)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (SIZES, [1, 3], [0]),
        (SIZES, [1, 2], [4]),
        (SIZES, [2], [None]),
        (WHOLE, [-4, 0, 7], [None]),
        (WHOLE, [5], [(1 << 40) + 1]),
        (NOT_NEGATIVE, [None, 0, 7], [-1]),
    ],
)
def test_values_decide_and_not_what_was_counted(rule, good, bad) -> None:
    tally = RuleTally({rule.table: "t.csv"})
    tally.add(rule, 0)
    tally.see(rule, good)
    assert [outcome.passed for outcome in tally.outcomes()] == [True]
    assert all(rule.is_met_by(value) for value in good)
    tally.see(rule, bad)
    outcomes = tally.outcomes()
    assert [outcome.passed for outcome in outcomes] == [False]
    assert not any(rule.is_met_by(value) for value in bad)
    (finding,) = tally.findings(outcomes)
    assert finding.count is None


def test_a_rule_on_no_values_holds() -> None:
    tally = RuleTally({"sizes": "t.csv"})
    tally.add(SIZES, 0)
    tally.see(SIZES, [])
    assert [outcome.passed for outcome in tally.outcomes()] == [True]


def test_outcomes_are_booleans_and_words_of_the_rule(tmp_path: Path) -> None:
    table = pa.table({"region": ["01", "01"], "size": [2, 987654], "count": [7, 8]})
    pq.write_table(table, tmp_path / "t.parquet")
    tally = RuleTally({"sizes": "t.parquet"})
    count_sizes(str(tmp_path / "t.parquet"), "t.parquet", ["01"], (1, 3), tally)
    outcomes = {outcome.name: outcome for outcome in tally.outcomes()}
    assert {name for name, outcome in outcomes.items() if not outcome.passed} == {"size_is_valid"}
    assert "987654" not in repr(outcomes)
    assert "987654" not in repr(tally.findings(outcomes.values()))
