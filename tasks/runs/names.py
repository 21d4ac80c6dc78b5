"""Names that people give: names of files and folders, and names for display.

Settings and declarations are checked by these types when they are read, so that nothing behind
them meets a name that leads out of a run directory.

Suggestions for misspelt names.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

MOST_BYTES = 120
"""Largest length of a name in UTF-8: file systems take 255, and files add endings to it."""

MOST_CHARACTERS = 300
"""Largest length of a name for display."""

_MARKS = " ._-"
"""Characters inside a file name, in addition to letters, their marks, and digits."""


def is_file_name(name: str) -> bool:
    """Whether a name can be a file or a folder in every run directory.

    Letters, marks and digits of any script, `_` and `-`; dots and single spaces inside.
    """
    return (
        bool(name)
        and all(mark in _MARKS or unicodedata.category(mark)[0] in "LMN" for mark in name)
        and name[0] not in " .-"
        and name[-1] not in " ."
        and not any(twice in name for twice in ("  ", ".."))
        and len(name.encode()) <= MOST_BYTES
    )


def checked_file_name(name: str) -> str:
    """A name of a file or a folder; raises ValueError with the characters that it may have."""
    if not is_file_name(name):
        raise ValueError(
            f"is no name that files can have ({printable_name(name)}): write letters, digits, "
            f"'_' and '-', with single spaces and dots inside, at most {MOST_BYTES} bytes"
        )
    return name


def checked_label(name: str) -> str:
    """A name for display; raises ValueError for characters that no page or message could show."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > MOST_CHARACTERS:
        raise ValueError(
            f"is no name that pages can show ({printable_name(name)}): write at most "
            f"{MOST_CHARACTERS} printable characters, without spaces at its ends"
        )
    return name


def printable_name(name: str) -> str:
    """A name as shown in a message: letters of any script, and escapes for the rest."""
    return repr(name[:40]) + (" and so on" if len(name) > 40 else "")


FileName = Annotated[str, AfterValidator(checked_file_name)]
"""A name that is also used for files, folders, columns and queries."""

Label = Annotated[str, AfterValidator(checked_label)]
"""A name for display in files, reports and messages, never the name of a file."""


def factors_of(name: str) -> tuple[str, ...]:
    """The factors in a query's name, whatever the spaces and the order.

    >>> factors_of("sex*age") == factors_of("age  * sex")
    True
    """
    return tuple(sorted(part.strip() for part in name.split("*")))


def match_spelling(name: str, names: Iterable[str]) -> str:
    """The first of some names with the same factors; the name itself if there is none."""
    if "*" not in name:
        return name
    factors = factors_of(name)
    return next((one for one in names if factors_of(one) == factors), name)


def below(folder: Path, *names: str) -> Path:
    """The path of a file or folder some names below another.

    Raises ValueError for a name that would lead elsewhere: settings refuse such names, so that
    one is a defect of the caller.
    """
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{printable_name(name)} would lead out of {folder.name}")
    return folder.joinpath(*names)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggestion after an unknown name: the nearest known one, or nothing.

    >>> did_you_mean("Conty", ["State", "County"])
    " (did you mean 'County'?)"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def refuse_unknown(what: str, names: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raise ValueError for the first of some names that is not known: `what` has this name, which
    is no `kind`.
    """
    for name in names:
        if name not in known:
            raise ValueError(
                f"{what} {name!r}, which is no {kind}{did_you_mean(name, known)}; there are "
                f"{', '.join(known)}"
            )


def join_words(words: Sequence[str], link: str = "and") -> str:
    """Words as a list, the last after a link.

    >>> join_words(["0-4"]), join_words(["a", "b", "c"], "or")
    ('0-4', 'a, b or c')
    """
    *others, last = words or [""]
    return f"{', '.join(others)} {link} {last}" if others else last
