"""Work of the command `design`: the best split of a budget, shown and written as settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..tasks.group_sizes import measurement as group_sizes
from ..tasks.pages.document import Section
from ..tasks.products.product import PRESETS
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_text
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import dump_settings, load_settings
from ..tasks.solvers.level_design import DesignedLevels
from ..tasks.study.settings import Criterion, Search, TuneSettings
from ..tasks.topdown.checks.accuracy.compared import compared_quantities
from ..tasks.topdown.checks.replicate import possible_estimators
from ..tasks.topdown.design.design import compared_splits, designs_of, settings_text
from ..tasks.topdown.design.settings import DesignSettings
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.spine.build import refuse_no_spine
from ..tasks.trips import charge as trips
from .console import AsJson, Overrides, SettingsFile, print_block
from .replicates import MODELS


def write_design(
    flow: Literal["topdown", "group-sizes", "trips"],
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    out: Path | None = None,
    compare: Path | None = None,
    is_json: AsJson = False,
) -> None:
    """Design the budget that a settings file has a section [design] for, and write settings.

    Reads public geography, and of housing units declared invariants, alone.

    Args:
        flow: flow
        out: settings file to write (default: SETTINGS-designed.toml)
        compare: also write settings of 'spineflow run tune', which releases the settings' own, the
            designed and an even split by every estimator; of topdown
    """
    file = out or settings_file.with_name(f"{settings_file.stem}-designed.toml")
    model, design = DESIGNED[flow]
    settings = load_settings(model, settings_file, presets=PRESETS, overrides=overrides)
    if compare is not None and flow != TopdownSettings.PRODUCT:
        raise InputRefused("--compare is for designs of topdown; leave it out.")
    text, told, sections, comparison = design(settings.resolved())
    write_text(file, text)
    if compare is not None and comparison is not None:
        write_text(compare, dump_settings(comparison()))
    if is_json:
        print(json.dumps(told, indent=2))
        return
    for section in sections:
        print_block(section)
    print(f"settings: {file}")


Designed = tuple[str, Mapping[str, Any], Sequence[Section], Callable[[], TuneSettings] | None]
"""Settings as text, the design as JSON values and for people, and what makes the settings of a
comparison of splits."""


def _budgets(settings: DesignSettings) -> Designed:
    """The budgets of universes over geolevels and queries."""
    refuse_no_spine(settings.topdown)
    designs = designs_of(settings)
    told = {name: own.to_json() for name, own in designs.items()}

    def comparison() -> TuneSettings:
        universe = next(iter(designs))
        quantity = compared_quantities(settings, universe)[0].name
        return MODELS[TopdownSettings.PRODUCT](
            input=settings.input,
            privacy=settings.privacy,
            variants=compared_splits(settings, designs),
            criterion=Criterion(
                kind="error",
                universe=universe,
                quantity=quantity,
                level=settings.compiled_census.last_geolevel,
            ),
            search=Search(method="fixed", estimators=possible_estimators(settings.topdown)),
        )

    sections = [own.section for own in designs.values()]
    return settings_text(settings, designs), told, sections, comparison


def _levels(designed: Callable[[Any], tuple[DesignedLevels, Any]], settings: Any) -> Designed:
    """The shares of the levels of group sizes or trips."""
    found, chosen = designed(settings)
    text = f"# Shares of levels: {found.certificate}.\n{dump_settings(chosen)}"
    return text, found.to_json(), [found.section], None


DESIGNED: Mapping[str, tuple[type[ProductSettings], Callable[[Any], Designed]]] = {
    TopdownSettings.PRODUCT: (DesignSettings, _budgets),
    "group-sizes": (
        group_sizes.GroupSizesDesignSettings,
        partial(_levels, group_sizes.optimize_shares),
    ),
    "trips": (trips.TripsDesignSettings, partial(_levels, trips.optimize_shares)),
}
"""By product: settings with a section [design], and the design of its budget."""
