"""What the benchmarks import is there: they run by hand, so a moved name would not be noticed."""

from __future__ import annotations

import ast
import importlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_tables import check_inputs

from benchmarks.declared_rows import Sizes, write_census
from benchmarks.nation import write_nation
from benchmarks.national_geography import NationalSizes
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
