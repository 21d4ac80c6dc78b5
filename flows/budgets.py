"""What the command `budget` does beside its tables: margins turned into budgets, and the curve."""

from __future__ import annotations

from pathlib import Path

from spineflow.flows.running import Product
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.privacy_curve import privacy_curve


def needed(asked: Product, settings: ProductSettings, target: str) -> str:
    """A sentence on the budget that a target WHAT=MARGIN needs; raises InputRefused."""
    what, equals, margin = target.rpartition("=")
    if asked.needed is None:
        raise InputRefused(f"Margins cannot be turned into a budget for {asked.name}.")
    if not equals or not margin.strip().isdigit():
        raise InputRefused(f"--target {target}: write WHAT=MARGIN with a whole margin.")
    return asked.needed(settings, what.strip(), int(margin))


def draw_curve(settings: ProductSettings, file: Path) -> None:
    """Draw epsilon against delta into an SVG file; raises InputRefused where there is no curve."""
    if not isinstance(settings, TopdownSettings):
        raise InputRefused("The curve of epsilon against delta is drawn for topdown only.")
    curve = privacy_curve([settings.budget_of(u) for u in settings.run.universes])
    if curve is None:
        raise InputRefused("Without noise there is no curve to draw; leave --curve out.")
    file.write_text(curve.svg, encoding="utf-8")
