"""Charts as SVG markup for HTML pages: lines and bars.

A chart is 500 units wide, so that its text can be read on a telephone and at its natural size on
a desk. Axes carry their labels, and every chart has a title for screen readers. The places are
computed here; the template `charts.svg.j2` draws them, and escapes all texts.

No plotting library is used, for four reasons. A page must be complete in a few kilobytes and
without scripts, which rules out libraries that draw in the browser. Its text must stay text, which
can be searched, read aloud and set in the reader's font; Matplotlib sets it as outlines or assumes
fonts. The same run must give the same bytes, without dates, random identifiers or a library's
version in them. And two kinds of chart do not need a dependency of tens of megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

WIDTH = 500
CHARACTER = 7.6
"""Width to allow for a character of the charts' text."""


@cache
def _template() -> Any:
    """The template, whose macros are the charts."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
    )
    found.filters["place"] = "{:.1f}".format
    return found.get_template("charts.svg.j2").module


def line_chart(
    series: Mapping[str, tuple[Collection[float], Collection[float]]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    intervals: Mapping[str, tuple[Collection[float], Collection[float]]] | None = None,
) -> str:
    """Lines through points, one line a series of (x, y); a series of one point is a dot.

    Args:
        intervals: the lowest and the highest y of every point of some series, whose points are
            then marked.
        log_x, log_y: logarithmic axes, for positive values.

    Raises ValueError without points, for values that are not finite, and for values that are not
    positive on a logarithmic axis.
    """
    ends = intervals or {}
    xs = _finite((x for points in series.values() for x in points[0]), log=log_x)
    drawn = [*(points[1] for points in series.values()), *(y for own in ends.values() for y in own)]
    ys = _finite((y for values in drawn for y in values), log=log_y)
    keys, top = _legend(series)
    top += 26
    bottom, right = top + 220, WIDTH - 14
    y_axis = _Axis.over(ys, bottom, top, log=log_y, spacing=36, from_zero=not log_y)
    left = 12 + _width(label for _, label in y_axis.ticks())
    x_axis = _Axis.over(xs, left, right, log=log_x, spacing=56)
    lines = [
        (
            list(zip(map(x_axis, points[0]), map(y_axis, points[1]), strict=True)),
            list(zip(*(map(y_axis, own) for own in ends.get(name, ((), ()))), strict=True)),
        )
        for name, points in series.items()
    ]
    places = {"left": left, "right": right, "top": top, "bottom": bottom}
    ticks = {"x_ticks": x_axis.ticks(), "y_ticks": y_axis.ticks()}
    labels = {"x_label": x_label, "y_label": y_label}
    return str(_template().lines(title, keys, WIDTH, series=lines, **places, **ticks, **labels))


def bar_chart(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    title: str,
    value_label: str,
) -> str:
    """Horizontal bars from 0, one a series in every group, each with its value at the end.

    Raises ValueError without bars, for values that are not finite, and for negative ones.
    """
    values = _finite(value for numbers in series.values() for value in numbers)
    if min(values) < 0:
        raise ValueError("a bar cannot be negative")
    thickness, gap, between = 17, 3, 16
    keys, top = _legend(series)
    left, end = 18 + _width(groups), WIDTH - 12 - _width(map(_number, values))
    height = len(series) * (thickness + gap) - gap
    axis = _Axis.over(values, left, end, spacing=56, from_zero=True)
    rows = []
    for row, group in enumerate(groups):
        y = top + between / 2 + row * (height + between)
        bars = [
            (y + n * (thickness + gap), max(axis(own[row]) - left, 1), _number(own[row]))
            for n, own in enumerate(series.values())
        ]
        rows.append((y + height / 2, group, bars))
    bottom = top + len(groups) * (height + between)
    places = {"left": left, "top": top, "bottom": bottom, "thickness": thickness}
    shown = {"ticks": axis.ticks(), "label": value_label, "rows": rows}
    return str(_template().bars(title, keys, WIDTH, **places, **shown))


@dataclass(frozen=True)
class _Axis:
    """From values between `low` and `high` to positions between `start` and `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool
    n_ticks: int

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        start: float,
        stop: float,
        *,
        log: bool = False,
        spacing: float,
        from_zero: bool = False,
    ) -> _Axis:
        """An axis that covers the values, with ticks no closer than `spacing`."""
        low, high = min(values), max(values)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low, low + 1.0)
        axis = cls(low, high, start, stop, log, max(2, int(abs(stop - start) / spacing)))
        if log or not from_zero:
            return axis
        step = axis._step()
        low, high = (step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9))
        return cls(low, high, start, stop, log, axis.n_ticks)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels of round values on the axis, at most about `n_ticks`."""
        return [(self(value), _number(value)) for value in self._round_values()]

    def _round_values(self) -> list[float]:
        if not self.log:
            step = self._step()
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [number * step for number in range(first, last + 1)]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = range(first, last + 1)
        # The densest of these choices that the axis has room for.
        choices = [
            [digit * 10.0**k for k in decades for digit in digits] for digits in ((1, 2, 5), (1, 3))
        ]
        choices += [[10.0**k for k in decades if k % every == 0] for every in (1, 2, 5, 10, 20)]
        within = [
            [value for value in choice if self.low * 0.999 <= value <= self.high * 1.001]
            for choice in choices
        ]
        # For example, no choice has a tick between 2 and 5: then the ends show the scale.
        held = [ticks for ticks in within if ticks] or [[self.low, self.high]]
        return next((ticks for ticks in held if len(ticks) <= self.n_ticks), held[-1])

    def _step(self) -> float:
        """1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / self.n_ticks
        power = 10.0 ** math.floor(math.log10(rough))
        return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)


def _finite(given: Iterable[float], *, log: bool = False) -> list[float]:
    values = [float(value) for value in given]
    if not values:
        raise ValueError("a chart needs values")
    if not all(math.isfinite(value) and (value > 0 or not log) for value in values):
        raise ValueError("values of a chart must be finite, and positive on a logarithmic axis")
    return values


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _width(texts: Iterable[str]) -> float:
    """Width to allow for the longest of some texts."""
    return CHARACTER * max(map(len, texts))


def _legend(series: Iterable[str]) -> tuple[list[tuple[float, float, str]], float]:
    """Places and names of the keys of several series in rows, and where the drawing below may
    start."""
    keys, x, y = [], 0.0, 16.0
    for name in series:
        width = 34 + CHARACTER * len(name) + 18
        if x > 0 and x + width - 18 > WIDTH:
            x, y = 0.0, y + 22
        keys.append((x, y, name))
        x += width
    return (keys, y + 16) if len(keys) > 1 else ([], 8.0)
