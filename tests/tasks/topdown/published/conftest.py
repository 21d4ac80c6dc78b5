"""A run of the generated county, and its measurements in the published layout."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.product import ESTIMATE, TOPDOWN
from spineflow.tasks.topdown.published.export import export_measurements
from spineflow.tasks.topdown.published.layout import EstimateSettings

from tests.flows.in_process import judged_once, uncompared


@dataclass(frozen=True)
class Exported:
    """A run and its export; neither is to be changed."""

    run: RunDirectory
    folder: Path
    geography: Path

    def settings(self, folder: Path, *overrides: str, totals: bool = True) -> EstimateSettings:
        """Settings that estimate from measurements in a folder."""
        path = self.folder.parent / f"{folder.name}.toml"
        text = f'[input]\nmeasurements = "{folder}"\ngeography = "{self.geography}"\n'
        if totals:
            text += f'state_totals = "{self.folder / "state_totals.csv"}"\n'
        path.write_text(text, encoding="utf-8")
        return ESTIMATE.load(path, overrides)

    def estimated(self, folder: Path, into: Path, *overrides: str) -> RunDirectory:
        """The run of estimate from measurements in a folder."""
        settings = self.settings(folder, *overrides)
        run = prepare(settings, into)
        call_stages(run, settings)
        return run


def exported(county: Path, folder: Path, *overrides: str) -> Exported:
    """Measure the county with noise from a seed, and export the measurements."""
    (folder / "settings.toml").write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "county"\nseed = 5\n'
    )
    settings = TOPDOWN.load(folder / "settings.toml", overrides)
    run = prepare(settings, folder / "run")
    with judged_once():
        call_stages(run, settings, before=" (estimate|combine) ")
    export_measurements(run, settings, folder / "export")
    return Exported(run, folder / "export", county / "grfc.txt")


@pytest.fixture(scope="session")
def export(county: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The export of a run that has measured."""
    return exported(county, tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="session")
def released_export(export: Exported) -> Exported:
    """The same, once its run has gone on to its release."""
    settings = frozen_settings(TOPDOWN.settings, export.run.settings)
    with uncompared():
        call_stages(export.run, settings)
    return export


@pytest.fixture
def changed(export: Exported, tmp_path: Path) -> Callable[..., Path]:
    """Function that copies the export, with one file's table changed, and returns the copy."""

    def change(name: str, edit: Callable[[pa.Table], pa.Table]) -> Path:
        copy = tmp_path / "changed"
        shutil.copytree(export.folder, copy)
        path = copy / name
        pq.write_table(edit(pq.ParquetFile(path).read()), path)
        return copy

    return change


def same_release(one: RunDirectory, other: RunDirectory) -> bool:
    """Whether two releases have the same bytes, but for the certificates."""
    files = [
        {path.relative_to(run.release) for path in run.release.rglob("*") if path.is_file()}
        for run in (one, other)
    ]
    certificates = {Path(f"certificate.{ending}") for ending in ("html", "json", "md")}
    return files[0] == files[1] and all(
        (one.release / name).read_bytes() == (other.release / name).read_bytes()
        for name in files[0] - certificates
    )
