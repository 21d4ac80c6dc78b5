"""The front page of a search: what was found, and where the time went."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.pages.document import Document, Figure, to_html
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.tune.report import _front
from spineflow.tasks.tune.trials import Trial, TrialOutcome


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.write_manifest({"stages": {"trial 1": {"seconds": 2.0}, "trial 2": {"seconds": 3.0}}})
    return run


def outcome(total: str) -> TrialOutcome:
    trial = Trial("trial", "variant", {"State": Fraction(total) / 2, "Block": Fraction(total) / 2})
    return TrialOutcome(trial, 1.0, 0.1, True)


def test_the_cheapest_variant_is_the_verdict(run: RunDirectory) -> None:
    found = {"aian": outcome("3/2"), "optimized": outcome("1/2")}
    front = _front(run, [*found.values()], found)
    assert front.is_good
    assert front.verdict == "Found: optimized meets the criterion with a total loss of 0.5."
    assert [panel.title for panel in front.panels] == ["What it takes", "Where the time went"]
    (figure,) = front.panels[0].blocks
    assert isinstance(figure, Figure) and ">1.5<" in figure.svg
    assert front.links[0].target == "../release/settings.toml"
    assert "Found: optimized" in to_html(Document("Search", (), front=front))


def test_a_search_that_found_nothing_says_so(run: RunDirectory) -> None:
    front = _front(run, [outcome("1")], {})
    assert not front.is_good and not front.links
    assert front.verdict == "None of 1 trials meets the criterion."
    assert [panel.title for panel in front.panels] == ["Where the time went"]
