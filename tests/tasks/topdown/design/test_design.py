"""Designs of a generated county: margins, settings and refusals."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.tasks.census.invariants import inhabitable
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.accuracy.subjects import entity_levels
from spineflow.tasks.topdown.checks.replicate import lay_out, measure, read_dataset, with_seed
from spineflow.tasks.topdown.design.problem import UniverseProblem, allocation_of
from spineflow.tasks.topdown.design.settings import DesignSettings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import public_tables
from spineflow.tasks.topdown.intervals.answers import ProductAnswers
from spineflow.tasks.topdown.intervals.areas import BlockAreas, area_covariances
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon, exact_rho

from tests.tasks.topdown.design.county_settings import HEAD

TARGETS = """\
[design.persons.targets]
tracts = { query = "total", level = "tract" }
races = { query = "hispanic * cenrace", level = "tract" }
towns = { query = "total", level = "county subdivision" }
[design.units.targets]
occupied = { query = "occupancy", level = "tract" }
"""


@pytest.fixture(scope="module")
def county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=3_000, seed=5)
    return folder


def written(county: Path, name: str, text: str) -> Path:
    path = county / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def designed(county: Path, capsys: pytest.CaptureFixture, name: str, text: str) -> dict:
    path = written(county, name, HEAD + text)
    capsys.readouterr()
    assert main(["design", "topdown", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_margins_are_those_of_the_intervals_of_a_run(county: Path, tmp_path: Path) -> None:
    """Mean variances of the settings' own allocation against the posterior of a run's spine."""
    settings = load_settings(
        DesignSettings, written(county, "margins", HEAD + TARGETS), presets=PRESETS
    )
    geography, invariants = public_tables(settings.topdown)
    inhabited = geography[inhabitable(invariants)].reset_index(drop=True)
    data = read_dataset(settings.topdown, tmp_path / "data")
    layout = lay_out(data, settings.topdown, tmp_path / "layout")
    run = measure(layout, with_seed(settings.topdown, 1), tmp_path / "measured")
    for universe in ("persons", "units"):
        problem = UniverseProblem.of(
            settings.topdown, universe, settings.design[universe], (geography, invariants)
        )
        budget, schema = settings.budget_of(universe), settings.schema_of(universe)
        p = allocation_of(budget.geolevel_shares, budget.query_shares, problem.queries)
        found, _ = problem.variances(problem.measured.kinds.precision(p))
        posterior = RunPosterior.read(run, settings.topdown, universe)
        levels = {
            x.name: x.entity
            for x in entity_levels(posterior.spine, inhabited.iloc[posterior.spine.block_row])
        }
        for target, variance in zip(settings.design[universe].targets.values(), found, strict=True):
            entity = levels[target.level]
            areas = BlockAreas.of_pairs(entity.max() + 1, np.arange(len(entity)), entity)
            counted = marginal_query(schema, target.query).matrix
            answers = ProductAnswers.of(posterior.algebra, counted)
            exact = area_covariances(posterior.posterior, answers, areas).variances().mean()
            assert variance / float(budget.total) == pytest.approx(exact, rel=1e-4)


@pytest.mark.slow
def test_a_design_is_written_as_settings_that_are_ready_to_run(county: Path, capsys) -> None:
    found = designed(county, capsys, "ready", TARGETS)
    again = load_settings(TopdownSettings, county / "ready-designed.toml", presets=PRESETS)
    assert again.run.estimator == "full_information" and again.preset is None
    for universe, design in found.items():
        budget = again.budget_of(universe)
        assert str(budget.total) == design["rho"]["now"]
        assert sum(budget.geolevel_shares.values()) == 1
        assert {n: str(s) for n, s in budget.geolevel_shares.items()} == design["geolevels"]
        assert design["gap"] < 0.01
        assert all(target["designed"] < target["now"] for target in design["targets"])
        assert design["rho_for_the_margins_now"] < float(budget.total)
    text = (county / "ready-designed.toml").read_text(encoding="utf-8")
    assert text.startswith("# Budget of persons: no other split of this budget has a largest ratio")


@pytest.mark.slow
def test_the_smallest_rho_meets_the_wanted_margins_and_no_more(county: Path, capsys) -> None:
    targets = """\
[design.persons]
objective = "smallest_rho"
[design.persons.targets]
tracts = { query = "total", level = "tract", margin = 10 }
towns = { query = "cenrace", level = "county subdivision", margin = "7.5" }
"""
    design = designed(county, capsys, "smallest", targets)["persons"]
    ratios = [target["designed"] / target["wanted"] for target in design["targets"]]
    assert max(ratios) == pytest.approx(1, abs=1e-3) and max(ratios) <= 1
    again = load_settings(TopdownSettings, county / "smallest-designed.toml", presets=PRESETS)
    assert str(again.budget_of("persons").total) == design["rho"]["designed"]
    assert "however it is split" in design["certificate"]


def test_persons_are_not_read_and_areas_may_be_any(county: Path, capsys) -> None:
    blocks = pd.read_csv(county / "grfc.txt", sep="|", dtype=str)
    parts = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
    code = blocks[list(parts)].agg("".join, axis=1)
    listed = pd.DataFrame(
        {"area": ["a", "b"] * (len(code) // 2), "block": code[: len(code) // 2 * 2]}
    )
    listed.to_csv(county / "areas.csv", index=False)
    targets = """\
[design.persons.targets]
listed = { query = "votingage", areas = "areas.csv" }
large = { query = "total", level = "place", smallest_housing_units = 50 }
"""
    text = HEAD.replace("persons.parquet", "missing.parquet") + targets
    path = written(county, "areas", text)
    assert main(["design", "topdown", str(path), "--out", str(county / "out.toml")]) == 0
    shown = capsys.readouterr().out
    assert "areas.csv" in shown and "Certain: no other split" in shown
    assert (county / "out.toml").exists()


REFUSED = {
    "tract or place": ('a = { query = "total", level = "trakt" }', "did you mean 'tract'"),
    "exact": ('a = { query = "total", level = "state" }', "known exactly"),
    "nowhere": (
        'a = { query = "total", level = "tract", smallest_housing_units = 9999999 }',
        "no area with 9,999,999 housing units",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_designed_is_refused_in_one_sentence(
    name: str, county: Path, capsys
) -> None:
    target, sentence = REFUSED[name]
    path = written(county, "refused", f"{HEAD}[design.persons.targets]\n{target}\n")
    capsys.readouterr()
    assert main(["design", "topdown", str(path)]) == 2
    out, error = capsys.readouterr()
    assert sentence in error and error.count("\n") == 1 and not out
    assert not (county / "refused-designed.toml").exists()


EXACT = """\
[run]
universes = ["persons"]
[budget.persons]
epsilon = "17.14"
delta = "1e-10"
accounting = "exact"
"""
SOME = """\
[design.persons]
objective = "OBJECTIVE"
[design.persons.targets]
tracts = { query = "total", level = "tract", margin = MARGIN }
towns = { query = "cenrace", level = "county subdivision", margin = 7 }
"""


@pytest.mark.soak(4)
def test_a_design_has_the_rho_that_its_own_split_may_have(county: Path, capsys) -> None:
    some = SOME.replace("OBJECTIVE", "largest_ratio").replace("MARGIN", "10")
    design = designed(county, capsys, "exact", EXACT + some)["persons"]
    asked = Fraction("17.14"), Fraction("1e-10")
    again = load_settings(TopdownSettings, county / "exact-designed.toml", presets=PRESETS)
    section, budget = again.budget["persons"], again.budget_of("persons")
    assert section.guarantee == asked and section.rho == budget.total
    assert budget.total == exact_rho(budget, *asked)
    assert Fraction("2.7373") < Fraction(design["rho"]["now"]) < Fraction("2.7375")
    assert design["guarantee"]["exact"] == exact_epsilon(budget, asked[1]) <= 17.14
    assert design["guarantee"]["exact"] > 17.139
    assert "no other split of the same rho" in design["certificate"]


@pytest.mark.slow
def test_the_smallest_rho_is_held_to_an_exact_guarantee(county: Path, capsys) -> None:
    some = SOME.replace("OBJECTIVE", "smallest_rho")
    design = designed(county, capsys, "held", EXACT + some.replace("MARGIN", "10"))["persons"]
    again = load_settings(TopdownSettings, county / "held-designed.toml", presets=PRESETS)
    assert str(again.budget["persons"].rho) == design["rho"]["designed"]
    assert again.budget["persons"].guarantee is not None
    assert design["guarantee"]["exact"] < 17
    path = written(county, "too-much", HEAD + EXACT + some.replace("MARGIN", '"1/100"'))
    assert main(["design", "topdown", str(path)]) == 2
    assert "widen margins, or raise budget.persons.epsilon" in capsys.readouterr().err
    assert not (county / "too-much-designed.toml").exists()


@pytest.mark.soak(4)
def test_compared_splits_keep_the_same_exact_guarantee(county: Path, capsys) -> None:
    some = SOME.replace("OBJECTIVE", "largest_ratio").replace("MARGIN", "10")
    path, file = written(county, "splits", HEAD + EXACT + some), county / "compared.toml"
    assert main(["design", "topdown", str(path), "--compare", str(file)]) == 0
    compared = load_settings(AnyTuneSettings, file, presets=PRESETS)
    assert compared.criterion.quantity == "total population" and compared.criterion.level == "block"
    assert {name.partition(",")[0] for name in compared.choices} == {"own", "designed", "even"}
    assert len(compared.choices) == 3 * len(compared.search.estimators) == 9
    budgets = {name: own.budget_of("persons") for name, own in compared.variants.items()}
    for name, budget in budgets.items():
        assert 17.139 < exact_epsilon(budget, budget.delta) <= 17.14
        assert sum(budget.geolevel_shares.values()) == 1
        assert all(sum(shares.values()) == 1 for shares in budget.query_shares.values())
        assert (len(set(budget.geolevel_shares.values())) == 1) == (name == "even")
    own = load_settings(DesignSettings, path, presets=PRESETS).resolved().budget_of("persons")
    assert budgets["own"].total == own.total
    assert len({budget.total for budget in budgets.values()}) == 3
