"""Pages on the input's rules: public ones without counts, confidential ones with counts only."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.counting import RawColumns
from spineflow.tasks.group_sizes.ingest.read import SizeRange, count_sizes
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.tables.findings import write_input_outcomes
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally
from spineflow.validation.rules import LARGEST_COUNT, TRIP_RULES, size_rules

from tests.census_inputs import check_inputs, generate_texts

AGE, RACE = "842739", "97351"
"""Values of two records that no rule allows."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run whose input broke two rules."""
    folder = tmp_path_factory.mktemp("docs")
    files = generate_texts(folder, "delimited", persons=600, seed=2)
    persons = pd.read_csv(files.persons, sep="|", dtype=str, keep_default_na=False)
    persons.loc[3:6, "QAGE"] = AGE
    persons.loc[8, "CENRACE"] = RACE
    persons.to_csv(files.persons, sep="|", index=False)
    check = check_inputs(persons=files.persons, units=files.units, geography=files.geography)
    run = RunDirectory(folder / "run")
    write_input_outcomes(run, check, with_counts=False, stamp=None)
    return run


def public_pages(run: RunDirectory) -> dict[str, str]:
    return {
        path.name: html.unescape(path.read_text(encoding="utf-8"))
        for path in (run.checks / "data_docs").iterdir()
    }


def test_public_pages_hold_no_count_and_no_value(run: RunDirectory) -> None:
    for page in public_pages(run).values():
        text = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
        assert AGE not in text
        assert RACE not in text
        assert "rows that break" not in text
        # The digits that remain are those of the rules: of codes, ages, widths and rule totals.
        assert not re.search(r"\b600\b", text)


def test_counts_are_on_the_confidential_page_and_values_nowhere(run: RunDirectory) -> None:
    text = (run.confidential / "data_docs" / "index.html").read_text(encoding="utf-8")
    assert re.search(r"QAGE must be a whole number.*?<td class=\"number\">4</td>", text)
    assert re.search(r"CENRACE must be a code.*?<td class=\"number\">1</td>", text)
    assert AGE not in text
    assert RACE not in text


SIZES = size_rules(1, 3)[1]
WHOLE, NOT_NEGATIVE = TRIP_RULES.of("counts", table="trips", column="n", largest=LARGEST_COUNT)


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
    tally, files = ValueTally(), {rule.table: (InputFile(rule.table, "", "t.csv"),)}
    tally.look_at(rule, dict.fromkeys(good, 1))
    assert [outcome.passed for outcome in tally.outcomes(tally.rules)] == [True]
    assert tally.are_met(tally.rules)
    tally.look_at(rule, dict.fromkeys(bad, 2))
    outcomes = tally.outcomes(tally.rules)
    assert [outcome.passed for outcome in outcomes] == [False]
    assert not any(rule.is_met_by(value) for value in bad)
    (finding,) = tally.findings(tally.rules, files, outcomes)
    assert finding.count == 2


def test_a_rule_on_no_values_holds() -> None:
    tally = ValueTally()
    tally.look_at(SIZES, {})
    assert [outcome.passed for outcome in tally.outcomes(tally.rules)] == [True]


def test_outcomes_are_booleans_and_words_of_the_rule(tmp_path: Path) -> None:
    table = pa.table({"region": ["01", "01"], "size": [2, 987654], "count": [7, 8]})
    pq.write_table(table, tmp_path / "t.parquet")
    tally, file = ValueTally(), InputFile("sizes", str(tmp_path / "t.parquet"), "t.parquet")
    count_sizes(file, np.array(["01"]), SizeRange(1, 3), tally, RawColumns((), 1))
    outcomes = {outcome.name: outcome for outcome in tally.outcomes(tally.rules)}
    assert {name for name, outcome in outcomes.items() if not outcome.passed} == {"size_is_valid"}
    assert "987654" not in repr(outcomes)
    assert "987654" not in repr(tally.findings(tally.rules, {"sizes": (file,)}))
