"""What the benchmarks import is there: they run by hand, so a moved name would not be noticed."""

from __future__ import annotations

import ast
import importlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.geography.categories import off_spine_categories
from spineflow.geography.hierarchy import BlockCodes
from spineflow.geography.rules import SpineRules
from spineflow.tasks.census.inputs import check_inputs
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.ingest import public_shape
from spineflow.tasks.trips.settings import TripsSettings

from benchmarks.declared_rows import Sizes, write_census
from benchmarks.generated_trees import DENSITIES, PARTITIONS, generate_tree
from benchmarks.nation import write_nation
from benchmarks.national_geography import (
    AIAN_RANGES,
    STRONG_MCD_STATES,
    NationalSizes,
    generate_geography,
)
from benchmarks.raw_table_engines import WAYS, Tables

FOLDER = Path(__file__).parents[1] / "benchmarks"
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "mutants")
"""All but the one that asks the tests of a clone."""


def names_of_ours(file: Path) -> set[tuple[str, str]]:
    """Module and name of everything a file imports from this project, at any depth."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in ("spineflow", "benchmarks", "tests")
        for alias in node.names
    }


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_is_there(file: Path) -> None:
    imported = names_of_ours(file)
    assert imported or "__main__" not in file.read_text(encoding="utf-8")
    for module, name in sorted(imported):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


@pytest.mark.slow
def test_a_generated_nation_is_an_input(tmp_path: Path) -> None:
    persons, units, blocks = write_nation(tmp_path, Fraction(1, 1600))
    tables = {name: str(tmp_path / name) for name in ("persons", "units", "geography")}
    result = check_inputs(**tables).accepted()
    assert persons == round(331_449_281 / 1600) == result.histograms["persons"].sum()
    assert result.histograms["units"].sum() == round(140_498_736 / 1600)
    facilities = result.invariants.filter(like="facilities_").to_numpy()
    assert units == result.histograms["units"].sum() + facilities.sum()
    assert blocks == len(result.geography) == round(8_132_968 / 1600)
    assert len(result.state_totals) == 51
    geocode = result.geography["block_geocode"].str
    sizes = NationalSizes().scaled(1 / 1600)
    assert (geocode[:5].nunique(), geocode[:11].nunique()) == (sizes.counties, sizes.tracts)
    assert facilities.sum(axis=0).all()
    assert result.geography["AIANNHCE"].ne("9999").any()


def spoil(file: Path, columns: dict[str, tuple[int, object]]) -> None:
    """Give some first rows of a table's columns another value."""
    table = pq.read_table(file)
    for name, (n_rows, value) in columns.items():
        values = [value] * n_rows + table[name].to_pylist()[n_rows:]
        column = pa.array(values, table.schema.field(name).type)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, file)


@pytest.fixture(scope="module")
def raw_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    """Folders of raw tables by kind, and whether they break rules."""
    root, found = tmp_path_factory.mktemp("raw"), {}
    for is_spoilt in (False, True):
        nation, rows = (root / f"{kind}-{is_spoilt}" for kind in ("cef", "rows"))
        write_nation(nation, Fraction(1, 1600))
        rows.mkdir()
        write_census(rows, Sizes(3_000, partitions=3, areas=2_000))
        found |= {("cef", is_spoilt): nation, ("rows", is_spoilt): rows}
        if is_spoilt:
            spoil(nation / "units" / "02.parquet", {"OIDTB": (3, 7), "VACS": (9, 1)})
            units = pq.read_table(nation / "units" / "01.parquet")
            vacant = units.filter(np.asarray(units["VACS"]) > 0)
            again = pa.concat_tables([units, vacant.slice(0, 4)])
            pq.write_table(again, nation / "units" / "01.parquet")
            spoil(nation / "persons" / "04.parquet", {"MAFID": (5, None), "QGQTYP": (8, 301)})
            spoil(nation / "persons" / "05.parquet", {"MAFID": (6, 1)})
            broken = {"n": (2, -1), "sex": (3, "X"), "age": (4, 111), "area": (5, "7")}
            spoil(rows / "people" / "001.parquet", broken)
    return found


@pytest.mark.slow
@pytest.mark.soak(3)
@pytest.mark.parametrize("kind", ["cef", "rows"])
@pytest.mark.parametrize("engine", ["duckdb", "polars", "acero"])
def test_engines_find_what_arrays_find(
    engine: str, kind: str, raw_tables: dict[tuple[str, bool], Path], tmp_path: Path
) -> None:
    if engine != "acero":
        pytest.importorskip(engine)
    for is_spoilt in (False, True):
        tables = Tables.of(raw_tables[kind, is_spoilt], tmp_path, "1GB")
        expected, found = (WAYS[name][kind](tables) for name in ("arrays", engine))
        assert found.rules == expected.rules
        assert any(expected.rules.values()) == is_spoilt
        if not is_spoilt:
            assert found.told() == expected.told()


SIZES = NationalSizes().scaled(1 / 256)


def test_sizes_and_repeatability():
    geography, facilities = generate_geography(SIZES, seed=4)
    again, facilities_again = generate_geography(SIZES, seed=4)
    pd.testing.assert_frame_equal(geography, again)
    np.testing.assert_array_equal(facilities, facilities_again)
    assert len(geography) == len(facilities) == SIZES.blocks == round(5_900_000 / 256)
    codes = BlockCodes(geography)
    assert codes.tract[-1] + 1 == SIZES.tracts
    assert codes.county[-1] + 1 == SIZES.counties
    assert len(np.unique(codes.state)) == 51
    assert all(isinstance(dtype, pd.StringDtype) for dtype in geography.dtypes)


def test_entities_break_nesting():
    sizes = replace(SIZES, counties=200)
    geography, _ = generate_geography(sizes, seed=4)
    rules = SpineRules(aian_ranges=AIAN_RANGES, strong_mcd_states=STRONG_MCD_STATES)
    categories = {category.name: category for category in off_spine_categories(geography, rules)}
    codes = BlockCodes(geography)

    def share_across(category, geounit) -> float:
        """Share of the category's entities that lie in more than one of the geounits."""
        pairs = pd.DataFrame({"entity": category.entity, "geounit": geounit})
        counts = pairs.drop_duplicates().groupby("entity")["geounit"].size()
        return float((counts[category.targeted()] > 1).mean())

    assert share_across(categories["place"], codes.tract) > 0.5
    assert share_across(categories["place"], codes.county) > 0.02
    assert share_across(categories["mcd"], codes.tract) > 0.1
    assert share_across(categories["mcd"], codes.county) == 0
    assert share_across(categories["aian"], codes.tract) > 0.3


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("density", DENSITIES)
def test_partition_and_density(partition: str, density: str, tmp_path: Path) -> None:
    file = generate_tree(tmp_path, partition, density, areas=60)
    trips = pd.read_parquet(tmp_path / "trips.parquet")
    areas = pd.read_csv(tmp_path / "areas.csv", dtype=str)
    n = int((areas["level"] == areas["level"].iloc[-1]).sum())
    assert len(trips) == round(n * n * DENSITIES[density])
    assert not trips.duplicated(["origin", "destination"]).any()
    assert trips["count"].min() >= 1
    children = areas[areas["parent"].notna()].groupby("parent").size()
    assert set(children) == {2} if partition == "binary" else set(children) <= set(range(2, 11))
    tree = public_shape(load_settings(TripsSettings, file, presets=tmp_path)).tree
    assert tree.depth == (16 if partition == "binary" else 8)
    assert tree.n_nodes(tree.depth) == n * n


@pytest.mark.parametrize("density", ["complete", "sparse"])
def test_flows_are_like_the_published_ones(density: str, shared: Path, tmp_path: Path) -> None:
    generate_tree(tmp_path, "random", density)
    found = pd.read_parquet(tmp_path / "trips.parquet")["count"]
    published = pd.read_parquet(shared / "data" / "trips" / f"random_{density}.parquet")["COUNT"]
    assert found.mean() == pytest.approx(published.mean(), rel=0.1)
    for part in (0.25, 0.5, 0.75, 0.9, 0.99):
        assert found.quantile(part) == pytest.approx(published.quantile(part), rel=0.15, abs=1)
