"""All figures of a comparison as one table: method, strength, draw, level, measure, group, value.

Measures of attacks have rows of the methods `baseline` and `ceiling` for the same level and group:
the result of a guesser without the release, and of the same attack on the true tables.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ..ingest import evidence_file, figures_file
from ..methods.publish import ACCURACY, draws_of, read_figures
from ..settings import EvidenceSettings

COLUMNS = ("method", "strength", "draw", "level", "measure", "group", "value", "low", "high")
BASELINE, CEILING = "baseline", "ceiling"
"""Methods of reference rows of an attack."""
_BESIDE = f"{BASELINE} of "
"""Begins a measure of a baseline, as attacks keep it."""


def write_evidence(run: RunDirectory, settings: EvidenceSettings) -> Path:
    """Write all figures of the releases, each attack's with its baseline and ceiling."""
    rows = list[tuple]()
    for draw in draws_of(settings):
        method = settings.methods[draw.method]
        label = method.strengths[draw.strength]
        for what in (ACCURACY, *settings.evidence.attacks):
            path = figures_file(run, draw, what)
            if path.exists():
                # Figures without bounds are shorter.
                without = [np.nan, np.nan]
                rows += [
                    (draw.method, label, draw.number, *[*own, *without][:6])
                    for own in read_figures(path)
                ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = _with_references(table, settings)
    path = evidence_file(run)
    with replacing(path) as part:
        table.to_csv(part, index=False)
    return path


def read_evidence(run: RunDirectory) -> pd.DataFrame:
    """The table that `write_evidence` has written."""
    texts = {"strength": str, "group": str, "level": str}
    # A method of a single strength has no strength in the table.
    return pd.read_csv(evidence_file(run), dtype=texts).fillna({"strength": ""})


def _with_references(table: pd.DataFrame, settings: EvidenceSettings) -> pd.DataFrame:
    """The table with baselines and ceilings as methods of their own.

    A baseline does not see the release, so that all releases have the same one; the first is taken.
    """
    is_baseline = table["measure"].str.startswith(_BESIDE)
    keys = ["level", "measure", "group"]
    baselines = table[is_baseline].drop_duplicates(keys)
    baselines = baselines.assign(
        method=BASELINE, strength="", draw=0, measure=baselines["measure"].str[len(_BESIDE) :]
    )
    own = table[~is_baseline]
    attacked = set(zip(*(baselines[key] for key in keys), strict=True))
    unprotected = next(
        name for name, method in settings.methods.items() if method.kind == "nothing"
    )
    places = pd.Series(list(zip(*(own[key] for key in keys), strict=True)), index=own.index)
    ceilings = own[(own["method"] == unprotected) & places.isin(attacked)]
    ceilings = ceilings.assign(method=CEILING, strength="", draw=0)
    return pd.concat([own, baselines, ceilings], ignore_index=True)
