"""Rules on the tables of the supplemental-dhc flow, in addition to those on census tables."""

from __future__ import annotations

from ..rules import Rule

TENURE_RULE = Rule(
    name="tenure_is_valid",
    suite="units",
    table="units",
    column="TEN",
    evidence="household_of_unknown_tenure",
    statement="TEN of a housing unit in which people live must be 1, 2, 3 or 4",
    remedy="correct TEN: 1 owned with a mortgage, 2 owned free and clear, 3 rented, 4 neither",
    allowed=(False,),
)
"""Households by tenure need it."""
