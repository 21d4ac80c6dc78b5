"""A delta of one over the number of persons or more guarantees nothing to any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.flows.running import prepare
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.ingest import ingest_input, refuse_large_deltas
from spineflow.tasks.topdown.settings import TopdownSettings

ACCEPTED = "privacy.large_delta=a person may be published outright"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deltas")
    generate_county(folder, persons=FEWEST_PERSONS, seed=1)
    file = folder / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    return file


def settings_of(file: Path, *overrides: str) -> TopdownSettings:
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "is_refused"),
    [
        ((), False),
        (("budget.persons.delta=1/501",), False),
        (("budget.persons.delta=1/500",), True),
        (("budget.units.delta=1/2",), True),
        (("budget.units.delta=1/2", "run.universes=['persons']"), False),
        (("budget.persons.delta=1/500", ACCEPTED), False),
        (("budget.persons.delta=1/500", "input.confidential=false"), False),
        (
            ("budget.persons.delta=1/500", "input.confidential=false", "privacy.seed=1"),
            False,
        ),
    ],
)
def test_a_large_delta_is_refused_for_confidential_input(
    file: Path, overrides: tuple[str, ...], is_refused: bool
) -> None:
    settings = settings_of(file, *overrides)
    if not is_refused:
        refuse_large_deltas(settings, FEWEST_PERSONS)
        return
    with pytest.raises(InputRefused, match=r"budget\.\w+\.delta is not below one over the number"):
        refuse_large_deltas(settings, FEWEST_PERSONS)


@pytest.mark.slow
def test_the_ingest_refuses_it_before_anything_is_kept(file: Path, tmp_path: Path) -> None:
    settings = settings_of(file, "budget.persons.delta=1/500")
    run = prepare(settings, tmp_path / "run")
    with pytest.raises(InputRefused, match="is not below one over the number") as refused:
        ingest_input(run, settings)
    assert "500" not in str(refused.value)
    assert not (file.parent / "ledger.db").exists()
    assert not run.histogram("persons").exists()
