"""Rules on the input without Great Expectations, which takes seconds; one test asks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from spineflow.validation.outcome import Outcome


@pytest.fixture(scope="session")
def outcomes_by_own_code() -> Callable[..., tuple[Outcome, ...]]:
    """Stand-in for `run_suites`."""

    def outcomes(rules, values) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(
                rule.name,
                rule.suite,
                all(rule.is_met_by(value) for value in values[rule.suite][rule.evidence]),
            )
            for rule in rules
        )

    return outcomes


@pytest.fixture(autouse=True)
def quick_rules(request, monkeypatch: pytest.MonkeyPatch, outcomes_by_own_code) -> None:
    if "great_expectations" not in request.node.name:
        monkeypatch.setattr("spineflow.tasks.tables.value_tallies.run_suites", outcomes_by_own_code)
