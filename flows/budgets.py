"""What the command `budget` does beside its tables: margins turned into budgets, and the curve."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ..tasks.products.product import Product
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_page
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.design.forecast import forecast_document, forecasts, simulated
from ..tasks.topdown.ingest.ingest import public_tables
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.workload.privacy_curve import privacy_curve
from .console import print_costs


def show_budget(asked: Product, settings: ProductSettings, options: Namespace) -> None:
    """What the command `budget` prints and writes, by its options."""
    if options.curve is not None:
        draw_curve(settings, Path(options.curve))
    if options.forecast is not None:
        write_forecast(settings, Path(options.forecast), options.replicates)
    if options.target:
        sentences = [needed(asked, settings, target) for target in options.target]
        together = needed_at_once(asked, settings, options.target)
        print("\n".join(f"{sentence}." for sentence in [*sentences, together] if sentence))
        return
    if options.json:
        print(json.dumps(asked.costs(settings), indent=2))
    else:
        print_costs(asked, settings)


def needed(asked: Product, settings: ProductSettings, target: str) -> str:
    """A sentence on the budget that a target WHAT=MARGIN needs; raises InputRefused."""
    if asked.needed is None:
        raise InputRefused(f"Margins cannot be turned into a budget for {asked.name}.")
    return asked.needed(settings, *_parts(target))


def needed_at_once(asked: Product, settings: ProductSettings, targets: Sequence[str]) -> str | None:
    """A sentence on the split of a budget that meets several targets; None where there is none.

    Raises InputRefused for a target that is named twice.
    """
    if asked.needed_at_once is None or len(targets) < 2:
        return None
    wanted = dict(_parts(target) for target in targets)
    if len(wanted) < len(targets):
        raise InputRefused("--target: a level is named twice; give it one margin.")
    return asked.needed_at_once(settings, wanted)


def _parts(target: str) -> tuple[str, int]:
    what, equals, margin = target.rpartition("=")
    if not equals or not margin.strip().isdigit():
        raise InputRefused(f"--target {target}: write WHAT=MARGIN with a whole margin.")
    return what.strip(), int(margin)


def draw_curve(settings: ProductSettings, file: Path) -> None:
    """Draw epsilon against delta into an SVG file; raises InputRefused where there is no curve."""
    if not isinstance(settings, TopdownSettings):
        raise InputRefused("The curve of epsilon against delta is drawn for topdown only.")
    budgets = [settings.budget_of(universe) for universe in settings.run.universes]
    curve = privacy_curve(budgets, is_exact=True)
    if curve is None:
        raise InputRefused("Without noise there is no curve to draw; leave --curve out.")
    file.write_text(curve.svg, encoding="utf-8")


def write_forecast(settings: ProductSettings, file: Path, replicates: int) -> None:
    """Write the page of what a budget will give; with replicates, a simulation of releases too.

    Raises InputRefused for other products, for runs without noise, and for replicates on
    confidential input.
    """
    if not isinstance(settings, TopdownSettings):
        raise InputRefused("--forecast: there are forecasts for topdown only.")
    if settings.privacy.infinite:
        raise InputRefused("--forecast: without noise there is nothing to forecast.")
    errors = None
    if replicates:
        with tempfile.TemporaryDirectory() as folder:
            errors = simulated(settings, replicates, Path(folder))
    found = forecasts(settings, *public_tables(settings))
    write_page(file, forecast_document(settings, found, errors))
