"""Text and place of pages of expected errors."""

from __future__ import annotations

EXPECTED_TITLE = "Errors to be expected of this release"
EXPECTED_FILE = "expected_error.html"
"""File name, next to the public report."""


def expected_meaning(replicates: int) -> str:
    """Explanation of a simulation of so many replicates on a release."""
    return (
        f"How far {replicates} releases were from this one, when the mechanism was run on the "
        "released counts with fresh noise. The release is from the truth about as far. Nothing "
        "confidential was read and nothing was spent."
    )
