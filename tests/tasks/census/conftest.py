"""A small county whose tables tests change, and what is read of it as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.tables import value_tallies
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.validation.outcome import Outcome
from spineflow.validation.rules import count_violations

from tests.census_inputs import check_inputs


def assert_same(result, expected, *, further: bool = True) -> None:
    """Same geography, invariants, totals and histograms."""
    columns = list(expected.geography) if further else list(expected.geography)[:-1]
    pd.testing.assert_frame_equal(result.geography[columns], expected.geography[columns])
    pd.testing.assert_frame_equal(result.public, expected.public)
    assert result.totals == expected.totals
    for universe, histogram in expected.histograms.items():
        assert (result.histograms[universe] != histogram).nnz == 0


@dataclass
class Tables:
    """The three tables of a county as frames, and the folder that they are written to."""

    directory: Path
    persons: pd.DataFrame
    units: pd.DataFrame
    geography: pd.DataFrame

    def write(self) -> dict[str, Path]:
        paths = {
            "persons": self.directory / "persons.parquet",
            "units": self.directory / "units.parquet",
            "geography": self.directory / "grfc.txt",
        }
        self.persons.to_parquet(paths["persons"], index=False)
        self.units.to_parquet(paths["units"], index=False)
        self.geography.to_csv(paths["geography"], sep="|", index=False)
        return paths


@pytest.fixture(scope="module")
def county(tmp_path_factory):
    return generate_county(tmp_path_factory.mktemp("county"), persons=900, seed=1)


@pytest.fixture(scope="module")
def expected(county):
    return check_inputs(
        persons=county.persons, units=county.units, geography=county.geography
    ).accepted()


@pytest.fixture
def tables(county, tmp_path):
    return Tables(
        tmp_path,
        pd.read_parquet(county.persons),
        pd.read_parquet(county.units),
        pd.read_csv(county.geography, sep="|", dtype=str),
    )


@pytest.fixture
def rules_only(monkeypatch):
    """Outcomes by the rules themselves, which is faster than by Great Expectations."""

    def judge(rules, suites):
        return tuple(
            Outcome(rule.name, rule.suite, count_violations(rule, suites) == 0) for rule in rules
        )

    monkeypatch.setattr(value_tallies, "run_suites", judge)
