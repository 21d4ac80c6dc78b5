from __future__ import annotations

from xml.etree import ElementTree

import pytest
from spineflow.tasks.pages.figures import WIDTH, bar_chart, line_chart

SVG = "{http://www.w3.org/2000/svg}"
CURVE = {
    "tight": ([1, 5, 10, 17], [1.0, 1e-3, 1e-6, 1e-10]),
    "simple bound": ([1, 5, 10, 17], [1.0, 1e-2, 1e-5, 1e-8]),
}


def texts(svg: str) -> list[str]:
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.get(name)) for name in names]


def test_line_chart_labels_axes_and_series() -> None:
    svg = line_chart(CURVE, title="Privacy loss", x_label="epsilon", y_label="delta", log_y=True)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == "Privacy loss"
    assert {"epsilon", "delta", "tight", "simple bound", "5", "10", "15"} <= set(texts(svg))
    assert {"1e-10", "1e-08"} & set(texts(svg))
    drawn = [path for path in root.iter(f"{SVG}path") if "L" in path.get("d") and path.get("fill")]
    assert len(drawn) == 2
    assert len({path.get("stroke") for path in drawn}) == 2
    assert len({path.get("stroke-dasharray") for path in drawn}) == 2


def test_bars_are_as_long_as_their_values() -> None:
    svg = bar_chart(
        ["place", "minor civil division"],
        {"before": [30.0, 60.0], "after": [0.0, 15.0]},
        title="Means <of> distances",
        value_label="geounits",
    )
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "Means <of> distances"
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.get("height") == "17.0"]
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[0] == pytest.approx(widths[2] / 2, abs=0.2)
    assert widths[3] == pytest.approx(widths[2] / 4, abs=0.2)
    for bar in bars:
        x, width = numbers(bar, "x", "width")
        assert x >= 0 and x + width <= WIDTH
    assert {"before", "after", "place", "minor civil division", "geounits", "60", "15"} <= set(
        texts(svg)
    )


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0])
def test_bars_that_cannot_be_drawn_are_refused(value: float) -> None:
    with pytest.raises(ValueError):
        bar_chart(["a"], {"s": [value]}, title="t", value_label="v")
    with pytest.raises(ValueError):
        bar_chart([], {}, title="t", value_label="v")


@pytest.mark.parametrize("y", [[0.0, 1.0], [float("nan"), 1.0]])
def test_logarithms_of_nothing_are_refused(y: list[float]) -> None:
    with pytest.raises(ValueError):
        line_chart({"s": ([1, 2], y)}, title="t", x_label="x", y_label="y", log_y=True)
