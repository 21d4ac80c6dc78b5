"""Redundant spending on a spine: measurements of only children, who take their parents' counts."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import chain

import numpy as np

from ....geography.levels import Spine
from ...census.evidence import EvidenceTally
from ...census.invariants import block_invariants
from ...census.tables import load_geography
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...tables.findings import UnreadableInput
from ...tables.sources import input_files
from ..settings import TopdownSettings
from .build import spines_of
from .files import spine_of


def redundant_spending(settings: TopdownSettings, universe: str, spine: Spine) -> tuple[str, ...]:
    """A sentence for each geolevel that measures geounits without siblings.

    The TopDown Algorithm gives an only child the counts of its parent, so that what was measured of
    it is discarded. Each sentence says how many geounits these are, what each costs the people in
    it, and the setting that ends it. Other estimators use or make no such measurements, and with
    the bypass there are none.
    """
    if settings.run.estimator != "topdown" or settings.privacy.infinite:
        return ()
    budget = settings.budget_of(universe)
    symbol = "epsilon" if budget.is_pure else "rho"
    sentences = []
    for above, level in zip(spine.geolevels, spine.geolevels[1:], strict=False):
        n_siblings = np.bincount(level.parent, minlength=len(above))[level.parent]
        is_repeated = (n_siblings == 1) & (level.shares() > 0)
        n_repeated = int(is_repeated.sum())
        if not n_repeated:
            continue
        codes = np.unique(level.plb_share_code[is_repeated])
        costs = [budget.total * level.plb_shares[code] for code in codes]
        named = " to ".join(_shown(cost) for cost in dict.fromkeys((min(costs), max(costs))))
        sentences.append(
            f"{universe}: {n_repeated:,} of {len(level):,} geounits of {level.name} are the only "
            f"one in theirs of {above.name} and take its counts, so that their own measurements, "
            f"for {symbol} {named} each, are discarded: geography.bypass = true gives that to the "
            "geounit above"
        )
    return tuple(sentences)


def redundant_spending_of_run(run: RunDirectory, settings: TopdownSettings) -> tuple[str, ...]:
    """The sentences of all universes of a run whose spines are built."""
    universes = settings.run.universes
    return _of_spines(settings, {u: spine_of(run, u) for u in universes})


def redundant_spending_of_geography(settings: TopdownSettings) -> tuple[str, ...]:
    """The sentences before any input is read but the geography table.

    Every block is taken to have housing units and no facility. There are none where the bypass
    runs, where areas are no blocks, or where the table is not there yet.
    """
    if settings.geography.bypass or not settings.compiled_census.area_rules.have_addresses:
        return ()
    files = input_files("geography", settings.input.paths()["geography"])
    try:
        blocks = load_geography(files, EvidenceTally()).frame
        n = len(blocks)
        anywhere = block_invariants(
            blocks["block_geocode"], np.arange(n), np.zeros(n, dtype=np.int64)
        )
        spines = {
            u: spines_of(settings).spine(u, (blocks, anywhere)) for u in settings.run.universes
        }
    except (InputRefused, UnreadableInput):
        return ()
    return _of_spines(settings, spines)


def _of_spines(settings: TopdownSettings, spines: Mapping[str, Spine]) -> tuple[str, ...]:
    """The sentences of universes with these spines."""
    return tuple(chain(*(redundant_spending(settings, u, spine) for u, spine in spines.items())))


def _shown(cost: Fraction) -> str:
    return f"{float(cost):.4g}"
