"""Recodes from CEF codes to the levels of a schema's attributes.

Each recode is a function of one canonical text (see `tasks.tables.layouts`), evaluated once for
every distinct value of its column. It is defined, that is not negative, exactly for the texts
that the rules of `validation.rules` let pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from spineflow.tasks.census.schema import ATTRIBUTE_SIZES
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.validation.census.input_rules import ADULT_AGE, GROUP_QUARTERS_CODES

UNKNOWN = -1
"""The level of a code that no rule lets pass."""

HHGQ_BY_QGQTYP: Mapping[str | None, int] = {
    None: 0,
    **{code: hhgq for hhgq, codes in GROUP_QUARTERS_CODES.items() for code in codes},
}
"""Level of `hhgq` of each QGQTYP: 0 for a blank one (household), else the group-quarters type."""


def hhgq(qgqtyp: str | None) -> int:
    """Household (0) or group-quarters type (1 to 7)."""
    return HHGQ_BY_QGQTYP.get(qgqtyp, UNKNOWN)


def age(qage: str | None) -> int:
    """Age in years, 0 to 115."""
    return _number(qage, 0, ATTRIBUTE_SIZES["age"] - 1)


def votingage(qage: str | None) -> int:
    """Minor (0) or of voting age (1)."""
    years = age(qage)
    return years if years == UNKNOWN else int(years >= ADULT_AGE)


def hispanic(cenhisp: str | None) -> int:
    """Not Hispanic (0) or Hispanic (1)."""
    return _one_less(cenhisp, ATTRIBUTE_SIZES["hispanic"])


def cenrace(code: str | None) -> int:
    """Combination of races, 0 to 62: CENRACE less one."""
    return _one_less(code, ATTRIBUTE_SIZES["cenrace"])


def sex(qsex: str | None) -> int:
    """QSEX less one."""
    return _one_less(qsex, ATTRIBUTE_SIZES["sex"])


def occupancy(vacs: str | None) -> int:
    """Vacant (0) or occupied (1) housing unit: occupied means VACS 0."""
    vacancy = _number(vacs, 0, 9)
    return vacancy if vacancy == UNKNOWN else int(vacancy == 0)


PERSON_RECODES: Mapping[str, tuple[str, Callable[[str | None], int]]] = {
    "hhgq": ("QGQTYP", hhgq),
    "votingage": ("QAGE", votingage),
    "hispanic": ("CENHISP", hispanic),
    "cenrace": ("CENRACE", cenrace),
    "sex": ("QSEX", sex),
    "age": ("QAGE", age),
}
"""Column and recode of every attribute that a persons schema can have."""


def person_columns(attributes: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the persons table that a schema's attributes and the checks need."""
    return tuple(
        dict.fromkeys(["MAFID", "QGQTYP", *(PERSON_RECODES[name][0] for name in attributes)])
    )


def person_levels(attribute: str, columns: Mapping[str, CodedColumn]) -> np.ndarray:
    """Level of an attribute for every person, shape `(n_persons,)`, int16; -1 where unknown."""
    column, recode = PERSON_RECODES[attribute]
    return columns[column].lookup(recode, np.int16)


def _number(text: str | None, low: int, high: int) -> int:
    """The number that a canonical text spells, if it is within the bounds."""
    if text is None or len(text) > 3 or not (text.isascii() and text.isdigit()):
        return UNKNOWN
    number = int(text)
    return number if low <= number <= high else UNKNOWN


def _one_less(text: str | None, n_levels: int) -> int:
    number = _number(text, 1, n_levels)
    return number if number == UNKNOWN else number - 1
