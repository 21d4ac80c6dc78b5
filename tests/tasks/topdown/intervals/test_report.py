"""Intervals of measured replicates of a generated county."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import lay_out, measure, read_dataset, with_seed
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.report import write_run_intervals
from spineflow.tasks.topdown.measurement.measure import shard_histograms
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import read_shards

QUERIES = ("total", "votingage * hispanic", "hhgq")
SEEDS = range(4)


@pytest.fixture(scope="module")
def replicates(tmp_path_factory: pytest.TempPathFactory):
    """Settings and measured replicates of a small county."""
    folder = tmp_path_factory.mktemp("intervals")
    generate_county(folder / "county", persons=2000, seed=3)
    lines = [
        'preset = "pl94_2020_us"',
        "[input]",
        *(f'{name} = "{folder / "county" / name}.parquet"' for name in ("persons", "units")),
        f'geography = "{folder / "county" / "grfc.txt"}"',
        "confidential = false",
        "[privacy]",
        'dataset = "county"',
    ]
    (folder / "settings.toml").write_text("\n".join(lines) + "\n")
    settings = load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)
    dataset = read_dataset(settings, folder / "dataset")
    layout = lay_out(dataset, settings, folder / "layout")
    runs = [measure(layout, with_seed(settings, s), folder / f"measured-{s}") for s in SEEDS]
    return settings, runs


def truth_of(run, settings, universe: str, geolevel: str, query: str) -> np.ndarray:
    from spineflow.tasks.census.queries import marginal_query

    spine, schema = read_spine(spine_folder(run, universe)), settings.schema_of(universe)
    parts = [
        shard_histograms(run, universe, spine, shard, schema.n_cells).toarray()
        for shard in read_shards(spine_folder(run, universe))
        if shard.geolevel == geolevel
    ]
    return marginal_query(schema, query).answer(np.concatenate(parts))


def test_errors_are_as_large_as_their_standard_deviations(replicates, tmp_path: Path):
    """The mean square of errors over their deviations is 1; a tenth more or less is refused."""
    settings, runs = replicates
    squares: dict[str, list[np.ndarray]] = {"Block": [], "areas": []}
    covered = []
    for number, run in enumerate(runs):
        out = tmp_path / f"{number}.parquet"
        asked = list(QUERIES)
        list(write_run_intervals(run, settings, asked, geolevel="Block", out=out))
        table = pd.read_parquet(out)
        rng = np.random.default_rng(number)
        spine = read_spine(spine_folder(run, "persons"))
        area = rng.integers(0, 12, len(spine.block_geocode))
        listed = pd.DataFrame({"area": area, "block": spine.block_geocode})
        listed.to_csv(tmp_path / "areas.csv", index=False)
        out = tmp_path / f"{number}.csv"
        list(write_run_intervals(run, settings, asked, entities=tmp_path / "areas.csv", out=out))
        of_areas = pd.read_csv(out)
        for query in QUERIES:
            exact = truth_of(run, settings, "persons", "Block", query)
            part = table[table["query"] == query]
            # np.unique sorts areas as text, as the table does.
            names, place = np.unique(area.astype(str), return_inverse=True)
            sums = np.zeros((len(names), exact.shape[1]))
            np.add.at(sums, place, exact)
            for name, rows, true in (
                ("Block", part, exact.ravel()),
                ("areas", of_areas[of_areas["query"] == query], sums.ravel()),
            ):
                sd, error = rows["std_dev"].to_numpy(), rows["estimate"].to_numpy() - true
                assert np.abs(error[sd == 0]).max(initial=0.0) < 1e-6
                squares[name].append((error[sd > 0] / sd[sd > 0]) ** 2)
                lower, upper = (rows[c].to_numpy() for c in ("bounded_lower", "bounded_upper"))
                covered.append(((lower <= true) & (true <= upper)).mean())
                length = rows["upper"].to_numpy() - rows["lower"].to_numpy()
                assert (upper - lower <= length).all() and (lower >= 0).all()
    for values in squares.values():
        values = np.concatenate(values)
        allowed = 4 * np.sqrt(2 / len(values))
        assert np.abs(values.mean() - 1) < max(allowed, 0.1)
    found = np.concatenate(squares["Block"])
    assert abs(found.mean() / 1.1**2 - 1) > 0.1 and abs(found.mean() / 0.9**2 - 1) > 0.1
    assert np.mean(covered) > 0.9


def test_every_geolevel_gets_a_file_with_labels(replicates):
    settings, runs = replicates
    written = dict(write_run_intervals(runs[0], settings, ["votingage * hispanic"], level=0.95))
    spine = read_spine(spine_folder(runs[0], "persons"))
    folder = runs[0].root / "intervals" / "persons"
    assert sorted(written) == sorted(folder / f"{name}.parquet" for name in spine.names)
    table = pd.read_parquet(folder / "Tract.parquet")
    schema = settings.schema_of("persons")
    assert set(table["votingage"]) == set(schema.labels("votingage"))
    assert list(table.columns) == [
        "geocode",
        "query",
        "votingage",
        "hispanic",
        "estimate",
        "std_dev",
        "lower",
        "upper",
        "bounded_lower",
        "bounded_upper",
    ]
    units = dict(write_run_intervals(runs[0], settings, ["total"], universe="units"))
    tract = next(path for path in units if path.stem == "Tract")
    assert (pd.read_parquet(tract)["std_dev"] == 0).all()


def test_overlapping_areas_are_each_estimated(replicates, tmp_path: Path):
    settings, runs = replicates
    block = read_spine(spine_folder(runs[0], "persons")).block_geocode
    listed = pd.DataFrame(
        {"area": ["a"] * 9 + ["b"] * 9 + ["c"], "block": [*block[:9], *block[4:13], "9" * 16]}
    )
    listed.to_parquet(tmp_path / "areas.parquet")
    (out, rows), *_ = write_run_intervals(
        runs[0], settings, ["total"], entities=tmp_path / "areas.parquet"
    )
    assert out == runs[0].root / "intervals" / "entities.parquet" and rows == 3
    both = pd.read_parquet(out).set_index("geocode")
    for name in ("a", "b"):
        listed[listed["area"] == name].to_parquet(tmp_path / "one.parquet")
        one = tmp_path / f"{name}-out.parquet"
        list(
            write_run_intervals(
                runs[0], settings, ["total"], entities=tmp_path / "one.parquet", out=one
            )
        )
        alone = pd.read_parquet(one).set_index("geocode")
        for column in ("estimate", "std_dev"):
            assert np.isclose(alone.loc[name, column], both.loc[name, column])
    assert both.loc["c", "estimate"] == 0 and both.loc["c", "std_dev"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": ["sex"]}, "unknown query 'sex'"),
        ({"universe": "cats"}, "no universe 'cats'; it has persons, units"),
        ({"geolevel": "Ward"}, "no geolevel 'Ward'; it has US, State"),
        ({"level": 90.0}, "is no probability"),
        ({"out": "x.parquet"}, "One file takes one geolevel"),
        ({"entities": "absent.csv"}, "absent.csv cannot be read"),
    ],
)
def test_what_cannot_be_answered_is_refused(replicates, options, message):
    settings, runs = replicates
    asked = {"queries": ["total"], **options}
    with pytest.raises(InputRefused, match=message):
        list(write_run_intervals(runs[0], settings, asked.pop("queries"), **asked))


def test_areas_need_their_columns_and_blocks_of_the_spine(replicates, tmp_path: Path):
    settings, runs = replicates
    (tmp_path / "a.csv").write_text("name,block\nx,1\n")
    with pytest.raises(InputRefused, match="no column 'area'"):
        list(write_run_intervals(runs[0], settings, ["total"], entities=tmp_path / "a.csv"))
    (tmp_path / "b.csv").write_text("area,block\nx,1\n")
    with pytest.raises(InputRefused, match="None of the blocks"):
        list(write_run_intervals(runs[0], settings, ["total"], entities=tmp_path / "b.csv"))
