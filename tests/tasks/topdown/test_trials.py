"""Trials: what a search compares, on the same entities whatever spine and estimator."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import tomli_w
from spineflow.flows.tune_settings import AnyTuneSettings
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.study.settings import Criterion
from spineflow.tasks.topdown.ingest.generate import generate_country
from spineflow.tasks.topdown.measurement.public_answers import area_counts
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.trials import STRATEGIES, TRIALS, strategy_shares
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon

REPOSITORY = Path(__file__).resolve().parents[3]
COUNTRY = (REPOSITORY / "flows" / "demos" / "country.toml").read_text(encoding="utf-8")

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
    with pytest.raises(InputRefused, match="'best'"):
        settings_of(tmp_path, county, '[search]\nstrategies = ["best"]\n')


def declared(folder: Path, **changes: dict) -> AnyTuneSettings:
    """A search on the generated country abroad, for its persons."""
    tree = tomllib.loads(COUNTRY)
    tree["census"].update(changes.get("census", {}))
    rest = {name: tree.pop(name) for name in ("census", "geography", "budget")}
    search = {"estimators": ["topdown", "full_information"], "bypass": [True, False]}
    criterion = {"kind": "error", "quantity": "total", "level": "school", "at_most": 9.0}
    tree |= {"topdown": rest, "search": search, "criterion": criterion}
    tree["variants"] = {
        "conventional": {},
        "optimized": {"geography": {"spine": "optimized"}},
    }
    tree |= {name: change for name, change in changes.items() if name != "census"}
    (folder / "tune.toml").write_text(tomli_w.dumps(tree))
    return load_settings(AnyTuneSettings, folder / "tune.toml", presets=PRESETS)


@pytest.mark.soak(5)
@pytest.mark.slow
def test_choices_of_a_declared_census_are_judged_on_the_same_entities(tmp_path: Path) -> None:
    """Two spines and two estimators; the criterion's groups are declared, too."""
    groups = {
        "universe": "persons",
        "populations": {"everyone": {}},
        "groups": [{"each": "citizenship"}],
    }
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    settings = declared(tmp_path, census={"redistricting": groups})
    entities, values, implied = {}, {}, {}
    for number, (name, choice) in enumerate(settings.choices.items()):
        losses = TRIALS.losses(choice, "persons")
        tried = TRIALS.measuring_only(choice, "persons")
        if number == 0:
            tried = TRIALS.with_losses(tried, "persons", {k: 4 * v for k, v in losses.items()})
        TRIALS.read_input(tried, tmp_path / "dataset")
        TRIALS.lay_out(tmp_path / "dataset", tried, tmp_path / f"layout-{number}")
        layout = tmp_path / f"layout-{number}"
        figures = TRIALS.replicate(layout, tried, 1, tmp_path / f"run-{number}")
        keys = ["quantity", "answer", "level", "size_class", "entities", "pairs"]
        entities[name] = frozenset(figures.errors[keys].itertuples(index=False, name=None))
        values[name] = settings.criterion.value_of(figures)
        assert 0 <= figures.redistricting() <= 1
        statistic = {"statistic": "predicted_standard_deviation"}
        asked = Criterion(**(settings.criterion.model_dump() | statistic))
        implied[name] = asked.value_of(figures)
    assert len(entities) == 8 and len(set(entities.values())) == 1
    assert len(set(values.values())) > 4
    first, *_ = implied
    same = implied["conventional, full information, bypass on"]
    assert implied[first] == pytest.approx(same / 2, rel=0.02)


@pytest.mark.soak(5)
def test_a_universe_is_tried_with_those_whose_releases_it_is_held_to(tmp_path: Path) -> None:
    relation = {
        "name": "heads",
        "left": [{"times": 40}],
        "sign": ">=",
        "right": [{"universe": "dwellings", "where": {"size": ["large"]}}],
    }
    (tmp_path / "input").mkdir()
    generate_country(tmp_path / "input")
    census = tomllib.loads(COUNTRY)["census"]
    census["universes"]["persons"]["relations"] = [relation]
    settings = declared(tmp_path, census=census)
    choice = next(iter(settings.choices.values()))
    tried = TRIALS.measuring_only(choice, "persons")
    assert tried.run.universes == ("dwellings", "persons")
    assert TRIALS.measuring_only(choice, "dwellings").run.universes == ("dwellings",)
    TRIALS.read_input(tried, tmp_path / "dataset")
    TRIALS.lay_out(tmp_path / "dataset", tried, tmp_path / "layout")
    figures = TRIALS.replicate(tmp_path / "layout", tried, 1, tmp_path / "run")
    assert set(figures.errors["universe"]) == {"persons", "dwellings"}
    released, n_areas = RunDirectory(tmp_path / "run" / "estimated"), 384
    persons, dwellings = (
        area_counts(released, tried, name, n_areas) for name in ("persons", "dwellings")
    )
    large = tried.schema_of("dwellings").cells_where({"size": (2,)})
    assert (40 * persons.sum(axis=1) >= dwellings @ large.astype(int)).all()


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
    made = TRIALS.variations(
        settings, "units", estimators=["topdown", "block_by_block"], bypass=[], strategies=[]
    )
    rhos = []
    for changed in made.values():
        kept = TRIALS.guaranteeing(settings, changed, "units")
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
    assert TRIALS.guaranteeing(settings, changed, "units") is changed
    assert TRIALS.largest_total(settings, "units") is None
