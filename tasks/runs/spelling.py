"""What a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Words that follow a name that is not known: the nearest that is, or nothing.

    >>> did_you_mean("Conty", ["State", "County"])
    " (did you mean 'County'?)"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
