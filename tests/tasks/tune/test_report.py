"""The report of a search: what was found, how accurate it is, and where the time went."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from spineflow.tasks.pages.document import Document, Figure, Section, Table, to_html
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.tune.report import (
    _front,
    ranked,
)
from spineflow.tasks.tune.settings import Criterion, TuneSettings
from spineflow.tasks.tune.trials import Trial, TrialOutcome, new_trial, replicate_path


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


def tables(section: Section | None) -> list[Table]:
    assert section is not None
    return [block for block in section.blocks if isinstance(block, Table)]


def tried(
    run: RunDirectory,
    settings: TuneSettings,
    variant: str,
    losses: tuple[str, str, str],
    values: tuple[float, float],
    weights: dict[str, Fraction] | None = None,
) -> TrialOutcome:
    """A trial of two replicates with errors of these values, of sections; those of regions are
    half as large, and the median is known of these alone."""
    levels = ("country", "region", "section")
    own = dict(zip(levels, map(Fraction, losses), strict=True))
    trial = new_trial(run, settings, variant, own, weights or {})
    for seed, value in enumerate(values, start=1):
        keys = {"quantity": "total", "level": "region", "mean_absolute_error": value / 2}
        rows = [keys | {"median": 1.5}]
        rows.append(keys | {"level": "section", "mean_absolute_error": value, "median": None})
        text = json.dumps({"value": value, "errors": rows})
        replicate_path(run, trial.name, seed).write_text(text)
    mean = sum(values) / 2
    # The standard error of two values is half of what lies between them.
    return TrialOutcome(trial, mean, abs(values[0] - values[1]) / 2, mean <= 5)


@pytest.fixture
def found(run: RunDirectory, town_search: TuneSettings) -> dict[str, TrialOutcome]:
    doubled = {"sex * age": Fraction(2), "total": Fraction(1)}
    return {
        "as it is": tried(run, town_search, "as it is", ("1", "1", "2"), (3.0, 5.0)),
        "sections first": tried(
            run, town_search, "sections first", ("1/4", "1/4", "2"), (4.0, 4.5), doubled
        ),
    }
