"""What patterns cost follows from slots that are laid end to end as the book has them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from spineflow.tasks.population.estimation.pricing import slots
from spineflow.tasks.population.workload.patterns import book


def test_every_slot_has_its_places_and_every_pattern_its_slots() -> None:
    laid, patterns, masks = slots(), book().patterns, book().masks
    assert laid.place_start[0] == laid.start[0] == 0
    assert laid.place_start[-1] == laid.place.size and laid.start[-1] == laid.slot.size
    places = [laid.place[start:end] for start, end in pairwise(laid.place_start)]
    assert len(places) == len(masks)
    for own, mask in zip(places, masks, strict=True):
        assert np.array_equal(own, np.flatnonzero(mask))
    counts = np.zeros(patterns.slots.shape)
    pattern = np.repeat(np.arange(len(counts)), np.diff(laid.start))
    counts[pattern, laid.slot] = laid.number
    assert np.array_equal(counts, patterns.slots.toarray())
