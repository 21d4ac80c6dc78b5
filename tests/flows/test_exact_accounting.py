"""A run whose rho follows from an epsilon by the exact curve, through the whole DAG."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.running import prepare, run_stages_here
from spineflow.tasks.ledger.curves import composed, written
from spineflow.tasks.ledger.plan import REPORT_DELTA
from spineflow.tasks.ledger.spending import spending_of
from spineflow.tasks.ledger.store import open_ledger, reading
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.workload.exact_loss import exact_curve, paths_of

from tests.flows.in_process import judged_once, uncompared

pytestmark = pytest.mark.soak(6)


def test_the_rho_of_an_epsilon_is_frozen_charged_and_certified(
    smallest_county: Path, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    tables = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
    lines = [f'{name} = "{smallest_county / table}"' for name, table in tables.items()]
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\n' + "\n".join(lines) + '\n[privacy]\ndataset = "d"\n'
        'ledger = "ledger.db"\n[release]\nmargins = false\ntables = false\n'
        '[budget.persons]\nepsilon = "17.14"\n'
        'delta = "1e-10"\naccounting = "exact"\n'
    )
    settings = TOPDOWN.load(file)
    rho = settings.budget["persons"].rho
    assert Fraction("2.7373") < rho < Fraction("2.7375"), "the preset has 2.556"
    run = prepare(settings, tmp_path / "run")
    assert frozen_settings(TopdownSettings, run.settings) == settings
    with judged_once(), uncompared():
        run_stages_here(TOPDOWN, run, settings)
    ledger = open_ledger(tmp_path / "ledger.db", must_exist=True)
    spent = summary(ledger, is_exact=True)["datasets"]["d"]
    draws = spent["products"]["topdown"]["draws"]
    assert [draw["parameter"] for draw in draws] == [str(rho), "11417641/152349649"]
    with reading(ledger) as connection:
        spending = spending_of(connection, "d")
    assert spending.is_planned and not spending.unknown
    curves = [
        exact_curve(settings.budget_of(universe), paths_of(read_spine(spine_folder(run, universe))))
        for universe in settings.run.universes
    ]
    assert [written(draw.curve) for draw in spending.draws] == list(map(written, curves))
    exact = spent["epsilon"]["exact"]
    assert exact == composed(curves).epsilon_upper(REPORT_DELTA) < spent["epsilon"]["tight"]
    text = (run.release / "certificate.md").read_text(encoding="utf-8")
    assert "The rho of persons was chosen by this exact figure" in text
    assert "is true: 89 % for persons (records of persons and units) and 58 % for units" in text
    assert "Exact epsilon for an attacker who lacks one attribute only" in text
    for page in (run.release / "certificate.html", run.report):
        drawn = page.read_text(encoding="utf-8")
        for label in ("persons, exactly, at most", "units, exactly, at least", "by guessing"):
            assert label in drawn
        assert "which of them is true: 89 %" in drawn
    assert prepare(TOPDOWN.load(file), tmp_path / "run").settings == run.settings
