"""Shards take what is theirs of a run's files, and nothing else."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.answers.noisy import read_constraints
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.census.invariants import FACILITY_COLUMNS, read_invariants
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused
from spineflow.tasks.runs.settings_files import dump_settings
from spineflow.tasks.topdown.measurement.measure import (
    check_cuts_of_spine,
    plan_of_run,
    shard_histograms,
)
from spineflow.tasks.topdown.measurement.public_answers import constrain_universe
from spineflow.tasks.topdown.paths import constraints_file, invariants_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_shards, read_spine


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_histograms_of_shards_are_those_of_their_geounits(cut_county, universe: str) -> None:
    run, settings = cut_county
    spine, n_cells = read_spine(spine_folder(run, universe)), settings.schema_of(universe).n_cells
    blocks = read_histogram(run.histogram(universe), spine.block_geocode, n_cells=n_cells).toarray()
    for geolevel in spine.names:
        level = spine.geolevel(geolevel)
        expected = np.zeros((len(level), n_cells), dtype=np.int64)
        np.add.at(expected, spine.ancestors(geolevel), blocks)
        shards = [s for s in read_shards(spine_folder(run, universe)) if s.geolevel == geolevel]
        found = [shard_histograms(run, universe, spine, s, n_cells).toarray() for s in shards]
        np.testing.assert_array_equal(np.concatenate(found), expected)


def test_records_outside_the_spine_are_refused_at_the_root(cut_county) -> None:
    """What a spine lost would be missing from every answer."""
    run, settings = cut_county
    spine, n_cells = read_spine(spine_folder(run, "persons")), settings.schema_of("persons").n_cells
    others = np.array(spine.block_geocode)
    counts = read_histogram(run.histogram("persons"), others, n_cells=n_cells).sum(axis=1)
    others[np.argmax(counts)] = "0" * 16
    root = read_shards(spine_folder(run, "persons"))[0]
    with pytest.raises(ValueError, match="not requested"):
        shard_histograms(run, "persons", replace(spine, block_geocode=others), root, n_cells)


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_constraints_of_shards_add_up_the_invariants_of_their_blocks(
    cut_county, universe: str
) -> None:
    run, _ = cut_county
    spine = read_spine(spine_folder(run, universe))
    invariants = read_invariants(invariants_file(run)).set_index("block_geocode")
    columns = ["housing_units"] if universe == "units" else list(FACILITY_COLUMNS)
    of_block = invariants.loc[spine.block_geocode, columns].to_numpy()
    name, sign = ("total_con", "=") if universe == "units" else ("hhgq_total_lb_con", ">=")
    for shard in read_shards(spine_folder(run, universe)):
        sums = pd.DataFrame(of_block).groupby(spine.ancestors(shard.geolevel)).sum().to_numpy()
        path = constraints_file(run, universe, shard.geolevel, shard.name)
        geocode = spine.geolevel(shard.geolevel).geocode[shard.start : shard.stop]
        found = read_constraints(path, geocode)[name, sign]
        assert found.holds.all()
        values = found.values[:, -len(columns) :]
        np.testing.assert_array_equal(values, sums[shard.start : shard.stop])


def test_constraints_that_are_missing_are_written_and_the_others_not_again(
    cut_county, tmp_path: Path
) -> None:
    run, settings = cut_county
    copy = RunDirectory(Path(shutil.copytree(run.root, tmp_path / "run")))
    shard = read_shards(spine_folder(copy, "units"))[-1]
    path = constraints_file(copy, "units", shard.geolevel, shard.name)
    written = path.read_bytes()
    path.unlink()
    assert constrain_universe(copy, settings, "units") == 1
    assert path.read_bytes() == written
    invariants_file(copy).unlink()
    assert constrain_universe(copy, settings, "units") == 0, "nothing is read for what stands"


def test_what_would_be_measured_twice_is_refused(cut_county) -> None:
    run, _ = cut_county
    folder = spine_folder(run, "persons")
    spine, shards = read_spine(folder), read_shards(folder)
    check_cuts_of_spine(spine, shards, "persons")
    blocks = np.array(spine.block_geocode)
    blocks[-1] = blocks[0]
    last = spine.geolevels[-1]
    parent = np.array(last.parent)
    parent[0] = parent[-1]
    moved = replace(spine, geolevels=(*spine.geolevels[:-1], replace(last, parent=parent)))
    wider = replace(shards[-1], start=shards[-1].start - 1)
    for wrong, cuts in (
        (replace(spine, block_geocode=blocks), shards),
        (moved, shards),
        (spine, (*shards[:-1], wider)),
        (spine, (*shards, shards[-1])),
        (spine, shards[:-1]),
    ):
        with pytest.raises(BudgetRefused, match="persons spine .* twice, or lack one"):
            check_cuts_of_spine(wrong, cuts, "persons")


@pytest.mark.slow
def test_an_epsilon_under_exact_accounting_is_met_on_every_path_or_refused(cut_county) -> None:
    """Rho is found without bypass, and held to the paths of the spine before it is charged.

    Threat model: an exact epsilon below the true one.
    """
    run, settings = cut_county
    run.settings.touch()

    def with_budget(**changed: object) -> TopdownSettings:
        section = settings.budget["units"].model_copy(
            update={"rho": None, "epsilon": Fraction("2.47"), "accounting": "exact", **changed}
        )
        return settings.model_copy(update={"budget": {**settings.budget, "units": section}})

    resolved = with_budget().resolved()
    rho = resolved.budget["units"].rho
    assert rho > settings.budget["units"].rho
    assert frozen(resolved) == resolved
    plan = plan_of_run(run, resolved)
    assert [own.promised.parameter for own in plan.universes][1] == rho
    larger = with_budget(rho=rho * Fraction("1.001"))
    assert larger.resolved() == larger
    with pytest.raises(InputRefused, match="the exact epsilon is 2.47.*set geography.bypass"):
        plan_of_run(run, larger)


def frozen(settings: TopdownSettings) -> TopdownSettings:
    return TopdownSettings.model_validate(tomllib.loads(dump_settings(settings)))
