"""Names of regions, as far as their codes tell."""

from __future__ import annotations

from ...census.states import state_of

Region = tuple[str, str]
"""A region's type and id."""


def name_of_codes(region_type: str, region_id: str) -> str:
    """A name made of a region's codes, for want of a better one.

    >>> name_of_codes("TRACT", "44003020601")
    'Census Tract 206.01, County 003, Rhode Island'
    """
    kind = region_type.removeprefix("PR-")
    if kind == "USA":
        return "United States"
    if kind == "AIANNH":
        return f"AIANNH area {region_id}"
    state, rest = state_of(region_id[:2]).name, region_id[2:]
    if kind == "STATE":
        return state
    if kind == "TRACT":
        return f"Census Tract {_tract_number(rest[3:])}, County {rest[:3]}, {state}"
    return f"{'Place' if kind == 'PLACE' else 'County'} {rest}, {state}"


def _tract_number(code: str) -> str:
    """The number of a tract as it is written: 206 for 020600, 206.01 for 020601."""
    base, suffix = code[:4].lstrip("0") or "0", code[4:]
    return base if suffix == "00" else f"{base}.{suffix}"
