"""Maps: where areas come to lie, how values are classed, and what the key says."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from spineflow.tasks.pages.figures import Area, area_map


def square(x: float, y: float, size: float = 1.0) -> np.ndarray:
    corners = [(0, 0), (size, 0), (size, size), (0, size), (0, 0)]
    return np.array(corners, dtype=float) + (x, y)


def drawn(areas: list[Area], outlines: tuple[Area, ...] = (), **further) -> ElementTree.Element:
    words = {"title": "Map", "value_label": "error", "outline_label": "places", "in_degrees": False}
    return ElementTree.fromstring(area_map(areas, outlines, **words | further))


def test_words_of_a_map_are_escaped() -> None:
    root = drawn([Area((square(0, 0),), 1.0)], title='<b> & "c"', value_label="<i>")
    assert root.get("aria-label") == '<b> & "c"'


@pytest.mark.parametrize("areas", [[], [Area(())], [Area((square(0, np.nan),))]])
def test_what_cannot_be_drawn_is_refused(areas: list[Area]) -> None:
    with pytest.raises(ValueError, match="map"):
        drawn(areas)
