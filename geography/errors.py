"""The error for a geography that cannot be made into a spine."""

from __future__ import annotations


class GeographyRefused(ValueError):
    """Geography, shares or spine rules cannot be used; the text is one public sentence.

    Geography is public, so the sentence names codes, columns and geolevels freely. Group-quarters
    facility counts, the only other input, never appear in it.
    """
