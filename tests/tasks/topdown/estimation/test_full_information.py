from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.objects import read_arrays, write_arrays
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import (
    lay_out,
    measure,
    read_dataset,
    with_estimator,
    with_seed,
)
from spineflow.tasks.topdown.estimation.estimate import ShardInput
from spineflow.tasks.topdown.estimation.full_information import (
    combine_shard,
    estimate_shard,
    margins_first,
)
from spineflow.tasks.topdown.estimation.parent import Passes
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.estimation.query_algebra import QueryAlgebra
from spineflow.tasks.topdown.estimation.spine_estimates import (
    Group,
    GroupedEstimates,
    LinearEstimates,
)
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import RunUniverse, read_shards

NAMES = ("total", "hhinstlevels", "hhgq", "hispanic * cenrace", "votingage", "detailed")


@pytest.fixture(scope="module")
def algebra() -> QueryAlgebra:
    queries = [marginal_query(PERSONS, name) for name in NAMES]
    forbidden = PERSONS.cells_where({"hhgq": (3,), "votingage": (0,)})
    return QueryAlgebra.build(PERSONS, queries, PERSONS.levels("hhgq"), forbidden)


def test_margins_come_first_at_the_root_where_races_are_kept(algebra):
    def measured(*names):
        queries = {name: marginal_query(PERSONS, name) for name in names}
        return {n: QueryMeasurement(q, np.zeros(0), np.zeros(0)) for n, q in queries.items()}

    names = ("total", "hhgq", "hispanic * cenrace", "votingage", "cenrace", "detailed")
    found = margins_first(Passes((names, ("absent",)), ()), measured(*names), algebra)
    rest = ("hispanic * cenrace", "cenrace", "detailed")
    assert found.least_squares == (("total",), ("hhgq", "votingage"), rest, ("absent",))
    for alone in (("total", "detailed"), ("hhgq", "votingage")):
        passes = Passes((alone,), ())
        assert margins_first(passes, measured(*alone), algebra) is passes


def test_combined_files_come_back(algebra, tmp_path: Path):
    rng = np.random.default_rng(4)
    type_is_possible = np.zeros((5, 8), dtype=bool)
    type_is_possible[:, 0] = True
    type_is_possible[[1, 4], 3] = True
    groups = []
    for rows in (np.array([0, 2, 3]), np.array([1, 4])):
        cells = algebra.cells_of(type_is_possible[rows[0]])
        square = (rows.size, 4, cells.size, cells.size)
        estimates = LinearEstimates(
            rng.normal(size=(rows.size, cells.size, 126)), rng.normal(size=square), np.zeros(square)
        )
        estimates.diffuse[1] = rng.normal(size=square[1:])
        groups.append(Group(rows, cells, estimates))
    written = GroupedEstimates(algebra, type_is_possible, tuple(groups))
    for number, part in enumerate((written.part(1, 2), written.part(3, 5))):
        write_arrays(tmp_path / str(number), part.to_arrays())
    found = GroupedEstimates.joined(
        [GroupedEstimates.of_arrays(algebra, read_arrays(tmp_path / number)) for number in "01"]
    )
    assert np.array_equal(found.type_is_possible, type_is_possible[[1, 3, 4]])
    assert np.allclose(found.means(), written.means()[[1, 3, 4]])
    wide = {group.cells.size: group for group in found.groups}
    assert np.array_equal(wide[3].estimates.variance[0], groups[1].estimates.variance[0])
    assert np.array_equal(wide[3].estimates.diffuse[1], groups[1].estimates.diffuse[1])
    assert not wide[2].estimates.diffuse.any()


@pytest.fixture(scope="module")
def measured(county: Path, tmp_path_factory: pytest.TempPathFactory):
    """Settings and a measured replicate of the generated county."""
    folder = tmp_path_factory.mktemp("full")
    text = (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "county"\n'
    )
    (folder / "settings.toml").write_text(text)
    settings = load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)
    settings = with_seed(with_estimator(settings, "full_information"), 5)
    dataset = read_dataset(settings, folder / "dataset")
    layout = lay_out(dataset, settings, folder / "layout")
    return settings, measure(layout, settings, folder / "measured")


@pytest.mark.slow
def test_combining_again_or_estimating_elsewhere_gives_the_same_bytes(measured, tmp_path: Path):
    settings, run = measured
    shards = read_shards(spine_folder(run, "persons"))
    contents = []
    for copy in ("one", "two"):
        other = replace(run, root=tmp_path / copy)
        other.root.mkdir()
        for name in ("spine", "measurements"):
            (other.root / name).symlink_to(run.root / name)
        universe = RunUniverse(other, settings, "persons")
        for shard in reversed(shards[1:]):
            combine_shard(ShardInput.read(universe, shard))
        for shard in shards:
            estimate_shard(ShardInput.read(universe, shard))
        contents.append(
            {
                path.relative_to(other.root): path.read_bytes()
                for name in ("combined", "estimates")
                for path in sorted((other.root / name).rglob("*"))
                if path.is_file()
            }
        )
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3 * len(shards) - 2
