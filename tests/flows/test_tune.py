"""The search for budgets: planted criteria, interruption, refusals."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows import tune
from spineflow.flows.cli import main
from spineflow.flows.replicates import AnyTuneSettings
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.study.search import Trial, loss_grid, settings_of
from spineflow.tasks.topdown.trials import TopdownTrials
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon

from tests.flows.in_process import judged_once, tasks_in_threads

LOWEST, HIGHEST, STEP = Fraction(1, 10), Fraction(20), Fraction(3, 2)


@pytest.fixture(autouse=True, scope="module")
def one_opinion() -> Iterator[None]:
    """Our own code alone judges the input, which is sound where a run goes on."""
    with judged_once():
        yield


def write_settings(folder: Path, county: Path, **replaced: str) -> Path:
    text = f"""\
[input]
persons = "{county / "persons.parquet"}"
units = "{county / "units.parquet"}"
geography = "{county / "grfc.txt"}"
confidential = false
[privacy]
dataset = "county"
[topdown]
preset = "pl94_2020_us"
[topdown.run]
universes = ["persons"]
[criterion]
kind = "error"
quantity = "total population"
level = "block"
statistic = "predicted_standard_deviation"
at_most = 20.0
[search]
method = "total"
replicates = 2
lowest = "{LOWEST}"
highest = "{HIGHEST}"
step = "{STEP}"
"""
    for old, new in replaced.items():
        text = text.replace(f"{old} = ", f"{old} = {new} #" if new else "# ", 1)
    settings = folder / "tune.toml"
    settings.write_text(text, encoding="utf-8")
    return settings


def total_of(run: Path) -> Fraction:
    found = tomllib.loads((run / "release" / "settings.toml").read_text(encoding="utf-8"))
    return Fraction(found["budget"]["persons"]["rho"])


@pytest.fixture(scope="module")
def searched(smallest_county: Path, tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("search")
    settings = write_settings(folder, smallest_county, step='"4"')
    with tasks_in_threads():
        assert main(["run", "tune", str(settings), "--run-dir", str(folder / "run")]) == 0
    return settings, folder / "run"


@pytest.mark.slow
def test_the_smallest_total_of_a_planted_criterion_is_found(searched) -> None:
    """The predicted deviation falls as 1 / sqrt(total), so what the criterion needs is known."""
    _, run = searched
    tried = next((run / "trials").iterdir())
    value = json.loads((tried / "1.json").read_text(encoding="utf-8"))["value"]
    settings = tomllib.loads((tried / "settings.toml").read_text(encoding="utf-8"))
    total = float(Fraction(settings["budget"]["persons"]["rho"]))
    needed = total * (value / 20.0) ** 2
    grid = loss_grid(LOWEST, HIGHEST, Fraction(4))
    assert LOWEST < needed < HIGHEST
    assert total_of(run) == next(loss for loss in grid if float(loss) >= needed)


@pytest.mark.slow
def test_what_is_found_is_ready_to_run(searched, tmp_path: Path, capsys) -> None:
    _, run = searched
    settings = run / "release" / "settings.toml"
    assert main(["check", "topdown", str(settings)]) == 0
    assert main(["budget", "topdown", str(settings), "--json"]) == 0
    report = (run / "report" / "report.html").read_text(encoding="utf-8")
    assert "predicted standard deviation of total population at block" in report


@pytest.mark.slow
def test_an_interrupted_search_keeps_its_replicates(searched, tmp_path: Path) -> None:
    _, finished = searched
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(finished, run.root, symlinks=True)
    found = total_of(run.root)
    shutil.rmtree(run.release)
    shutil.rmtree(run.report.parent)
    replicates = sorted((run.root / "trials").glob("*/*.json"))
    replicates[-1].unlink()
    before = {path: path.stat().st_mtime_ns for path in replicates[:-1]}
    with tasks_in_threads():
        assert main(["resume", str(run.root)]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert replicates[-1].exists()
    assert total_of(run.root) == found


@pytest.mark.slow
def test_a_criterion_out_of_reach_withholds_settings(smallest_county, tmp_path, capsys) -> None:
    settings = write_settings(tmp_path, smallest_county, at_most="1e-9", replicates="1")
    run = tmp_path / "run"
    with tasks_in_threads():
        assert main(["run", "tune", str(settings), "--run-dir", str(run)]) == 5
    assert "raise search.highest" in capsys.readouterr().err
    assert not (run / "release").exists()
    assert (run / "report" / "report.html").exists()


PERSONS_ALONE = '[topdown.run]\nuniverses = ["persons"]\n'
EXACT = """\
[topdown.run]
universes = ["units"]
[topdown.budget.units]
epsilon = "2"
delta = "1e-6"
accounting = "exact"
[criterion]
universe = "units"
"""


def candidates(folder: Path, county: Path, monkeypatch, meets, **search: str) -> list[Budget]:
    """The budgets of units that a search tries under an exact epsilon of 2, and the last found."""
    file = write_settings(folder, county, **search)
    text = file.read_text(encoding="utf-8").replace(PERSONS_ALONE, "")
    text = text.replace("[criterion]", EXACT)
    file.write_text(text, encoding="utf-8")
    settings = load_settings(AnyTuneSettings, file, presets=PRESETS).resolved()
    tried = []

    def outcome(_self, variant, losses) -> Trial:
        trial = Trial("", variant, losses, 0.0, 0.0, False)
        tried.append(settings_of(settings, variant, losses).budget_of("units"))
        return replace(trial, mean=float(trial.total), met=meets(trial))

    monkeypatch.setattr(tune._Search, "tried", outcome)
    search_of = tune._Search(RunDirectory(folder), settings)
    found = [search_of.best_of(variant) for variant in settings.choices]
    spent = (settings_of(settings, own.variant, own.losses) for own in found if own)
    return [*tried, *(own.budget_of("units") for own in spent)]


def searched_for(
    folder: Path,
    county: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: Callable[[Trial], float],
    **search: str,
) -> Trial | None:
    """What a search finds for a criterion of at most 20, whose value a trial tells at once."""
    file = write_settings(folder, county, **search)
    settings = load_settings(AnyTuneSettings, file, presets=PRESETS).resolved()

    def outcome(_self, variant, losses) -> Trial:
        trial = Trial("", variant, losses, 0.0, 0.0, False)
        return replace(trial, mean=value(trial), met=value(trial) <= 20)

    monkeypatch.setattr(tune._Search, "tried", outcome)
    (variant,) = settings.choices
    return tune._Search(RunDirectory(folder), settings).best_of(variant)


def test_every_geolevel_gets_the_least_loss_that_it_needs(
    smallest_county: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"US": Fraction(1, 2), "Tract": Fraction(3)}
    found = searched_for(
        tmp_path,
        smallest_county,
        monkeypatch,
        lambda trial: 20.0 if all(trial.losses[k] >= v for k, v in needed.items()) else 21.0,
        method='"geolevels"',
    )
    assert found is not None
    grid = loss_grid(LOWEST, HIGHEST, STEP)
    least = {name: next(x for x in grid if x >= needed.get(name, 0)) for name in found.losses}
    assert found.losses == least and len(least) == 6


@pytest.mark.parametrize(("most", "is_found"), [(5, True), (4, False), (None, True)])
def test_no_search_goes_beyond_the_largest_total(
    smallest_county: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int | None,
    is_found: bool,
) -> None:
    """A total of five is needed, or half of one and more at each of six geolevels."""
    limit = None if most is None else Fraction(most)
    monkeypatch.setattr(TopdownTrials, "largest_total", lambda *_: limit)
    found = searched_for(
        tmp_path, smallest_county, monkeypatch, lambda trial: 100 / float(trial.total)
    )
    grid = loss_grid(LOWEST, HIGHEST, STEP)
    on_grid = next(loss for loss in grid if loss >= 5)
    assert (None if found is None else found.total) == ((limit or on_grid) if is_found else None)
    least = next(loss for loss in grid if loss >= Fraction(1, 2))
    assert 3 < 6 * least < 4
    limit = None if most is None else Fraction(most - 1)
    found = searched_for(
        tmp_path,
        smallest_county,
        monkeypatch,
        lambda trial: 10 / float(min(trial.losses.values())),
        method='"geolevels"',
    )
    assert (found is not None) == is_found


def exact_epsilon_of(budget: Budget) -> float:
    return exact_epsilon(budget, Fraction(1, 10**6))


@pytest.mark.slow
def test_a_search_of_totals_ends_at_the_guarantee(
    smallest_county: Path, tmp_path: Path, monkeypatch
) -> None:
    tried = candidates(
        tmp_path, smallest_county, monkeypatch, lambda trial: False, lowest='"1/1000"'
    )
    assert [1.9999 < exact_epsilon_of(budget) <= 2 for budget in tried] == [True]
    tried = candidates(
        tmp_path,
        smallest_county,
        monkeypatch,
        lambda trial: trial.total > Fraction(1, 30),
        lowest='"1/1000"',
    )
    assert max(map(exact_epsilon_of, tried)) <= 2
    assert Fraction(1, 30) < tried[-1].total < Fraction(1, 20)


@pytest.mark.slow
def test_losses_of_geolevels_that_exceed_the_guarantee_are_not_found(
    smallest_county: Path, tmp_path: Path, monkeypatch
) -> None:
    """The search takes all other geolevels as exact; what it comes to is held to the epsilon."""
    search = {"method": '"geolevels"', "lowest": '"1/1000"'}
    least = {"small": Fraction(1, 300), "large": Fraction(1, 20)}
    for size, own in least.items():
        tried = candidates(
            tmp_path,
            smallest_county,
            monkeypatch,
            lambda trial, own=own: min(trial.losses.values()) >= own,
            **search,
        )
        found = exact_epsilon_of(tried[-1]) if tried[-1].total < 1000 else None
        assert (found is not None and found <= 2) == (size == "small")
