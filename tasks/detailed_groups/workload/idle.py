"""Settings of detailed groups that do nothing beside the parameters of `config.json`."""

from __future__ import annotations

from collections.abc import Mapping

from ...runs.errors import InputRefused
from ..settings import DetailedGroupsSettings
from .mechanism import MechanismParameters
from .regions import COARSE, PR, REGION_TYPES, US


def refuse_idle_settings(settings: DetailedGroupsSettings, parameters: MechanismParameters) -> None:
    """Refuse settings of the file that change nothing of what is measured or shown.

    Raises InputRefused for budgets, margins and thresholds of a pass that is not run, margins and
    thresholds of a level without a budget, states without the pass that has them, a chance of
    suppression where no group can be suppressed, a target for a threshold where nothing is
    suppressed, and coterminous geographies or suppression of 'alone' groups of a single region
    type.
    """
    own = settings.mechanism
    measured = {(item.region_type, item.level) for item in parameters.budgets}
    tables: dict[str, Mapping[str, object]] = {
        "budgets": own.budgets,
        "margins": own.margins or {},
        "thresholds": own.thresholds,
    }
    for key, region_types in tables.items():
        for region_type in region_types:
            region_pass = REGION_TYPES[region_type].region_pass
            if region_pass not in parameters.passes:
                switch = {US: "run_us", PR: "run_pr"}[region_pass]
                _refuse(f"mechanism.{key}.{region_type}", f"{switch} = true")
    for region_type, number in parameters.wanted.by_level:
        if (region_type, number) not in measured:
            _refuse(
                f"mechanism.margins.{region_type}.{number}", f"a budget of {region_type} above 0"
            )
    for region_type, levels in own.thresholds.items():
        for level in levels:
            if (region_type, int(level)) not in measured:
                _refuse(
                    f"mechanism.thresholds.{region_type}.{level}",
                    f"a budget of {region_type}, level {level}",
                )
    if own.states is not None and not parameters.run_us:
        _refuse("mechanism.states", "run_us = true")
    types = {region_type for region_type, _ in measured}
    has_coarse = any(REGION_TYPES[name].granularity == COARSE for name in types)
    if own.zero_suppression_chance and not has_coarse:
        _refuse("mechanism.zero_suppression_chance", "a budget of a level below the state")
    if settings.explorer.threshold is not None and not (
        parameters.zero_suppression_chance and has_coarse
    ):
        _refuse(
            "explorer.threshold",
            "suppression: a zero_suppression_chance above 0, and levels below the state",
        )
    if own.coterminous and len(types) == 1:
        _refuse("mechanism.coterminous", "budgets of two region types")


def _refuse(key: str, need: str) -> None:
    raise InputRefused(f"{key} does nothing without {need}; remove it.")
