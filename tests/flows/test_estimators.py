"""The estimators other than the default, through the whole DAG, and how many workers there are."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import prepare, run_stages, run_stages_here
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.plan import REPORT_DELTA
from spineflow.tasks.ledger.spending import composed, curve_text, spending_of
from spineflow.tasks.ledger.store import open_ledger, reading
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings, load_settings
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.workload.exact_loss import exact_curve, paths_of

from tests.flows.in_process import judged_once, uncompared

BARE = ("release.margins=false", "release.tables=false")
"""A release of microdata alone."""


def county_settings(folder: Path, county: Path, *overrides: str) -> TopdownSettings:
    path = folder / "settings.toml"
    path.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )
    return load_settings(TopdownSettings, path, presets=PRESETS, overrides=overrides)


def run_county(folder: Path, county: Path, name: str, *overrides: str) -> RunDirectory:
    settings = county_settings(folder, county, *overrides)
    run = prepare(settings, folder / name)
    with judged_once(), uncompared():
        run_stages_here(PRODUCT, run, settings)
    return run


@pytest.fixture(scope="module", params=["block_by_block", "full_information"])
def run(request, smallest_county: Path, tmp_path_factory) -> RunDirectory:
    """A private run by another estimator."""
    folder = tmp_path_factory.mktemp(request.param)
    overrides = (f"run.estimator={request.param}", *BARE)
    return run_county(folder, smallest_county, request.param, *overrides)


@pytest.mark.soak(8)
def test_a_run_passes_all_checks_under_the_whole_budget(run: RunDirectory) -> None:
    assert json.loads((run.checks / "checks.json").read_text())["passed"]
    spent = summary(open_ledger(run.root.parent / "ledger.db", must_exist=True))
    draws = spent["datasets"]["county"]["products"]["topdown"]["draws"]
    assert [draw["parameter"] for draw in draws] == ["293764/114921", "11417641/152349649"]
    text = (run.release / "certificate.md").read_text(encoding="utf-8")
    blocks_only = run.root.name == "block_by_block"
    assert ("state totals" not in text) == blocks_only
    assert ("were made block by block" in text) == blocks_only


@pytest.mark.soak(8)
def test_estimates_are_made_again_without_the_confidential_folder(
    run: RunDirectory, tmp_path: Path
) -> None:
    """Estimation reads published measurements, invariants and public geography alone."""
    from spineflow.tasks.runs.settings_files import frozen_settings
    from spineflow.tasks.topdown.checks.replicate import estimate

    settings = frozen_settings(TopdownSettings, run.settings)
    public = RunDirectory(tmp_path / "public")
    public.root.mkdir()
    for name in ("spine", "measurements"):
        (public.root / name).symlink_to(run.root / name)
    again = estimate(public, settings, tmp_path / "again")
    assert not (again.root / "confidential").exists()
    for path in (run.root / "estimates").rglob("*.parquet"):
        assert pq.read_table(path).equals(
            pq.read_table(again.root / path.relative_to(run.root)), check_metadata=False
        )


@pytest.fixture(scope="module")
def by_one_worker(smallest_county: Path, tmp_path_factory: pytest.TempPathFactory):
    """Function from an estimator to a run without Prefect, in several shards, and its settings.

    Margins and tables are of no estimator; `test_runners` has them by several runners.
    """

    @cache
    def run(estimator: str) -> tuple[RunDirectory, tuple[str, ...]]:
        overrides = (
            *(f"run.estimator={estimator}", *BARE),
            *("input.confidential=false", "privacy.seed=11"),
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("spineflow.tasks.topdown.spine.shards.VALUES_PER_SHARD", 24_000)
            folder = tmp_path_factory.mktemp(estimator)
            one = run_county(folder, smallest_county, "one", *overrides)
        assert len(list((one.root / "estimates").rglob("*.parquet"))) > 2 * 6
        return one, overrides

    return run


further = partial(pytest.param, marks=pytest.mark.soak)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "runner"),
    [
        further("topdown", "threads"),
        further("topdown", "processes"),
        further("full_information", "threads"),
        further("full_information", "processes"),
        further("block_by_block", "threads"),
        further("block_by_block", "processes"),
    ],
)
def test_workers_and_runners_change_nothing(
    prefect_server,
    by_one_worker,
    estimator: str,
    runner: str,
    smallest_county: Path,
    tmp_path: Path,
) -> None:
    """One process, two threads or two processes, which `test_runners` has of a product that takes
    less time: the same seed gives the same bytes.

    The others find the shards laid out: processes would not know of the smaller limit.
    """
    one, overrides = by_one_worker(estimator)
    settings = county_settings(
        tmp_path, smallest_county, *overrides, f"run.runner={runner}", "run.workers=2"
    )
    run = prepare(settings, tmp_path / runner)
    for folder in ("confidential", "spine"):
        shutil.copytree(one.root / folder, run.root / folder, dirs_exist_ok=True)
    with judged_once(), uncompared():
        run_stages(PRODUCT, run, settings)
    made = [
        path.relative_to(one.root)
        for folder in ("measurements", "estimates", "release")
        for path in (one.root / folder).rglob("*.*")
        if path.stem != "certificate"
    ]
    for path in made:
        assert (run.root / path).read_bytes() == (one.root / path).read_bytes(), path


@pytest.mark.soak(6)
def test_the_rho_of_an_epsilon_is_frozen_charged_and_certified(
    smallest_county: Path, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    tables = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
    lines = [f'{name} = "{smallest_county / table}"' for name, table in tables.items()]
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\n' + "\n".join(lines) + '\n[privacy]\ndataset = "d"\n'
        'ledger = "ledger.db"\n[release]\nmargins = false\ntables = false\n'
        '[budget.persons]\nepsilon = "17.14"\n'
        'delta = "1e-10"\naccounting = "exact"\n'
    )
    settings = TOPDOWN.load(file)
    rho = settings.budget["persons"].rho
    assert Fraction("2.7373") < rho < Fraction("2.7375"), "the preset has 2.556"
    run = prepare(settings, tmp_path / "run")
    assert frozen_settings(TopdownSettings, run.settings) == settings
    with judged_once(), uncompared():
        run_stages_here(TOPDOWN, run, settings)
    ledger = open_ledger(tmp_path / "ledger.db", must_exist=True)
    spent = summary(ledger, is_exact=True)["datasets"]["d"]
    draws = spent["products"]["topdown"]["draws"]
    assert [draw["parameter"] for draw in draws] == [str(rho), "11417641/152349649"]
    with reading(ledger) as connection:
        spending = spending_of(connection, "d")
    assert spending.is_planned and not spending.unknown
    curves = [
        exact_curve(settings.budget_of(universe), paths_of(read_spine(spine_folder(run, universe))))
        for universe in settings.run.universes
    ]
    assert [curve_text(draw.curve) for draw in spending.draws] == list(map(curve_text, curves))
    exact = spent["epsilon"]["exact"]
    assert exact == composed(curves).epsilon_upper(REPORT_DELTA) < spent["epsilon"]["tight"]
    text = (run.release / "certificate.md").read_text(encoding="utf-8")
    assert "The rho of persons was chosen by this exact figure" in text
    assert "is true: 89 % for persons (records of persons and units) and 58 % for units" in text
    assert "an attacker who knows all of a record but one attribute" in text
    for page in (run.release / "certificate.html", run.report):
        drawn = page.read_text(encoding="utf-8")
        for label in ("persons, exactly, at most", "units, exactly, at least", "by guessing"):
            assert label in drawn
        assert "which of them is true: 89 %" in drawn
    assert prepare(TOPDOWN.load(file), tmp_path / "run").settings == run.settings
