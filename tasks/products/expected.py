"""What pages of errors to be expected say, and where they lie."""

from __future__ import annotations

EXPECTED_TITLE = "Errors to be expected of this release"
EXPECTED_FILE = "expected_error.html"
"""Beside the public report."""


def expected_meaning(replicates: int) -> str:
    """What a simulation of so many replicates on a release means."""
    return (
        f"How far {replicates} releases were from this one, when the mechanism was run on the "
        "released counts with fresh noise. The release is from the truth about as far. Nothing "
        "confidential was read and nothing was spent."
    )
