"""Trials: what a search compares, on the same entities whatever spine and estimator."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import with_estimator
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.trials import STRATEGIES, TRIALS, strategy_shares
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon

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


def settings_of(folder: Path, county: Path, further: str = "") -> AnyTuneSettings:
    file = folder / "tune.toml"
    file.write_text(SETTINGS.format(county=county) + further)
    return load_settings(AnyTuneSettings, file, presets=PRESETS)


def test_choices_cross_variants_estimators_and_strategies(tmp_path: Path, county: Path) -> None:
    search = 'estimators = ["topdown", "block_by_block"]\n'
    search += 'strategies = ["own", "uniform", "inverse_size_squared"]\n'
    text = f"[variants.a]\n[variants.b]\ngeography = {{ spine = 'aian' }}\n[search]\n{search}"
    settings = settings_of(tmp_path, county, text)
    assert len(settings.choices) == 2 * 2 * 3
    chosen = settings.choices["b, block by block, inverse size squared"]
    assert chosen.run.estimator == "block_by_block"
    assert chosen.geography.spine == "aian"
    shares = chosen.budget["persons"].queries["Block"]
    assert sum(shares.values()) == 1
    assert shares["hispanic"] / shares["cenrace"] == Fraction(63**2, 2**2)
    own = settings.choices["a, topdown, own"]
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


def under_exact_accounting(tmp_path: Path) -> TopdownSettings:
    file = tmp_path / "settings.toml"
    tables = 'persons = "p"\nunits = "u"\ngeography = "g"'
    exact = 'epsilon = "2"\ndelta = "1e-6"\naccounting = "exact"'
    file.write_text(
        f'preset = "pl94_2020_us"\n[input]\n{tables}\n[run]\nuniverses = ["units"]\n'
        f'[privacy]\ndataset = "d"\n[budget.units]\n{exact}\n'
    )
    return load_settings(TopdownSettings, file, presets=PRESETS).resolved()


def test_tried_budgets_are_held_to_their_epsilon(tmp_path: Path) -> None:
    """A total that is tried stays, and what is left out of a search is still promised."""
    settings = under_exact_accounting(tmp_path)
    losses = TRIALS.losses(settings, "units")
    tried = TRIALS.with_losses(settings, "units", {k: v / 2 for k, v in losses.items()})
    section, whole = tried.budget["units"], settings.budget["units"].rho
    assert (section.rho, section.epsilon, section.accounting) == (whole / 2, 2, "exact")
    assert tried.resolved() == tried
    assert TRIALS.largest_total(settings, "units") == whole
    assert TRIALS.largest_total(tried, "units") == whole


def test_every_split_that_is_compared_meets_the_same_exact_guarantee(tmp_path: Path) -> None:
    """Measured in blocks alone, the same epsilon allows another rho.

    Threat model: an exact epsilon below the true one.
    """
    settings = under_exact_accounting(tmp_path)
    rhos = []
    for estimator in ("topdown", "block_by_block"):
        changed = with_estimator(settings, estimator)
        kept = TRIALS.apply_guarantee(settings, changed, "units")
        rhos.append(kept.budget["units"].rho)
        found = exact_epsilon(kept.budget_of("units"), Fraction(1, 10**6))
        assert Fraction(19999, 10000) < found <= 2
        more = replace(kept.budget_of("units"), total=rhos[-1] * Fraction("1.0001"))
        assert exact_epsilon(more, Fraction(1, 10**6)) > 2
    assert rhos[0] == settings.budget["units"].rho != rhos[1]


def test_without_an_epsilon_the_total_stays(tmp_path: Path) -> None:
    settings = under_exact_accounting(tmp_path)
    plain = settings.budget["units"].model_copy(update={"epsilon": None, "accounting": None})
    settings = settings.model_copy(update={"budget": {"units": plain}})
    changed = TRIALS.with_losses(settings, "units", {"US": Fraction(1), "Block": Fraction(1)})
    assert TRIALS.apply_guarantee(settings, changed, "units") is changed
    assert TRIALS.largest_total(settings, "units") is None
