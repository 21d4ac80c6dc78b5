"""What the benchmarks import is there: they run by hand, so a moved name would not be noticed."""

from __future__ import annotations

import ast
import importlib
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.census.cef_tables import check_inputs

from benchmarks.nation import write_nation
from benchmarks.national_geography import (
    NationalSizes,
)

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
    facilities = result.public.filter(like="facilities_").to_numpy()
    assert units == result.histograms["units"].sum() + facilities.sum()
    assert blocks == len(result.geography) == round(8_132_968 / 1600)
    assert len(result.totals) == 51
    geocode = result.geography["block_geocode"].str
    sizes = NationalSizes().scaled(1 / 1600)
    assert (geocode[:5].nunique(), geocode[:11].nunique()) == (sizes.counties, sizes.tracts)
    assert facilities.sum(axis=0).all()
    assert result.geography["AIANNHCE"].ne("9999").any()
