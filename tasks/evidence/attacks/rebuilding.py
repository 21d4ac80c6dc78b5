"""Reconstruction of people from tables, and what it tells of those of whom somebody knows a part.

People are rebuilt area by area: as the tables have them, and where that leaves several solutions,
the likeliest. They agree with true people where area and kind do, one to one.
Somebody who knows area and, say, sex and age of everybody looks them up in the rebuilt records, and
learns, say, their race; the same look-up among true people is not possible, and its precision is
what the tables would tell at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..methods.accuracy import ALL
from .reconstruction import BlockStatus, Effort, Reconstruction, joined, reconstruct
from .reidentification import (
    Guesses,
    agreement,
    composition,
    guessed,
    is_modal,
    is_unique,
    reidentify,
)
from .release import SIZES, Release, Row
from .weighing import most_likely

NAME = "reconstruction"


@dataclass(frozen=True)
class Rebuilt:
    """Areas as `reconstruct` leaves them, and with the likeliest people where several fit."""

    found: Reconstruction
    likely: Reconstruction


def rebuilt(release: Release) -> Rebuilt:
    """The attacked areas of a release, rebuilt from its tables."""
    lower, upper = release.bounds()
    own = release.comparison
    limit = np.inf if own.minutes is None else 60 * own.minutes / release.part[1]
    effort = Effort(seconds=own.seconds, all_seconds=limit)
    found = reconstruct(release.bounded_system, lower, upper, seed=own.seed, effort=effort)
    return Rebuilt(found, most_likely(release, lower, upper, found, effort))


def graded(release: Release, pieces: Sequence[Rebuilt]) -> Iterator[Row]:
    """Figures of the attacked areas rebuilt, in successive pieces, and of who is who by that."""
    found = joined(piece.found for piece in pieces)
    people = joined(piece.likely for piece in pieces)
    level, n_kinds, seed = release.smallest.level, release.n_kinds, release.comparison.seed
    at, kind = release.true
    persons = np.bincount(at, minlength=found.n_blocks)
    rebuilt_at, rebuilt_kind = (
        np.repeat(part, people.count) for part in (people.block, people.cell)
    )
    key, rebuilt_key = at * n_kinds + kind, rebuilt_at * n_kinds + rebuilt_kind
    for group, inside in _by_size(persons):
        own, other = inside[at], inside[rebuilt_at]
        if own.any():
            share = agreement(key[own], rebuilt_key[other], seed=seed)
            yield level, f"{NAME}: agreement", group, share
    inhabited = persons > 0
    for group, inside in _by_size(persons):
        if (chosen := inside & inhabited).any():
            status = found.status[chosen]
            for measure, wanted in (
                ("areas with one solution", BlockStatus.UNIQUE),
                ("areas undecided", BlockStatus.OPEN),
                ("areas without a solution found", BlockStatus.UNSOLVED),
                ("areas whose tables contradict each other", BlockStatus.IMPOSSIBLE),
            ):
                yield level, f"{NAME}: {measure}", group, float((status == wanted).mean())
    unique = found.status == BlockStatus.UNIQUE
    if len(at):
        yield level, f"{NAME}: people in areas with one solution", ALL, float(unique[at].mean())
        certain = float(found.certain.sum() / max(found.persons.sum(), 1))
        yield level, f"{NAME}: rebuilt people who are in every solution", ALL, certain
        yield level, f"{NAME}: rebuilt people who can differ", ALL, *_can_differ(found)
        yield from _who_is_who(release, unique, rebuilt_at, rebuilt_kind)


def _can_differ(found: Reconstruction) -> tuple[float, float, float]:
    """The share of the rebuilt people in which another population that fits may differ: what is
    proven, and as bounds what was found and what is proven; by the solution variability of areas.
    """
    persons = max(found.persons.sum(), 1)
    low, high = (
        float((np.minimum(variability / 100, 1) * found.persons).sum() / persons)
        for variability in found.solution_variability()
    )
    return high, low, high


def _by_size(persons: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield ALL, np.ones(len(persons), dtype=bool)
    for label, least, greatest in SIZES:
        yield label, (persons >= least) & (persons <= greatest)


def _who_is_who(
    release: Release, unique: np.ndarray, rebuilt_at: np.ndarray, rebuilt_kind: np.ndarray
) -> Iterator[Row]:
    if release.known is None or release.learned is None:
        return
    level, (at, kind) = release.smallest.level, release.true
    known, learned = release.by_kind(release.known), release.by_kind(release.learned)
    n_known = int(known.max()) + 1
    key, feature = at * n_known + known[kind], learned[kind]
    guesses = reidentify(
        key,
        rebuilt_at * n_known + known[rebuilt_kind],
        learned[rebuilt_kind],
        feature,
        seed=release.comparison.seed,
    )
    counts, areas = _compositions(release, learned)
    modal = is_modal(at, feature, counts, areas)
    groups = {
        "all": np.ones(len(at), dtype=bool),
        "not of the area's most common kind": ~modal,
        "unique, not of the most common kind": ~modal & is_unique(key),
        "the same in areas with one solution": ~modal & is_unique(key) & unique[at],
    }
    yield from _rates(level, "", guesses, groups)
    # A guess without the release: from the composition of the area without the person.
    mode, proportional = guessed(at, feature, counts, areas, leave_one_out=True)
    fixed = {name: group for name, group in groups.items() if "one solution" not in name}
    yield from _rates(level, "baseline of ", mode, fixed)
    for name, rates in proportional.rates_by_group(fixed).items():
        yield level, f"{NAME}: precision of a proportional guess", name, rates.precision


def _rates(
    level: str, before: str, guesses: Guesses, groups: dict[str, np.ndarray]
) -> Iterator[Row]:
    for name, rates in guesses.rates_by_group(groups).items():
        yield level, f"{before}{NAME}: precision of who is who", name, rates.precision
        yield level, f"{before}{NAME}: recall of who is who", name, rates.recall
        if not before:
            yield level, f"{NAME}: people", name, float(rates.people)


def _compositions(
    release: Release, learned: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """True people by area and kind: of the attacked areas, of their parents, and of all; and the
    area of each attacked one at these levels.
    """
    people, places, n = release.population.people, release.smallest, len(release.entities)
    at, kind = release.true
    feature, n_learned = learned[release.kind_of_cell[people.cell]], int(learned.max()) + 1
    counts, areas = [composition(at, learned[kind], (n, n_learned))], [np.arange(n)]
    if places.parent_level is not None:
        entity = places.entity[people.area]
        inside = entity >= 0
        shape = (int(places.parent.max()) + 1, n_learned)
        counts.append(composition(places.parent[entity[inside]], feature[inside], shape))
        areas.append(places.parent[release.entities])
    counts.append(np.bincount(feature, minlength=n_learned)[None, :])
    areas.append(np.zeros(n, dtype=np.int64))
    return counts, areas
