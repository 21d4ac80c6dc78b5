"""What a comparison of runs of the supplemental tables shows of each."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ..ingest.files import read_plan
from ..release.report import loss_text
from ..settings import SupplementalDhcSettings

KEYS = ("table", "level", "iteration")
FIGURES = {
    "rmse": "root mean square error of the estimates",
    "rmse_noisy": "the same of the noisy values",
    "covered": "share of true values within the intervals",
}


def facts_of_run(run: RunDirectory, _settings: SupplementalDhcSettings) -> dict[str, str]:
    """What a run is, in words."""
    plan = read_plan(run)
    return {
        "loss": loss_text(plan),
        "levels": ", ".join(plan.levels),
        "tau": ", ".join(f"{name} {tau}" for name, tau in plan.taus.items()),
    }
