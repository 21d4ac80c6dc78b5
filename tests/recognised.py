"""Whether a ledger would take the people of one input for those of another."""

from __future__ import annotations

from spineflow.tasks.ledger.recognition import ENOUGH_WEAK, InputDigest


def recognises(known: InputDigest, asked: InputDigest) -> bool:
    """Whether people who are asked for are those of a dataset, as the ledger decides it."""
    of_known = {known.whole, *known.parts, *known.weak, *known.filling}
    return bool(of_known & {asked.whole, *asked.parts}) or (
        len(of_known & {*asked.weak}) >= ENOUGH_WEAK
    )
