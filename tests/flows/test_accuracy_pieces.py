"""A large run is compared with the truth and released in pieces, with the results of the whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.flows import topdown
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.compared import (
    Piece,
    compute_figures,
    has_totals,
    totals_file,
)
from spineflow.tasks.topdown.checks.accuracy.errors import AccuracyFigures, read_figures
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.release.microdata import write_part, write_universe
from spineflow.tasks.topdown.release.tabulations.run import RunTables
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine import files
from spineflow.tasks.topdown.spine.files import RunUniverse, n_pieces

from benchmarks import nation
from tests.flows.in_process import judged_once

Compared = tuple[RunDirectory, TopdownSettings]

pytestmark = pytest.mark.soak(14)


@pytest.fixture
def cut_into_subspines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subspines of some states, so that a small nation has several."""
    monkeypatch.setattr(files, "BLOCKS_PER_SUBSPINE", 500)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A run of 51,789 persons in 51 states, compared with the truth in pieces."""
    folder = tmp_path_factory.mktemp("nation")
    with pytest.MonkeyPatch.context() as patched:
        for name in ("PERSONS", "HOUSING_UNITS"):
            patched.setattr(nation, name, getattr(nation, name) // 4)
        nation.write_nation(folder, Fraction(1, 1600))
        settings = TOPDOWN.load(folder / "settings.toml", ["release.tables=false"])
        run = prepare(settings, folder / "run")
        patched.setattr(files, "BLOCKS_PER_SUBSPINE", 500)
        with judged_once():
            # No comparison needs checks, a release, or what is guaranteed exactly.
            patched.setattr(topdown.TopdownStages, "check_and_release", lambda *_: None)
            patched.setattr(topdown.TopdownStages, "describe_spines", lambda *_: [])
            call_stages(run, settings)
    return run, settings


@pytest.fixture(scope="module")
def expected(compared: Compared) -> AccuracyFigures:
    """The figures of all its pieces."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "BLOCKS_PER_SUBSPINE", 500)
        return compute_figures(*compared)


def same(found: AccuracyFigures, expected: AccuracyFigures, *, rtol: float) -> None:
    for name in ("errors", "criterion"):
        pd.testing.assert_frame_equal(
            getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol, check_dtype=False
        )


def test_figures_of_the_pieces_are_those_of_the_whole(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = compared
    written = read_figures(run)
    assert written is not None
    assert n_pieces(run, settings, "persons") == 1
    whole = compute_figures(run, settings)
    same(written, whole, rtol=1e-6)
    levels = set(whole.errors["level"])
    assert {"AIAN area", "place"} <= levels
    assert any(level.endswith(" of the spine") for level in levels)


def test_files_in_pieces_have_the_bytes_of_the_whole(
    compared: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the row groups of Parquet, which end with the pieces."""
    run, settings = compared
    release = settings.release.model_copy(update={"tables": True})
    settings = settings.model_copy(update={"release": release})
    tables, found = RunTables(run, settings), []
    for blocks in (500, 1 << 20):
        monkeypatch.setattr(files, "BLOCKS_PER_SUBSPINE", blocks)
        shutil.rmtree(run.unchecked_release, ignore_errors=True)
        of = tables.n_pieces
        for number in range(of if of > 1 else 0):
            tables.write_piece(number, of)
            for universe in settings.run.universes:
                write_part(RunUniverse(run, settings, universe), number, of)
        with monkeypatch.context() as patched:
            patched.setattr(RunTables, "_write", None if of > 1 else RunTables._write)
            assert tables.write() == tables.files()
        for universe in settings.run.universes:
            assert write_universe(RunUniverse(run, settings, universe)).stat().st_size > 0
        written = sorted(path for path in run.unchecked_release.rglob("*") if path.is_file())
        found.append([(path.name, content_of_file(path)) for path in written])
        assert not list((run.root / "pieces").rglob("*.csv"))
    assert of == 1 and len(found[0]) == 2 * (8 + 2) + 4 * 51
    assert found[0] == found[1]


def content_of_file(path: Path) -> object:
    return pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes()


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:40])


def of_other_files(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "another"}))


@pytest.mark.parametrize("spoil", [Path.unlink, cut, of_other_files])
def test_what_is_missing_or_unusable_is_compared_again(
    compared: Compared,
    expected: AccuracyFigures,
    cut_into_subspines: None,
    spoil: Callable[[Path], None],
) -> None:
    run, settings = compared
    piece = Piece(run, settings, "persons", 3, 8)
    kept = [piece.file, totals_file(run, "persons")]
    before = [path.read_text() for path in kept]
    for path in kept:
        spoil(path)
    assert piece.cached is None and not has_totals(run, "persons")
    same(compute_figures(run, settings), expected, rtol=0)
    for path, text in zip(kept, before, strict=True):
        path.write_text(text)


def test_altered_estimates_are_compared_again(
    compared: Compared, expected: AccuracyFigures, cut_into_subspines: None
) -> None:
    run, settings = compared
    path = sorted((run.root / "estimates" / "units" / "Block").glob("*.parquet"))[0]
    bytes_before = path.read_bytes()
    table = pq.read_table(path)
    count = table["count"].to_numpy().copy()
    count[0] += 5
    pq.write_table(table.set_column(table.column_names.index("count"), "count", [count]), path)
    assert Piece(run, settings, "units", 0, 8).cached is None
    assert Piece(run, settings, "persons", 0, 8).cached is not None
    found = compute_figures(run, settings)
    assert has_totals(run, "units")
    path.write_bytes(bytes_before)
    with pytest.raises(AssertionError):
        same(found, expected, rtol=1e-6)
