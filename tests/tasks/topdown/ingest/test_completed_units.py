"""Units whose columns their members tell, as a run reads them: in one piece and in ingest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import prepare
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest import ingest
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.settings import TopdownSettings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def county(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder / "raw", persons=600, seed=2)
    synthesize_households(folder / "raw", folder, seed=3)
    open_ledger(folder / "ledger.db")
    return folder


def settings_of(folder: Path, units: str, persons: str | None) -> TopdownSettings:
    file = folder / "settings.toml"
    named = "" if persons is None else f'persons = "{persons}"\n'
    file.write_text(
        f'preset = "dhc_units_2020_us"\n[input]\nunits = "{units}"\n{named}'
        'geography = "grfc.txt"\nredistricting = "earlier"\n[privacy]\ndataset = "county"\n'
    )
    return load_settings(TopdownSettings, file, presets=PRESETS)


def written(folder: Path, name: str, units: pd.DataFrame) -> str:
    """Units in a folder of two files."""
    (folder / name).mkdir(exist_ok=True)
    half = len(units) // 2
    for number, rows in enumerate((units[:half], units[half:])):
        rows.to_parquet(folder / name / f"{number}.parquet", index=False)
    return name


def test_columns_that_differ_from_the_members_end_the_run_with_confidential_counts(
    county: Path,
) -> None:
    units = pd.read_parquet(county / "units.parquet")
    homes = np.flatnonzero(units["HHT"] > 0)
    units.loc[homes[:4], "HHT"] = 9
    wrong = written(county, "wrong", units)
    settings = settings_of(county, wrong, "persons.parquet")
    check = check_input_of(settings)
    assert [(f.column, f.count) for f in check.findings] == [("HHT", 4)]
    with pytest.raises(
        InputRefused, match="HHT of a housing unit must agree with its members"
    ) as no:
        check.accepted()
    assert "4" not in str(no.value)
    run = prepare(settings, county / "refused")
    with pytest.raises(InputRefused, match="HHT of a housing unit"):
        ingest.ingest_input(run, settings)
    found = json.loads((run.confidential / "findings.json").read_text())
    assert found[0]["count"] == 4
    assert not list(run.confidential.rglob("*.parquet"))
