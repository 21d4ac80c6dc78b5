"""An export has the layout, the columns and the names of the published files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import frozen_settings, load_settings
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT
from spineflow.tasks.topdown.published.export import export_measurements
from spineflow.tasks.topdown.published.geounits import ShareReader
from spineflow.tasks.topdown.published.layout import partition_of
from spineflow.tasks.topdown.settings import TopdownSettings

SIZES = {"hhgq": 8, "hhinstlevels": 3, "votingage": 2, "hispanic": 2, "cenrace": 63}
DETAILED = {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63, "h1": 2}
AXES = {"Person": ("hhgq", "votingage", "hispanic", "cenrace"), "Unit": ("h1",)}


def tables(folder: Path, universe: str, kind: str):
    for path in sorted(folder.glob(f"US_{universe}_PL_PROD/*.parquet/{kind}/**/*.parquet")):
        yield path, pq.ParquetFile(path).read()


@pytest.mark.parametrize("universe", ["Person", "Unit"])
def test_columns_say_which_attributes_a_query_keeps(export, universe):
    names = set()
    for path, table in tables(export.folder, universe, "DPQuery"):
        assert table.schema.field("variance").type == "float"
        assert table.schema.field("value").type.value_type == "int64"
        assert "sign" not in table.column_names
        for row in table.select([*AXES[universe], "query_name", "query_shape"]).to_pylist():
            kept = [row[axis] for axis in AXES[universe]]
            if row["query_name"] == "detailed_dpq":
                assert kept == ["detailed"] * len(kept)
            else:
                spelt = [part for part in kept if part != "*"] or ["total"]
                assert row["query_name"] == " * ".join(spelt) + "_dpq"
            sizes = [
                1 if part == "*" else DETAILED[axis] if part == "detailed" else SIZES[part]
                for axis, part in zip(AXES[universe], kept, strict=True)
            ]
            assert row["query_shape"] == sizes
            names.add(row["query_name"])
        for lengths, shape in zip(table["value"], table["query_shape"], strict=True):
            assert len(lengths) == int(np.prod(shape.as_py()))
        assert path.parent.name == "DPQuery" or partition_of(path) in (35, 135)
    assert len(names) == (11 if universe == "Person" else 1)


WIDTHS = {"US": 1, "State": 3, "County": 9, "Tract": 12, "Block_Group": 14, "Block": 30}
"""By which readers of the published files cut geocodes."""


@pytest.mark.parametrize("universe", ["Person", "Unit"])
def test_geocodes_have_the_widths_by_which_others_cut_them(export, universe):
    codes = {level: set() for level in WIDTHS}
    for path, table in tables(export.folder, universe, "Constraint"):
        level = path.relative_to(export.folder).parts[1].removesuffix(".parquet")
        codes[level] |= set(table["geocode"].to_pylist())
    for level, width in WIDTHS.items():
        assert {len(code) for code in codes[level]} == {width}
        names = list(WIDTHS)
        for above in names[1 : names.index(level)]:
            assert {code[: WIDTHS[above]] for code in codes[level]} == codes[above]
    spine = export.run.root / "spine" / f"{universe.lower()}s"
    own = pq.read_table(spine / "geounits.parquet").to_pandas()
    assert {level: len(found) for level, found in codes.items()} == (
        own.groupby("geolevel")["geocode"].nunique().to_dict()
    )
    blocks = pq.read_table(spine / "blocks.parquet")["block_geocode"].to_pylist()
    assert {code[14:] for code in codes["Block"]} == set(map(str, blocks))
    assert {code[3:5] + code[8] for code in codes["County"]} == {"101"}


def test_constraints_are_those_of_the_published_files(export):
    found = {}
    for path, table in tables(export.folder, "Person", "Constraint"):
        level = path.relative_to(export.folder).parts[1].removesuffix(".parquet")
        for row in table.to_pylist():
            kept = tuple(row[axis] for axis in AXES["Person"])
            found.setdefault(row["query_name"], set()).add((row["sign"], kept, len(row["value"])))
            assert row["query_name"] != "total_con" or level == "US"
    assert found == {
        "total_con": {("=", ("*",) * 4, 1)},
        "nurse_nva_0_con": {("=", ("gqNursingTotal", "nonvoting", "*", "*"), 1)},
        "hhgq_total_lb_con": {(">=", ("hhgq", "*", "*", "*"), 8)},
        "hhgq_total_ub_con": {("<=", ("hhgq", "*", "*", "*"), 8)},
    }
    for _, table in tables(export.folder, "Unit", "Constraint"):
        assert set(table["query_name"].to_pylist()) == {"total_con"}


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(export, tmp_path):
    settings = frozen_settings(TopdownSettings, export.run.settings)
    with pytest.raises(InputRefused, match="is there already"):
        export_measurements(export.run, settings, export.folder)
    unfinished = RunDirectory(tmp_path / "run")
    with pytest.raises(InputRefused, match="has not measured"):
        export_measurements(unfinished, settings, tmp_path / "export")
    noiseless = settings.model_copy(
        update={"privacy": settings.privacy.model_copy(update={"infinite": True})}
    )
    with pytest.raises(InputRefused, match="no noise"):
        export_measurements(export.run, noiseless, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.fixture(scope="module")
def budgets(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("budgets") / "settings.toml"
    path.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "d"\n'
    )
    settings = load_settings(PRODUCT.settings, path, presets=PRESETS)
    return {name: settings.budget_of(name) for name in settings.run.universes}


@given(data=st.data())
def test_a_variance_in_32_bits_tells_the_exact_share(budgets, data):
    """Of successive geolevels on a path; one a tenth off is of no share, or of another."""
    budget = budgets[data.draw(st.sampled_from(["persons", "units"]))]
    names = list(budget.geolevel_shares)
    own = data.draw(st.integers(0, len(names) - 1))
    first, last = data.draw(st.integers(0, own)), data.draw(st.integers(own, len(names) - 1))
    share = sum((budget.geolevel_shares[n] for n in names[first : last + 1]), Fraction(0))
    query = data.draw(st.sampled_from(list(budget.query_shares[names[own]])))
    reader = ShareReader(budget, names[own])
    variance = np.float32([reader.noise(query, share).variance]).astype(float)
    assert reader.shares[reader.codes(query, variance)[0]] == share
    assert reader.shares[reader.codes(query, 1.1 * variance)[0]] != share
