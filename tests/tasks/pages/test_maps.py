"""Maps: where areas come to lie, how values are classed, and what the key says."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from spineflow.tasks.pages.maps import DIVERGING, NO_VALUE, SEQUENTIAL, Area, area_map

SVG = "{http://www.w3.org/2000/svg}"


def square(x: float, y: float, size: float = 1.0) -> np.ndarray:
    corners = [(0, 0), (size, 0), (size, size), (0, size), (0, 0)]
    return np.array(corners, dtype=float) + (x, y)


def drawn(areas: list[Area], outlines: tuple[Area, ...] = (), **further) -> ElementTree.Element:
    words = {"title": "Map", "value_label": "error", "outline_label": "places", "in_degrees": False}
    return ElementTree.fromstring(area_map(areas, outlines, **words | further))


def fills(root: ElementTree.Element) -> list[str | None]:
    return [path.get("fill") for path in root.iter(f"{SVG}path")]


def points_of(path: ElementTree.Element) -> np.ndarray:
    numbers = re.findall(r"-?[\d.]+(?:e-?\d+)?", path.get("d") or "")
    return np.array(numbers, dtype=float).reshape(-1, 2)


def test_degrees_of_longitude_are_shorter_away_from_the_equator() -> None:
    (path,) = drawn([Area((square(0, 59.5),), 1.0)], in_degrees=True).iter(f"{SVG}path")
    size = np.ptp(points_of(path), axis=0)
    assert size[0] / size[1] == pytest.approx(0.5, abs=0.01)


def test_values_of_both_signs_are_classed_evenly_about_zero() -> None:
    values = [-10.0, -4.0, 0.0, 4.0, 10.0]
    root = drawn([Area((square(i, 0),), value) for i, value in enumerate(values)])
    assert fills(root) == list(DIVERGING)


def test_positive_values_go_from_pale_to_dark_and_unknown_ones_are_blank() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, float("nan")]
    root = drawn([Area((square(i, 0),), value) for i, value in enumerate(values)])
    assert fills(root) == [*SEQUENTIAL, NO_VALUE]
    assert "no value" in [text.text for text in root.iter(f"{SVG}text")]


def test_words_of_a_map_are_escaped() -> None:
    root = drawn([Area((square(0, 0),), 1.0)], title='<b> & "c"', value_label="<i>")
    assert root.get("aria-label") == '<b> & "c"'


@pytest.mark.parametrize("areas", [[], [Area(())], [Area((square(0, np.nan),))]])
def test_what_cannot_be_drawn_is_refused(areas: list[Area]) -> None:
    with pytest.raises(ValueError, match="map"):
        drawn(areas)
