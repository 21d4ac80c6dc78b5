"""Intervals of measured replicates of a generated county."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import lay_out, measure, read_dataset, with_seed
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.report import write_run_intervals
from spineflow.tasks.topdown.measurement.measure import shard_histograms
from spineflow.tasks.topdown.paths import geography_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_shards, read_spine

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
    spine, schema = read_spine(spine_folder(run, universe)), settings.schema_of(universe)
    parts = [
        shard_histograms(run, universe, spine, shard, schema.n_cells).toarray()
        for shard in read_shards(spine_folder(run, universe))
        if shard.geolevel == geolevel
    ]
    return marginal_query(schema, query).answer(np.concatenate(parts))


@pytest.mark.slow
def test_errors_are_as_large_as_their_standard_deviations(replicates, tmp_path: Path):
    """The mean square of errors over their deviations is 1; a tenth more or less is refused."""
    settings, runs = replicates
    squares: dict[str, list[np.ndarray]] = {"Block": [], "areas": []}
    covered = []
    for number, run in enumerate(runs):
        out = tmp_path / f"{number}.parquet"
        asked = list(QUERIES)
        list(write_run_intervals(run, settings, asked, where="Block", out=out))
        table = pd.read_parquet(out)
        rng = np.random.default_rng(number)
        spine = read_spine(spine_folder(run, "persons"))
        area = rng.integers(0, 12, len(spine.block_geocode))
        listed = pd.DataFrame({"area": area, "block": spine.block_geocode})
        listed.to_csv(tmp_path / "areas.csv", index=False)
        out = tmp_path / f"{number}.csv"
        list(write_run_intervals(run, settings, asked, where=tmp_path / "areas.csv", out=out))
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


@pytest.mark.slow
def test_overlapping_areas_are_each_estimated(replicates, tmp_path: Path):
    settings, runs = replicates
    block = read_spine(spine_folder(runs[0], "persons")).block_geocode
    known = read_geography(geography_file(runs[0]))["block_geocode"]
    empty = known[~known.isin(block)].iloc[0]
    listed = pd.DataFrame(
        {"area": ["a"] * 9 + ["b"] * 9 + ["c"], "block": [*block[:9], *block[4:13], empty]}
    )
    listed.to_parquet(tmp_path / "areas.parquet")
    written, *_ = write_run_intervals(
        runs[0], settings, ["total"], where=tmp_path / "areas.parquet"
    )
    out, rows = written.path, written.rows
    assert out == runs[0].root / "intervals" / "entities.parquet" and rows == 3
    both = pd.read_parquet(out).set_index("geocode")
    for name in ("a", "b"):
        listed[listed["area"] == name].to_parquet(tmp_path / "one.parquet")
        one = tmp_path / f"{name}-out.parquet"
        list(
            write_run_intervals(
                runs[0], settings, ["total"], where=tmp_path / "one.parquet", out=one
            )
        )
        alone = pd.read_parquet(one).set_index("geocode")
        for column in ("estimate", "std_dev"):
            assert np.isclose(alone.loc[name, column], both.loc[name, column])
    assert both.loc["c", "estimate"] == 0 and both.loc["c", "std_dev"] == 0


def test_shares_are_those_of_the_wholes_in_the_same_geounit(replicates, tmp_path: Path):
    settings, runs = replicates
    out = tmp_path / "shares.parquet"
    asked = ["votingage * hispanic", "votingage"]
    list(
        write_run_intervals(runs[0], settings, asked, where="Tract", share_of="votingage", out=out)
    )
    table = pd.read_parquet(out)
    parts = table[table["hispanic"].notna()]
    wholes = table[table["hispanic"].isna()].set_index(["geocode", "votingage"])
    of = wholes.loc[zip(parts["geocode"], parts["votingage"], strict=True)]
    assert np.allclose(parts["share"], parts["estimate"] / of["estimate"].to_numpy())
    assert np.allclose(parts.groupby(["geocode", "votingage"])["share"].sum(), 1.0)
    deviations = parts.groupby(["geocode", "votingage"])["share_std_dev"]
    assert np.allclose(deviations.max(), deviations.min())  # of two shares that add to one
    assert (parts["share_lower"] <= parts["share"]).all()
    assert parts["share_upper"].between(0, 1).all()
    own = table[table["query"] == "votingage"]
    assert np.allclose(own["share"], 1.0) and (own["share_std_dev"] == 0).all()


def test_pairs_of_geounits_and_of_areas_are_compared(replicates, tmp_path: Path):
    """A geounit compared with another, and the same as areas that are lists of blocks."""
    settings, runs = replicates
    spine = read_spine(spine_folder(runs[0], "persons"))
    geocode = spine.geolevel("Tract").geocode
    first, second = geocode[:2]
    pd.DataFrame({"first": [first, second], "second": [second, second]}).to_csv(
        tmp_path / "pairs.csv", index=False
    )
    asked = ["votingage", "total"]
    compare = tmp_path / "pairs.csv"
    level = "Tract of the spine"
    (written,) = write_run_intervals(runs[0], settings, asked, where=level, compare=compare)
    out, rows = written.path, written.rows
    assert out == runs[0].root / "intervals" / "persons" / f"{level}_comparisons.parquet"
    table = pd.read_parquet(out)
    assert rows == len(table) == 6
    same = table[table["first"] == second]
    assert (same["difference"] == 0).all() and (same["difference_std_dev"] == 0).all()
    assert (same["ratio"] == 1).all() and (same["p_value"] == 1).all()
    (one,) = write_run_intervals(runs[0], settings, asked, where=level, out=tmp_path / "t.parquet")
    by_tract = pd.read_parquet(one.path).set_index(["query", "votingage", "geocode"])["estimate"]
    other = table[table["first"] == first]
    for row in other.itertuples():
        ends = [by_tract.loc[(row.query, row.votingage, name)] for name in (first, second)]
        assert np.isclose(row.difference, ends[0] - ends[1])
        assert np.isclose(row.ratio, ends[0] / ends[1])
        assert row.difference_lower <= row.difference <= row.difference_upper
    names = geocode[spine.ancestors("Tract")]
    pd.DataFrame({"area": names, "block": spine.block_geocode}).to_csv(
        tmp_path / "areas.csv", index=False
    )
    (written,) = write_run_intervals(
        runs[0], settings, asked, where=tmp_path / "areas.csv", compare=compare
    )
    assert written.path == runs[0].root / "intervals" / "entities_comparisons.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(written.path), table)


def test_a_level_of_blocks_is_of_tabulation_areas(replicates):
    """Tracts that the AIAN branch divides, and block groups that the spine forms, are whole."""
    settings, runs = replicates
    spine = read_spine(spine_folder(runs[0], "persons"))
    blocks = pd.Series(np.asarray(spine.block_geocode, dtype=object))
    (of_blocks,) = write_run_intervals(runs[0], settings, ["total"], where="Block")
    values = pd.read_parquet(of_blocks.path)["estimate"].to_numpy()
    for level, width in (("Tract", 11), ("Block_Group", 12), ("State", 2)):
        (written,) = write_run_intervals(runs[0], settings, ["total"], where=level)
        table = pd.read_parquet(written.path)
        expected = pd.Series(values).groupby(blocks.str[:width]).sum()
        assert list(table["geocode"]) == list(expected.index)
        assert np.allclose(table["estimate"], expected)
        assert len(table) != len(spine.geolevel(level))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queries": ["sex"]}, "unknown query 'sex'"),
        ({"universe": "cats"}, "no universe 'cats'; it has persons, units"),
        ({"where": "Ward"}, "no geolevel 'Ward'; it has US, State"),
        ({"level": 90.0}, "is no probability"),
        ({"out": Path("x.parquet")}, "One file takes one geolevel"),
        ({"where": Path("absent.csv")}, "absent.csv is no file"),
        ({"compare": Path("pairs.csv")}, "give --geolevel or --entities with --compare"),
        ({"compare": Path("absent.csv"), "where": "Tract"}, "absent.csv is no file"),
        ({"share_of": "hhgq"}, "'total' is no part of one of 'hhgq'"),
        (
            {"share_of": "total", "compare": Path("pairs.csv"), "where": "Tract"},
            "Pairs have no shares",
        ),
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
        list(write_run_intervals(runs[0], settings, ["total"], where=tmp_path / "a.csv"))
    block = read_spine(spine_folder(runs[0], "persons")).block_geocode[0]
    for codes, words in (
        (["1"], r"list a code that is of no block of the run: '1'; write all parts"),
        ([block, "x", block[1:], "y", "z"], r"list 4 codes that are of no block.*'x', .*, and so"),
    ):
        (tmp_path / "b.csv").write_text("area;block\n" + "".join(f"a;{c}\n" for c in codes))
        with pytest.raises(InputRefused, match=words):
            list(write_run_intervals(runs[0], settings, ["total"], where=tmp_path / "b.csv"))


ROWS = [["São Brás", "01"], ["Peñafiel", "02"]]


def written(path: Path, separator: str, encoding: str, column: str = "secção") -> Path:
    lines = [f"area{separator}{column}", *(separator.join(row) for row in ROWS)]
    path.write_bytes("\r\n".join([*lines, ""]).encode(encoding))
    return path
