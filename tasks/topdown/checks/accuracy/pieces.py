"""The comparison of a large run with the truth, in pieces that workers make side by side.

A piece has some subspines of a universe's spine, and a share of its shards. What it has found is
kept in the confidential folder, with the state of the files that it read; see `kept`. What the
budget implies for a subspine depends on the others: that is worked out beforehand, from what is
public.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ....runs.directory import RunDirectory
from ...paths import geography_file, invariants_file, spine_folder
from ...settings import TopdownSettings
from ...spine.files import spine_of
from ..kept import keep, kept, state_of
from .compared import PredictedUniverse, n_compared, tallies_of_subspines, totals_of_universe
from .queries import QuerySums, add_sums, sums_of_shards
from .subspines import Totals
from .tallies import Tallies

FOLDER = "accuracy"
"""Folder of all that follows from the truth, in the confidential folder of a run."""
MOST_PIECES = 8
"""Pieces of one universe: each reads what is common to all of them, which is seconds for a
nation."""


def n_pieces(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """In how many pieces a universe is compared; one if its spine is not cut into subspines."""
    return min(MOST_PIECES, n_compared(settings, spine_of(run, universe)))


def universes_in_pieces(run: RunDirectory, settings: TopdownSettings) -> dict[str, int]:
    """The number of pieces of the universes that have several."""
    numbers = {own: n_pieces(run, settings, own) for own in settings.run.universes}
    return {universe: n for universe, n in numbers.items() if n > 1}


def totals_file(run: RunDirectory, universe: str) -> Path:
    """Where it is kept what the predictions of a universe's subspines need of each other."""
    return _folder(run) / f"{universe}-covariances.json"


def piece_file(run: RunDirectory, universe: str, number: int, of: int) -> Path:
    """Where it is kept what a piece has found."""
    return _folder(run) / f"{universe}-{number}-of-{of}.json"


def has_totals(run: RunDirectory, universe: str) -> bool:
    """Whether `write_totals` has written what still holds."""
    return kept(totals_file(run, universe), _state_of_spine(run, universe)) is not None


def write_totals(run: RunDirectory, settings: TopdownSettings, universe: str) -> Path:
    """Work out what the predictions of a universe's subspines need of each other."""
    state = _state_of_spine(run, universe)
    totals = totals_of_universe(settings, PredictedUniverse.read(run, settings, universe))
    keep(totals_file(run, universe), state, totals)
    return totals_file(run, universe)


def has_piece(run: RunDirectory, universe: str, number: int, of: int) -> bool:
    """Whether `write_piece` has written what still holds."""
    return kept(piece_file(run, universe, number, of), _state(run, universe)) is not None


def write_piece(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int, of: int
) -> Path:
    """Compare a piece of a universe with the truth."""
    state = _state(run, universe)
    sums = sums_of_shards(run, settings, universe, number, of)
    found = {
        "subspines": [own.facts() for own in _tallies(run, settings, universe, number, of)],
        "sums": [[*key, *own] for key, own in sums.items()],
    }
    keep(piece_file(run, universe, number, of), state, found)
    return piece_file(run, universe, number, of)


def tallies_of_pieces(run: RunDirectory, settings: TopdownSettings, universe: str) -> list[Tallies]:
    """The tallies of all subspines of a universe; what no piece has found is compared now."""
    of, tallies = n_pieces(run, settings, universe), list[Tallies]()
    for number, found in enumerate(_found(run, universe, of)):
        if found is None:
            tallies += _tallies(run, settings, universe, number, of)
        else:
            tallies += map(Tallies.from_facts, found["subspines"])
    return tallies


def sums_of_pieces(run: RunDirectory, settings: TopdownSettings, universe: str) -> QuerySums:
    """The errors of a universe's queries, added up; what no piece has found is compared now."""
    of, sums = n_pieces(run, settings, universe), QuerySums()
    for number, found in enumerate(_found(run, universe, of)):
        if found is None:
            add_sums(sums, sums_of_shards(run, settings, universe, number, of))
        else:
            add_sums(sums, {(own[0], own[1]): (own[2], own[3], own[4]) for own in found["sums"]})
    return sums


def _found(run: RunDirectory, universe: str, of: int) -> Iterator[dict[str, Any] | None]:
    """What is kept of every piece of a universe, in their order."""
    state = _state(run, universe)
    for number in range(of):
        yield kept(piece_file(run, universe, number, of), state)


def _tallies(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int, of: int
) -> Iterator[Tallies]:
    """The tallies of a piece's subspines."""
    whole = PredictedUniverse.read(run, settings, universe)
    n = n_compared(settings, whole.spine)
    numbers = range(n * number // of, n * (number + 1) // of)
    known = kept(totals_file(run, universe), _state_of_spine(run, universe))
    totals: Totals = (
        totals_of_universe(settings, whole)
        if known is None
        else {int(component): np.array(own) for component, own in known.items()}
    )
    return tallies_of_subspines(run, settings, whole, numbers, totals)


def _folder(run: RunDirectory) -> Path:
    return run.confidential / FOLDER / "pieces"


def _state_of_spine(run: RunDirectory, universe: str) -> str:
    return state_of(run, _files_of_spine(run, universe))


def _state(run: RunDirectory, universe: str) -> str:
    estimates = (run.root / "estimates" / universe).rglob("*.parquet")
    files = [*_files_of_spine(run, universe), run.histogram(universe), *estimates]
    return state_of(run, files)


def _files_of_spine(run: RunDirectory, universe: str) -> list[Path]:
    tables = spine_folder(run, universe).glob("*.parquet")
    files = [run.settings, geography_file(run), invariants_file(run), *tables]
    return [path for path in files if path.exists()]  # Replicates have no settings of their own.
