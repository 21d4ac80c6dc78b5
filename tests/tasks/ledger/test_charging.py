"""A run is charged again until everything that it published is known, and never after."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger.accounting import BOUNDED, ZCDP, Guarantee
from spineflow.tasks.ledger.charging import charge_draws, is_settled, single_draw
from spineflow.tasks.ledger.digests import InputDigest
from spineflow.tasks.ledger.ledger import Draw, open_ledger, summary
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.files import sha256_of_file
from spineflow.tasks.runs.handles import made
from spineflow.tasks.runs.opening import artifact_of
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.settings import TopdownSettings


@pytest.fixture
def settings(tmp_path: Path) -> TopdownSettings:
    file = tmp_path / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "county"\n'
    )
    presets = Path(__file__).resolve().parents[3] / "flows" / "settings"
    return load_settings(TopdownSettings, file, presets=presets)


@pytest.fixture
def run(tmp_path: Path, settings: TopdownSettings) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    start_run(run, product="topdown", settings_text=dump_settings(settings))
    return run


def files_of(run: RunDirectory) -> list[Path]:
    return [run.dpqueries("persons", geolevel, "00000") for geolevel in ("US", "State")]


def charged(run: RunDirectory, settings: ProductSettings) -> None:
    guarantee = Guarantee(ZCDP, Fraction(1), BOUNDED)
    charge_draws(
        run,
        settings,
        draws=[Draw("persons", "discrete_gaussian", guarantee)],
        inputs={"persons": InputDigest("00", ())},
        files=files_of(run),
    )


def publish(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(path.as_posix().encode())


def entered(run: RunDirectory) -> None:
    run.record_stages({"measure": [artifact_of(run, made(path), 0.0) for path in files_of(run)]})


def test_a_run_is_settled_once_all_it_published_was_seen(run: RunDirectory, settings) -> None:
    charged(run, settings)
    files = files_of(run)
    for path in files:
        assert not is_settled(run, settings, files)
        with single_draw(run, settings, path):
            publish(path)
    assert not is_settled(run, settings, files)
    entered(run)
    assert is_settled(run, settings, files)


def test_what_was_published_at_a_kill_is_never_drawn_again(run: RunDirectory, settings) -> None:
    """All files are there, but the ledger was not told of the last before the kill."""
    charged(run, settings)
    first, last = files = files_of(run)
    with single_draw(run, settings, first):
        publish(first)
    publish(last)
    assert not is_settled(run, settings, files)
    charged(run, settings)
    last.unlink()
    with pytest.raises(BudgetRefused, match="never drawn again"), single_draw(run, settings, last):
        publish(last)
    datasets = summary(open_ledger(Path(settings.privacy.ledger)))["datasets"]
    assert datasets["county"]["rho"] == "1"


def test_an_altered_measurement_stops_a_run_that_has_measured(run: RunDirectory, settings) -> None:
    charged(run, settings)
    first, last = files = files_of(run)
    for path in files:
        with single_draw(run, settings, path):
            publish(path)
    entered(run)
    digest = sha256_of_file(last)
    last.write_bytes(b"altered")
    assert sha256_of_file(last) != digest
    with pytest.raises(BudgetRefused, match="is not the measurement"):
        is_settled(run, settings, files)
    run.release.mkdir()
    assert is_settled(run, settings, files)
    first.unlink()
    assert not is_settled(run, settings, files)
