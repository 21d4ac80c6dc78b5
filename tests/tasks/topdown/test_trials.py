"""Trials: what a search compares, on the same entities whatever spine and estimator."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.running import PRESETS
from spineflow.flows.tune import TopdownTuneSettings
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import ESTIMATORS
from spineflow.tasks.topdown.trials import TRIALS
from spineflow.tasks.topdown.workload.strategies import STRATEGIES, strategy_shares

SETTINGS = """\
[input]
persons = "{county}/persons.parquet"
units = "{county}/units.parquet"
geography = "{county}/grfc.txt"
confidential = false
[privacy]
dataset = "county"
[topdown]
preset = "pl94_2020_us"
"""


def settings_of(folder: Path, county: Path, further: str = "") -> TopdownTuneSettings:
    file = folder / "tune.toml"
    file.write_text(SETTINGS.format(county=county) + further)
    return load_settings(TopdownTuneSettings, file, presets=PRESETS)


def test_choices_cross_estimators_bypass_and_strategies(tmp_path: Path, county: Path) -> None:
    search = 'estimators = ["topdown", "block_by_block"]\nbypass = [true, false]\n'
    search += 'strategies = ["own", "uniform", "inverse_size_squared"]\n'
    text = f"[variants.a]\n[variants.b]\ngeography = {{ spine = 'aian' }}\n[search]\n{search}"
    settings = settings_of(tmp_path, county, text)
    assert len(settings.choices) == 2 * 2 * 2 * 3
    chosen = settings.choices["b, block by block, bypass off, inverse size squared"]
    assert (chosen.run.estimator, chosen.geography.bypass) == ("block_by_block", False)
    assert chosen.geography.spine == "aian"
    shares = chosen.budget["persons"].queries["Block"]
    assert sum(shares.values()) == 1
    assert shares["hispanic"] / shares["cenrace"] == Fraction(63**2, 2**2)
    own = settings.choices["a, topdown, bypass on, own"]
    assert own.budget == settings.variants["a"].budget


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_go_by_the_number_of_answers(
    strategy: str, county: Path, tmp_path: Path
) -> None:
    schema = settings_of(tmp_path, county).variants["as set"].schema_of("persons")
    shares = strategy_shares(schema, ["total", "hispanic", "hhgq * hispanic"], strategy)
    power = STRATEGIES[strategy]
    assert sum(shares.values()) == 1
    assert shares["hispanic"] / shares["total"] == Fraction(2) ** power
    assert shares["hhgq * hispanic"] / shares["hispanic"] == Fraction(8) ** power


def test_an_unknown_choice_is_refused(tmp_path: Path, county: Path) -> None:
    from spineflow.tasks.runs.errors import InputRefused

    with pytest.raises(InputRefused, match="'best'"):
        settings_of(tmp_path, county, '[search]\nstrategies = ["best"]\n')


@pytest.mark.slow
def test_every_choice_is_judged_on_the_same_entities(tmp_path: Path, county: Path) -> None:
    """All estimators, bypass on and off, and two spines; block by block among them."""
    text = "[variants.optimized]\n[variants.conventional]\ngeography = { spine = 'conventional' }\n"
    text += f"[search]\nestimators = {list(ESTIMATORS)}\nbypass = [true, false]\n"
    settings = settings_of(tmp_path, county, text)
    dataset, entities, values = tmp_path / "dataset", {}, {}
    for number, (name, choice) in enumerate(settings.choices.items()):
        losses = TRIALS.losses(choice, "persons")
        doubled = {geolevel: 2 * loss for geolevel, loss in losses.items()}
        tried = TRIALS.with_losses(TRIALS.measuring_only(choice, "persons"), "persons", doubled)
        assert TRIALS.losses(tried, "persons") == doubled
        TRIALS.read_input(tried, dataset)
        layout = tmp_path / f"layout-{number}"
        TRIALS.lay_out(dataset, tried, layout)
        figures = TRIALS.replicate(layout, tried, 1, tmp_path / f"run-{number}")
        keys = ["quantity", "answer", "level", "size_class", "entities", "pairs"]
        entities[name] = frozenset(figures.errors[keys].itertuples(index=False, name=None))
        values[name] = figures.named("redistricting")
        assert {"bias", "absolute_q95", "false_zeros"} <= set(figures.reported)
    assert len(entities) == 12
    assert len(set(entities.values())) == 1
    assert all(0 <= value <= 1 for value in values.values()) and len(set(values.values())) > 1
