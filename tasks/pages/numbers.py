"""Privacy losses as pages and commands show them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

SIGNIFICANT = 3


def format_epsilon(value: float | str) -> str:
    """An epsilon to two decimals, as the Census Bureau prints it; below 1 to three digits.

    The word for an infinite one is kept.

    >>> format_epsilon(17.1405), format_epsilon(0.0123401), format_epsilon("inf")
    ('17.14', '0.0123', 'inf')
    """
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if value == 0 or value >= 1 else f"{value:.{SIGNIFICANT}g}"


def format_upper_bound(value: Fraction | float | str) -> str:
    """An upper bound on an epsilon in the digits of `format_epsilon`, rounded upwards.

    The shown number is thus a bound, too. The word for an infinite one is kept.

    >>> format_upper_bound(16.4601), format_upper_bound(0.0123401), format_upper_bound("inf")
    ('16.47', '0.0124', 'inf')
    """
    if isinstance(value, str):
        return value
    exact = Fraction(value)
    if 0 < exact < 1:
        return format_epsilon(float(_round_up(exact)))
    return f"{Decimal(math.ceil(100 * exact)).scaleb(-2)}"


def format_delta(value: Fraction | str | None) -> str:
    """A delta rounded up to three significant digits, in the style of 1e-10; 0 for none.

    >>> format_delta("1/10000000000"), format_delta(Fraction(9, 10)), format_delta(None)
    ('1e-10', '0.9', '0')
    """
    exact = Fraction(value or 0)
    if not exact:
        return "0"
    rounded = _round_up(exact)
    return f"{rounded:f}" if rounded >= Decimal("0.001") else f"{rounded:e}"


def format_rho(value: Fraction | str) -> str:
    """A rho, exactly as a fraction, and about how much that is; the word for an infinite one.

    >>> format_rho("293764/114921"), format_rho(Fraction(2)), format_rho("inf")
    ('293764/114921 (about 2.556)', '2', 'inf')
    """
    if value == "inf":
        return "inf"
    exact = Fraction(value)
    return str(exact) if exact.denominator == 1 else f"{exact} (about {float(exact):.4g})"


def _round_up(value: Fraction) -> Decimal:
    wide = Context(prec=40, rounding=ROUND_CEILING)
    near = wide.divide(Decimal(value.numerator), Decimal(value.denominator))
    return Context(prec=SIGNIFICANT, rounding=ROUND_CEILING).plus(near).normalize()
