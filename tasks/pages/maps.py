"""Maps as SVG markup: areas filled by a value, outlines over them, and a key.

Areas are rings of points, in degrees or in any plane's units. A map is
as wide as a chart. Points that fall on one another on the page are drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .figures import INK, SOFT, WIDTH, svg_document, svg_text

TALLEST = 520
CLASSES = 5
SEQUENTIAL = ("#eff3ff", "#bdd7e7", "#6baed6", "#3182bd", "#08519c")
"""From small to large."""
DIVERGING = ("#b35806", "#f1a340", "#f7f7f7", "#998ec3", "#542788")
"""Below zero, near it, above it; distinct for any kind of colour vision."""
NO_VALUE = "#ffffff"


@dataclass(frozen=True, eq=False)
class Area:
    """The rings of an area, (n, 2) points each, and its value; NaN without a value."""

    rings: tuple[np.ndarray, ...]
    value: float = float("nan")


def area_map(
    areas: Sequence[Area],
    outlines: Sequence[Area] = (),
    *,
    title: str,
    value_label: str,
    outline_label: str = "",
    in_degrees: bool,
) -> str:
    """Areas filled by classes of their values, with `outlines` drawn around areas, and a key.

    Values of both signs get a scale that is even about zero, others one from small to large whose
    classes hold about as many areas each.

    Args:
        in_degrees: longitudes are then shortened by the cosine of the middle latitude.

    Raises ValueError without areas, and for points that are not finite.
    """
    rings = [ring for area in areas for ring in area.rings]
    if not rings:
        raise ValueError("a map needs areas")
    points = np.concatenate(rings)
    if not np.isfinite(points).all():
        raise ValueError("points of a map must be finite")
    frame = _Frame(points, in_degrees=in_degrees)
    values = np.array([area.value for area in areas], dtype=float)
    limits, colours = _classes(values)
    parts = []
    for area, value in zip(areas, values, strict=True):
        fill = NO_VALUE
        if np.isfinite(value):
            fill = colours[int(np.searchsorted(limits, value, side="left"))]
        parts.append(
            f'<path d="{frame.path(area.rings)}" fill="{fill}" fill-rule="evenodd" '
            f'stroke="{SOFT}" stroke-width="0.4"/>'
        )
    parts += [
        f'<path d="{frame.path(area.rings)}" fill="none" stroke="{INK}" stroke-width="1.6" '
        'stroke-dasharray="5 2" stroke-linejoin="round"/>'
        for area in outlines
    ]
    y = frame.height + 30
    key, y = _key(values, limits, colours, value_label, y)
    parts.append(key)
    if outlines:
        parts.append(
            f'<path d="M0 {y - 5:.0f}h26" stroke="{INK}" stroke-width="1.6" '
            f'stroke-dasharray="5 2"/>{svg_text(34, y, outline_label)}'
        )
        y += 22
    return svg_document(title, y, parts)


class _Frame:
    """From points of the areas to the page; y grows downwards there."""

    def __init__(self, points: np.ndarray, *, in_degrees: bool) -> None:
        low, high = points.min(axis=0), points.max(axis=0)
        narrowed = float(np.cos(np.radians((low[1] + high[1]) / 2))) if in_degrees else 1.0
        width, height = (high[0] - low[0]) * narrowed, high[1] - low[1]
        self.left, self.top = low[0], high[1]
        self.y_scale = min(WIDTH / max(width, 1e-12), TALLEST / max(height, 1e-12))
        self.x_scale = self.y_scale * narrowed
        self.height = self.y_scale * height

    def path(self, rings: Sequence[np.ndarray]) -> str:
        drawn = []
        for ring in rings:
            x = np.round((ring[:, 0] - self.left) * self.x_scale, 1)
            y = np.round((self.top - ring[:, 1]) * self.y_scale, 1)
            moved = np.append(True, (np.diff(x) != 0) | (np.diff(y) != 0))
            texts = [f"{a:g} {b:g}" for a, b in zip(x[moved], y[moved], strict=True)]
            drawn.append("M" + "L".join(texts) + "Z")
        return "".join(drawn)


def _classes(values: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Upper limits of all classes but the last, and the classes' colours."""
    known = values[np.isfinite(values)]
    if not known.size:
        return np.array([]), SEQUENTIAL[:1]
    if known.min() < 0:
        bound = float(np.quantile(np.abs(known), 0.95)) or float(np.abs(known).max())
        return bound * np.array([-0.6, -0.2, 0.2, 0.6]), DIVERGING
    limits = np.unique(np.quantile(known, np.arange(1, CLASSES) / CLASSES))
    limits = limits[limits < known.max()]
    return limits, SEQUENTIAL[-1 - len(limits) :]


def _key(
    values: np.ndarray, limits: np.ndarray, colours: Sequence[str], label: str, y: float
) -> tuple[str, float]:
    """The classes with their limits under a label, and the height below them."""
    known = values[np.isfinite(values)]
    parts = [svg_text(0, y, label, fill=SOFT)]
    if known.size:
        ends = [known.min(), *limits, known.max()]
        for colour, low, high in zip(colours, ends[:-1], ends[1:], strict=True):
            y += 20
            parts.append(_box(colour, y) + svg_text(34, y, f"{low:,.3g} to {high:,.3g}"))
    if known.size < values.size:
        y += 20
        parts.append(_box(NO_VALUE, y) + svg_text(34, y, "no value"))
    return "".join(parts), y + 22


def _box(colour: str, y: float) -> str:
    return (
        f'<rect x="1" y="{y - 12:.1f}" width="24" height="14" fill="{colour}" stroke="{SOFT}" '
        'stroke-width="0.6"/>'
    )
