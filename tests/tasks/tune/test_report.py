"""The front page of a search: what was found, and where the time went."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.pages.document import Document, Figure, to_html
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.tune.report import _front, ranked
from spineflow.tasks.tune.settings import Criterion
from spineflow.tasks.tune.trials import Trial, TrialOutcome


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.write_manifest({"stages": {"trial 1": {"seconds": 2.0}, "trial 2": {"seconds": 3.0}}})
    return run


def outcome(total: str, mean: float = 1.0) -> TrialOutcome:
    trial = Trial("trial", "variant", {"State": Fraction(total) / 2, "Block": Fraction(total) / 2})
    return TrialOutcome(trial, mean, 0.1, True)


def test_the_cheapest_variant_is_the_verdict(run: RunDirectory) -> None:
    found = {"aian": outcome("3/2"), "optimized": outcome("1/2")}
    best_first = dict(ranked(Criterion(), found))
    front = _front(run, Criterion(), [*found.values()], best_first)
    assert front.is_good
    assert front.verdict == "Found: optimized meets the criterion with a total loss of 0.5."
    assert [panel.title for panel in front.panels] == ["What it takes", "Where the time went"]
    (figure,) = front.panels[0].blocks
    assert isinstance(figure, Figure) and ">1.5<" in figure.svg
    assert front.links[0].target == "../release/settings.toml"
    assert "Found: optimized" in to_html(Document("Search", (), front=front))


def test_the_most_accurate_variant_is_the_verdict_where_losses_are_fixed(run: RunDirectory) -> None:
    criterion = Criterion(kind="error")
    found = {"aian": outcome("1/2", 7.0), "optimized": outcome("3/2", 3.0)}
    best_first = dict(ranked(criterion, found))
    front = _front(run, criterion, [*found.values()], best_first)
    assert front.verdict == "Found: optimized, whose criterion is 3 at a loss of 1.5."
    assert [panel.title for panel in front.panels] == ["The criterion", "Where the time went"]
    (figure,) = front.panels[0].blocks
    assert isinstance(figure, Figure) and ">7<" in figure.svg and ">0.5<" not in figure.svg


def test_a_search_that_found_nothing_says_so(run: RunDirectory) -> None:
    front = _front(run, Criterion(), [outcome("1")], {})
    assert not front.is_good and not front.links
    assert front.verdict == "None of 1 trials meets the criterion."
    assert [panel.title for panel in front.panels] == ["Where the time went"]
