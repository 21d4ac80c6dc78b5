from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.answers.estimates import read_estimates
from spineflow.tasks.answers.noisy import read_constraints
from spineflow.tasks.census.invariants import read_state_totals
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.checks.replicate import (
    estimate,
    lay_out,
    measure,
    read_dataset,
    with_estimator,
    with_seed,
)
from spineflow.tasks.topdown.measurement.measure import check_shares_of_spine
from spineflow.tasks.topdown.paths import constraints_file, spine_folder, state_totals_file
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_shards, read_spine
from spineflow.tasks.topdown.workload.costs import cost_of_budget, guarantee_of
from spineflow.validation.topdown.run_checks import TOP, CheckedRun, Piece


@pytest.fixture(scope="module")
def settings(county: Path, tmp_path_factory: pytest.TempPathFactory) -> TopdownSettings:
    folder = tmp_path_factory.mktemp("settings")
    text = (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "county"\n'
    )
    (folder / "settings.toml").write_text(text)
    settings = load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)
    return with_seed(with_estimator(settings, "block_by_block"), 5)


@pytest.fixture(scope="module")
def run(settings: TopdownSettings, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("block_by_block")
    dataset = read_dataset(settings, folder / "dataset")
    measured = measure(lay_out(dataset, settings, folder / "layout"), settings, folder / "measured")
    return estimate(measured, settings, folder / "estimated")


def histograms(run, settings, universe, geolevel):
    level = read_spine(spine_folder(run, universe)).geolevel(geolevel)
    files = [
        run.estimates(universe, geolevel, shard.name)
        for shard in read_shards(spine_folder(run, universe))
        if shard.geolevel == geolevel
    ]
    return read_estimates(files, level.geocode, settings.schema_of(universe).n_cells)


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_the_blocks_have_the_whole_budget(settings, universe):
    budget = settings.budget_of(universe)
    assert budget.total == with_estimator(settings, "topdown").budget_of(universe).total
    assert guarantee_of(budget).bounded_rho == budget.total
    assert budget.geolevel_shares["Block"] == 1 and sum(budget.geolevel_shares.values()) == 1
    report = cost_of_budget(budget, settings.schema_of(universe)).to_json()
    assert {query["geolevel"] for query in report["queries"]} == {"Block"}
    assert sum(Fraction(query["share"]) for query in report["queries"]) == 1
    epsilon = report["epsilon"]["tight"]
    assert all(value == epsilon for value in report["block_within"].values())


@pytest.mark.slow
@pytest.mark.parametrize("universe", ["persons", "units"])
def test_only_blocks_are_measured_and_each_with_everything(run, settings, universe):
    spine = read_spine(spine_folder(run, universe))
    check_shares_of_spine(spine, universe)
    for level in spine.geolevels:
        assert (level.bypassed == (level.name != "Block")).all()
    run.settings.write_text(dump_settings(settings), encoding="utf-8")
    found = CheckedRun(run.root, run.unchecked_release).check(Piece(TOP, universe))
    assert not found.unusable.count
    assert {name for name, own in found.failures.items() if own.count} == set()


def test_state_totals_are_nowhere_to_be_read(run, settings):
    assert read_state_totals(state_totals_file(run)) == {}
    spine = read_spine(spine_folder(run, "persons"))
    for shard in read_shards(spine_folder(run, "persons")):
        path = constraints_file(run, "persons", shard.geolevel, shard.name)
        geocode = [*spine.geolevel(shard.geolevel).geocode, "35"]
        names = {name for name, _ in read_constraints(path, geocode)}
        assert names == {"hhgq_total_lb_con", "hhgq_total_ub_con", "nurse_nva_0_con"}


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_everything_above_the_blocks_is_a_sum(run, settings, universe):
    spine = read_spine(spine_folder(run, universe))
    for above, level in zip(spine.geolevels, spine.geolevels[1:], strict=False):
        sums = np.zeros((len(above), settings.schema_of(universe).n_cells), dtype=np.int64)
        np.add.at(sums, level.parent, histograms(run, settings, universe, level.name).toarray())
        assert np.array_equal(sums, histograms(run, settings, universe, above.name).toarray())


def test_blocks_hold_their_own_bounds(run, settings):
    persons = histograms(run, settings, "persons", "Block")
    level = read_spine(spine_folder(run, "persons")).geolevel("Block")
    (shard,) = (s for s in read_shards(spine_folder(run, "persons")) if s.geolevel == "Block")
    constraints = read_constraints(
        constraints_file(run, "persons", "Block", shard.name), level.geocode
    )
    schema = settings.schema_of("persons")
    of_type = np.stack(
        [persons[:, schema.levels("hhgq") == kind].sum(axis=1) for kind in range(8)], axis=1
    )
    assert (of_type >= constraints["hhgq_total_lb_con", ">="].values).all()
    assert (of_type <= constraints["hhgq_total_ub_con", "<="].values).all()
    units = histograms(run, settings, "units", "Block")
    unit_level = read_spine(spine_folder(run, "units")).geolevel("Block")
    totals = read_constraints(constraints_file(run, "units", "Block", "00000"), unit_level.geocode)
    assert np.array_equal(units.sum(axis=1), totals["total_con", "="].values[:, 0])
