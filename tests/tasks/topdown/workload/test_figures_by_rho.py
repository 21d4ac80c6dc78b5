"""What certificates tell by rho, of every preset, as it was before exact figures stood beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import cost_of

FIGURES = json.loads(Path(__file__).with_name("figures_by_rho.json").read_text(encoding="utf-8"))
"""Of a preset and universe, to the last digit but one: processors may differ in that."""


@pytest.mark.parametrize("of", FIGURES)
def test_figures_by_rho_are_as_they_were(of: str) -> None:
    preset, universe = of.split()
    files = ("persons", "units", "geography", *(["redistricting"] if "dhc" in preset else []))
    source = {
        "preset": preset,
        "input": dict.fromkeys(files, "/nowhere"),
        "privacy": {"dataset": "d"},
    }
    loaded = load_settings(TopdownSettings, source, presets=PRESETS)
    found = cost_of(loaded, universe).as_json()
    del found["epsilon"]["exact"]
    for name, figures in FIGURES[of].items():
        assert found[name] == (
            figures if isinstance(figures, str) else pytest.approx(figures, rel=1e-14, abs=0)
        )
