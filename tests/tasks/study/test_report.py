"""The report of a search: what was found, how accurate it is, and where the time went."""

from __future__ import annotations

import json
import math
import tomllib
from fractions import Fraction

import pandas as pd
import pytest
from spineflow.tasks.pages.document import Document, Figure, Section, Table, to_html
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.study import report
from spineflow.tasks.study.report import (
    _accuracy,
    _front,
    _trials,
    _winner_section,
    rank_outcomes,
    release_settings,
)
from spineflow.tasks.study.search import EXACT, Trial, TrialOutcome, new_trial
from spineflow.tasks.study.settings import Criterion, TuneSettings
from spineflow.tasks.study.trials import replicate_path


def outcome(total: str, mean: float = 1.0) -> TrialOutcome:
    trial = Trial("trial", "variant", {"State": Fraction(total) / 2, "Block": Fraction(total) / 2})
    return TrialOutcome(trial, mean, 0.1, True)


def test_the_cheapest_variant_is_the_verdict(run: RunDirectory) -> None:
    found = {"aian": outcome("3/2"), "optimized": outcome("1/2")}
    best_first = dict(rank_outcomes(Criterion(), found))
    front = _front(run, Criterion(), [*found.values()], best_first)
    assert front.is_good
    assert front.verdict == "Found: optimized meets the criterion with a total loss of 0.5."
    assert [panel.title for panel in front.panels] == [
        "Least loss that meets the criterion",
        "Where the time went",
    ]
    (figure,) = front.panels[0].blocks
    assert isinstance(figure, Figure) and ">1.5<" in figure.svg
    assert front.links[0].target == "../release/settings.toml"
    assert "Found: optimized" in to_html(Document("Search", (), front=front))


def test_the_most_accurate_variant_is_the_verdict_where_losses_are_fixed(run: RunDirectory) -> None:
    criterion = Criterion(kind="error")
    found = {"aian": outcome("1/2", 7.0), "optimized": outcome("3/2", 3.0)}
    best_first = dict(rank_outcomes(criterion, found))
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
        keys = {"universe": "residents", "quantity": "total", "level": "region"}
        keys |= {"mean_absolute_error": value / 2}
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


def test_the_settings_of_the_best_are_released_with_what_was_found_of_all(
    run: RunDirectory, town_search: TuneSettings, found: dict[str, TrialOutcome]
) -> None:
    file = release_settings(run, town_search, found)
    text = file.read_text()
    assert text.startswith("# Settings that a search found; the criterion was that mean absolute")
    budget = tomllib.loads(text)["budget"]["residents"]
    assert Fraction(budget["rho"]) == Fraction(5, 2)
    assert Fraction(budget["geolevels"]["section"]) == Fraction(4, 5)
    assert Fraction(budget["queries"]["section"]["sex * age"]) == Fraction(2, 3)
    variants = pd.read_csv(run.release / "variants.csv").set_index("variant")
    assert variants.index.tolist() == ["sections first", "as it is"]
    assert variants.loc["sections first"].tolist() == [2.5, 4.25, 0.25]
    assert variants.loc["as it is"].tolist() == [4.0, 4.0, 1.0]
    errors = pd.read_csv(run.release / "errors.csv")
    assert errors["variant"].tolist() == ["sections first"] * 2 + ["as it is"] * 2
    assert errors["mean_absolute_error"].tolist() == [2.125, 4.25, 2.0, 4.0]
    assert errors["mean_absolute_error, s.e."].tolist() == [0.125, 0.25, 0.5, 1.0]
    assert errors["median"].tolist()[::2] == [1.5, 1.5] and errors["median"].isna().sum() == 2


def test_what_was_found_is_told_by_variant_level_and_changed_query(
    town_search: TuneSettings, found: dict[str, TrialOutcome]
) -> None:
    variants, levels, changed = tables(_winner_section(town_search, found))
    assert [(row[0], row[1], *row[3:]) for row in variants.rows] == [
        ("as it is", 4.0, 4.0, "1"),
        ("sections first", 2.5, 4.25, "0.25"),
    ]
    first, second = (float(row[2]) for row in variants.rows)
    # By the bound rho + 2 sqrt(rho log(1 / delta)), which the tight conversion is below.
    assert 4 < second < first < 4 + 2 * math.sqrt(4 * 10 * math.log(10))
    assert levels.rows[:3] == (
        ("as it is", "country", "1", 0.25),
        ("as it is", "region", "1", 0.25),
        ("as it is", "section", "2", 0.5),
    )
    assert levels.rows[3:] == (
        ("sections first", "country", "1/4", 0.1),
        ("sections first", "region", "1/4", 0.1),
        ("sections first", "section", "2", 0.8),
    )
    assert changed.rows == (("sections first", "sex * age", 2.0),)
    only = {"as it is": found["as it is"]}
    assert len(tables(_winner_section(town_search, only))) == 2
    assert not tables(_winner_section(town_search, {}))


def test_accuracy_stands_with_its_standard_error_for_every_variant(
    run: RunDirectory, town_search: TuneSettings, found: dict[str, TrialOutcome]
) -> None:
    beside, *all_statistics = tables(_accuracy(run, town_search, found))
    assert beside.headers == ("quantity", "level", "as it is", "sections first")
    assert beside.rows == (
        ("total", "region", "2 ± 0.5", "2.125 ± 0.12"),
        ("total", "section", "4 ± 1", "4.25 ± 0.25"),
    )
    assert [table.headers for table in all_statistics] == [
        ("quantity", "level", "mean absolute error", "median"),
    ] * 2
    assert all_statistics[0].rows == (
        ("total", "region", 2.0, 1.5),
        ("total", "section", 4.0, "–"),
    )
    assert _accuracy(run, town_search, {}) is None


def test_every_trial_is_told_and_drawn_in_the_order_of_its_total(
    town_search: TuneSettings,
    found: dict[str, TrialOutcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = {"country": Fraction(1, 3), "region": EXACT, "section": Fraction(1)}
    single = TrialOutcome(Trial("t", "as it is", losses), 7.0, math.nan, False)
    outcomes = [*found.values(), single]
    (table,) = tables(_trials(town_search, outcomes))
    assert table.rows == (
        ("as it is", "country 1; region 1; section 2", 4.0, "1", "yes"),
        ("sections first", "country 0.25; region 0.25; section 2", 4.25, "0.25", "yes"),
        ("as it is", "country 0.3333; region exact; section 1", 7.0, "–", "no"),
    )
    lines = {}
    monkeypatch.setattr(report, "line_chart", lambda drawn, **_: str(lines.update(drawn)))
    figure = _trials(town_search, outcomes).blocks[0]
    assert isinstance(figure, Figure)
    assert lines == {
        "sections first": ([2.5], [4.25]),
        "as it is": ([4.0, float(Fraction(4, 3) + EXACT)], [4.0, 7.0]),
    }
    fixed = town_search.model_copy(
        update={"search": town_search.search.model_copy(update={"method": "fixed"})}
    )
    assert len(_trials(fixed, outcomes).blocks) == 1
