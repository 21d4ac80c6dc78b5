"""Work of the command `budget` in addition to its tables: budgets for margins, and the curve."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..tasks.pages.document import Document, Section
from ..tasks.products.budget import costs_to_json
from ..tasks.products.privacy_curves import delta_chart, trade_offs
from ..tasks.products.product import Caution, Product, product
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_page
from ..tasks.runs.settings import ProductSettings
from ..tasks.topdown.settings import TopdownSettings
from .console import AsJson, FlowName, Overrides, SettingsFile, print_block, print_costs


def show_budget(
    flow: FlowName,
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    is_json: AsJson = False,
    target: tuple[str, ...] = (),
    curve: Path | None = None,
    forecast: Path | None = None,
) -> None:
    """Show the cost of a run: rho, epsilon, sigma of every query.

    Show the cost of a run and the width of its noise. Reads nothing confidential, spends nothing.

    Args:
        target: 95 % margin of error of an answer, ANSWER=MARGIN, whose budget is shown: for example
            persons:County:total=25 of topdown, TRACT:2=11 of detailed-groups, county=40 of
            group-sizes, 8=30 (a level) of trips, or one of these after PRODUCT: of products; may be
            given several times, for which group-sizes and trips also show the best split
        curve: also write an HTML page with delta over epsilon, and the errors of the best test of
            one record
        forecast: also write an HTML page with the expected errors of topdown's estimates
    """
    asked = product(flow)
    settings = asked.load(settings_file, overrides)
    meaning: tuple[str, ...] = ()
    if curve is not None:
        meaning = write_curve(asked, settings, curve)
    if forecast is not None:
        write_forecast(settings, forecast)
    if target:
        for sentence in asked.needed(settings, wanted_margins(target)):
            print(f"{sentence}.")
        return
    if is_json:
        print(json.dumps(costs_to_json(asked.costs(settings)), indent=2))
    else:
        print_costs(asked, settings)
        for sentence in meaning:
            print(sentence)


def wanted_margins(targets: Sequence[str]) -> dict[str, int]:
    """The margins of targets ANSWER=MARGIN; raises InputRefused for one that is named twice."""
    found: dict[str, int] = {}
    for target in targets:
        what, equals, margin = target.rpartition("=")
        if not equals or not margin.strip().isdigit():
            raise InputRefused(f"--target {target}: write ANSWER=MARGIN with a whole margin.")
        if found.setdefault(what.strip(), int(margin)) != int(margin):
            raise InputRefused("--target: a level is named twice; give it one margin.")
    return found


def write_curve(asked: Product, settings: ProductSettings, file: Path) -> tuple[str, ...]:
    """Write a page with delta over epsilon, and the errors of the best test of one record.

    Returns their meaning for one person, in sentences. Raises InputRefused without a known
    curve.
    """
    curves = asked.curves(settings)
    if curves is None:
        raise InputRefused(
            f"There is no curve to draw of {asked.name} with these settings; leave --curve out."
        )
    chart = delta_chart(curves, curves.known)
    tests = trade_offs(curves.tested, curves.others, curves.question) if curves.tested else ()
    section = Section("Privacy curve", (*tests, chart))
    write_page(file, Document("The guarantee of the budget", (), (section,), settings.stamp))
    return tests[:2]


def write_forecast(settings: ProductSettings, file: Path) -> None:
    """Write the page of a budget's forecast.

    Universes whose queries distinguish too many combinations of levels are left out with a note;
    without any other there is no page. Raises InputRefused for other products, and for runs without
    noise.
    """
    # Only forecasts need topdown's design, whose solvers are slow to import.
    # 1.3 s
    from ..tasks.topdown.design.forecast import Forecast, forecast_document, forecasts
    from ..tasks.topdown.design.problem import TooManyCombinations
    from ..tasks.topdown.ingest.ingest import public_tables
    from ..tasks.topdown.release.spine_summary import areas_section

    if not isinstance(settings, TopdownSettings):
        raise InputRefused("--forecast: there are forecasts for topdown only.")
    if settings.privacy.infinite:
        raise InputRefused("--forecast: without noise there is nothing to forecast.")
    found: list[Forecast] = []
    refused: dict[str, str] = {}
    tables = public_tables(settings)
    for universe in settings.run.universes:
        try:
            found += forecasts(settings, universe, tables)
        except TooManyCombinations as error:
            refused[universe] = f"There is no forecast of {universe}: {error}."
            print_block(Caution(refused[universe]))
    if found:
        areas = [areas_section(settings, universe, tables) for universe in settings.run.universes]
        write_page(file, forecast_document(settings, found, refused, areas))
