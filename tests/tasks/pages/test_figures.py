from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from spineflow.tasks.pages.figures import (
    COLOURS,
    WIDTH,
    bar_chart,
    line_chart,
)

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


@pytest.mark.parametrize("steps", [False, True])
def test_lines_stay_in_the_frame_and_keep_their_order(steps: bool) -> None:
    svg = line_chart(
        {"all": ([1, 10, 1000], [0, 30, 100])},
        title="t",
        x_label="x",
        y_label="y",
        log_x=True,
        steps=steps,
    )
    root = ElementTree.fromstring(svg)
    line = next(path for path in root.iter(f"{SVG}path") if path.get("fill") == "none")
    places = [float(text) for text in re.findall(r"[0-9.]+", line.get("d"))]
    xs, ys = places[::2], places[1::2]
    assert xs == sorted(xs) and ys == sorted(ys, reverse=True)
    assert xs[0] >= 0 and xs[-1] <= WIDTH
    assert (xs[1] - xs[0]) == pytest.approx((xs[2] - xs[0]) / 3, abs=0.2), "a third of 3 decades"


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


def test_one_point_can_be_drawn() -> None:
    for log in (False, True):
        svg = line_chart(
            {"s": ([3], [3])}, title="t", x_label="x", y_label="y", log_x=log, log_y=log
        )
        assert "nan" not in svg and "inf" not in svg


def test_a_line_of_one_point_is_a_dot_in_its_colour() -> None:
    """A path of no length is not seen."""
    svg = line_chart(
        {"line": ([0, 2], [0, 2]), "dot": ([1], [1])}, title="t", x_label="x", y_label="y"
    )
    (dot,) = re.findall(r'<circle cx="(.*?)" cy="(.*?)" r="4.5" fill="(.*?)"/>', svg)
    (line,) = re.findall(r'd="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)" fill="none"', svg)
    left, low, right, high = map(float, line)
    assert float(dot[0]) == pytest.approx((left + right) / 2, abs=0.1)
    assert float(dot[1]) == pytest.approx((low + high) / 2, abs=0.1)
    assert dot[2] == COLOURS[1]
