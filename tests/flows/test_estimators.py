"""The estimators other than the default, through the whole DAG, and how many workers there are."""

from __future__ import annotations

import json
import shutil
from functools import cache, partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import prepare, run_stages, run_stages_in_process
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings, load_settings
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT
from spineflow.tasks.topdown.settings import TopdownSettings

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
        run_stages_in_process(PRODUCT, run, settings)
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
            patched.setattr("spineflow.tasks.topdown.spine.files.VALUES_PER_SHARD", 24_000)
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
