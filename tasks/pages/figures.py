"""Charts as SVG markup for HTML pages: lines and bars.

A chart is 500 units wide, so that its text can be read on a telephone and at its natural size on
a desk. Series differ by colour and by dash or shade, axes carry their labels, and every chart has
a title for screen readers.

No plotting library is used, for four reasons. A page must be complete in a few kilobytes and
without scripts, which rules out libraries that draw in the browser. Its text must stay text, which
can be searched, read aloud and set in the reader's font; Matplotlib sets it as outlines or assumes
fonts. The same run must give the same bytes, without dates, random identifiers or a library's
version in them. And two kinds of chart do not need a dependency of tens of megabytes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

WIDTH = 500
FONT_SIZE = 14
CHARACTER = 7.6
"""Width to allow for a character of the charts' text."""

INK, SOFT, GRID = "#1c2430", "#5b6675", "#d9dee5"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#9a4f80", "#5b6675", "#b8860b", "#1c2430")
"""Colours that are distinct for any kind of colour vision, after [ColourDesign2008]."""
DASHES = ("none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2")


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
    xs = _finite([x for points in series.values() for x in points[0]], log=log_x)
    ends = intervals or {}
    drawn = [
        *(points[1] for points in series.values()),
        *(end for own in ends.values() for end in own),
    ]
    ys = _finite([y for values in drawn for y in values], log=log_y)
    legend, top = _legend(series, _line_key)
    top += FONT_SIZE + 12
    bottom = top + 220
    y_axis = _Axis.over(ys, bottom, top, log=log_y, spacing=36, from_zero=not log_y)
    left = 12 + CHARACTER * max(len(_number(tick)) for tick in y_axis.ticks())
    right = WIDTH - 14
    x_axis = _Axis.over(xs, left, right, log=log_x, spacing=56)
    parts = [legend, svg_text(0, top - 12, y_label, fill=SOFT)]
    for tick in y_axis.ticks():
        y = y_axis(tick)
        parts.append(_rule(left, y, right, y))
        parts.append(svg_text(left - 8, y + 5, _number(tick), anchor="end", fill=SOFT))
    for tick in x_axis.ticks():
        x = x_axis(tick)
        label = _number(tick)
        parts.append(_rule(x, bottom, x, bottom + 5, SOFT))
        place = min(x, WIDTH - CHARACTER * len(label) / 2)
        parts.append(svg_text(place, bottom + 21, label, anchor="middle", fill=SOFT))
    parts.append(_rule(left, bottom, right, bottom, SOFT))
    for position, (name, points) in enumerate(series.items()):
        places = [(x_axis(x), y_axis(y)) for x, y in zip(*points, strict=True)]
        if len(places) == 1 and name not in ends:
            parts.append(_dot(*places[0], position))
            continue
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="{path}" fill="none" {_stroke(position)} stroke-linejoin="round"/>')
        if name in ends:
            heights = [(y_axis(low), y_axis(high)) for low, high in zip(*ends[name], strict=True)]
            parts.append(_marks(places, heights, COLOURS[position % len(COLOURS)]))
    parts.append(svg_text(right, bottom + 43, x_label, anchor="end", fill=SOFT))
    return svg_document(title, bottom + 52, parts)


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
    values = _finite([value for numbers in series.values() for value in numbers])
    if min(values) < 0:
        raise ValueError("a bar cannot be negative")
    thickness, gap, between = 17, 3, 16
    legend, top = _legend(series, _bar_key)
    left = 18 + CHARACTER * max(len(group) for group in groups)
    end = WIDTH - 12 - CHARACTER * max(len(_number(value)) for value in values)
    group_height = len(series) * (thickness + gap) - gap
    bottom = top + len(groups) * (group_height + between)
    axis = _Axis.over(values, left, end, spacing=56, from_zero=True)
    parts = [legend]
    for tick in axis.ticks():
        x = axis(tick)
        parts.append(_rule(x, top, x, bottom))
        parts.append(svg_text(x, bottom + 19, _number(tick), anchor="middle", fill=SOFT))
    for row, group in enumerate(groups):
        y = top + between / 2 + row * (group_height + between)
        parts.append(svg_text(left - 8, y + group_height / 2 + 5, group, anchor="end"))
        for position, numbers in enumerate(series.values()):
            length = max(axis(numbers[row]) - left, 1)
            bar_y = y + position * (thickness + gap)
            parts.append(_bar(left, bar_y, length, thickness, position))
            parts.append(svg_text(left + length + 6, bar_y + thickness - 4, _number(numbers[row])))
    parts.append(_rule(left, top, left, bottom, SOFT))
    parts.append(svg_text(WIDTH, bottom + 40, value_label, anchor="end", fill=SOFT))
    return svg_document(title, bottom + 50, parts)


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

    def ticks(self) -> list[float]:
        """Round values on the axis, at most about `n_ticks`."""
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


def _finite(values: list[float], *, log: bool = False) -> list[float]:
    if not values:
        raise ValueError("a chart needs values")
    if not all(math.isfinite(value) and (value > 0 or not log) for value in values):
        raise ValueError("values of a chart must be finite, and positive on a logarithmic axis")
    return [float(value) for value in values]


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _marks(
    places: Sequence[tuple[float, float]], heights: Sequence[tuple[float, float]], colour: str
) -> str:
    """A dot at every point, and an upright line between its ends."""
    uprights = "".join(
        f"M{x:.1f} {low:.1f}V{high:.1f}"
        for (x, _), (low, high) in zip(places, heights, strict=True)
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{colour}"/>' for x, y in places
    )
    return f'<path d="{uprights}" fill="none" stroke="{colour}" stroke-width="1.2"/>{dots}'


def _dot(x: float, y: float, position: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{COLOURS[position % len(COLOURS)]}"/>'


def _stroke(position: int) -> str:
    colour, dash = COLOURS[position % len(COLOURS)], DASHES[position % len(DASHES)]
    return f'stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}"'


def _line_key(x: float, y: float, position: int) -> str:
    return f'<path d="M{x:.1f} {y - 5:.1f}h26" fill="none" {_stroke(position)}/>'


def _bar_key(x: float, y: float, position: int) -> str:
    return _bar(x + 8, y - 11, 18, 12, position)


def _bar(x: float, y: float, width: float, height: float, position: int) -> str:
    """A filled bar; every other series is paler, with an outline, to differ without colour."""
    colour = COLOURS[position % len(COLOURS)]
    opacity = 1 if position % 2 else 0.3
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" fill-opacity="{opacity}" stroke="{colour}"/>'
    )


def _legend(
    series: Mapping[str, object], key: Callable[[float, float, int], str]
) -> tuple[str, float]:
    """Keys and names of the series in rows, and where the drawing below may start."""
    if len(series) < 2:
        return "", 8.0
    parts, x, y = [], 0.0, 16.0
    for position, name in enumerate(series):
        width = 34 + CHARACTER * len(name) + 18
        if x > 0 and x + width - 18 > WIDTH:
            x, y = 0.0, y + 22
        parts += [key(x, y, position), svg_text(x + 34, y, name)]
        x += width
    return "".join(parts), y + 16


def svg_text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK) -> str:
    """A text of a drawing."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">'
        f"{html.escape(text)}</text>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str = GRID) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>'


def svg_document(title: str, height: float, parts: Sequence[str]) -> str:
    """A drawing of `WIDTH` from its parts, with a title for screen readers."""
    title = html.escape(title, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" '
        f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT_SIZE}">'
        f"<title>{title}</title>{''.join(parts)}</svg>"
    )
