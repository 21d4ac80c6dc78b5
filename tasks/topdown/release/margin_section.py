"""The report's part on margins: where the release lies in its intervals, and what moved it."""

from __future__ import annotations

from ...pages.document import Details, Section, Table
from .margin_files import MARGIN_LEVEL
from .margin_summary import CLASSES, MarginSummary


def margin_section(universe: str, summary: MarginSummary) -> Section:
    """Tables of a universe's margins."""
    blocks: list[str | Table | Details] = [
        "The noisy measurements alone, before counts were made whole, non-negative and consistent, "
        "give every answer an unbiased estimate with a known error. An interval around it holds "
        f"the truth with a probability of {MARGIN_LEVEL:.0%} at least. Where the release lies in "
        "the intervals of answers that are not known exactly:",
        _agreement(summary),
    ]
    if not summary.classes.empty:
        blocks += [
            "Counts cannot fall below zero, so that noise adds records where nobody of a kind "
            "lives, and takes them elsewhere. It shows where many areas are added up: areas of "
            "about the same released number of records, taken together as one.",
            Details("Released counts of areas by size, and their intervals", (_classes(summary),)),
        ]
    return Section(f"Margins of {universe}", tuple(blocks))


def _agreement(summary: MarginSummary) -> Table:
    headers = (
        "geolevel",
        "query",
        "answers",
        "below",
        "inside",
        "above",
        "estimates below zero",
    )
    rows = tuple(
        (
            row.geolevel,
            row.query,
            int(row.answers),
            *(f"{share:.1%}" for share in (row.below, row.inside, row.above, row.negative)),
        )
        for row in summary.agreement.itertuples()
    )
    return Table(headers, rows, "inside")


def _classes(summary: MarginSummary) -> Table:
    headers = (
        "records",
        "areas",
        "attribute",
        "level",
        "released",
        "estimate",
        "interval",
        "deviations from the estimate",
    )
    rows = tuple(
        (
            _class_name(int(row["class"])),
            int(row["areas"]),
            row["attribute"],
            row["label"],
            int(row["released"]),
            f"{row['estimate']:,.0f}",
            f"{row['lower']:,} to {row['upper']:,}",
            f"{(row['released'] - row['estimate']) / row['std_dev']:+.1f}",
        )
        for row in summary.classes.to_dict("records")
    )
    return Table(headers, rows, "interval")


def _class_name(first: int) -> str:
    """
    >>> _class_name(10)
    '10 to 99'
    """
    if first == 0:
        return "none"
    following = [start for start in CLASSES if start > first]
    return f"{first:,} to {following[0] - 1:,}" if following else f"{first:,} and more"
