"""The order of the steps of a comparison.

read people -> tables of every method, strength and draw -> areas rebuilt, in pieces -> attacks on
each release -> figures and page
"""

from __future__ import annotations

from ..products.order import Order, call
from ..runs.directory import RunDirectory
from .attacks.rebuilding import NAME as RECONSTRUCTION
from .attacks.steps import attack, rebuild
from .attacks.tried import pieces_of
from .ingest.steps import read_people
from .methods.files import draws_of
from .methods.steps import publish_tables
from .release.steps import write_page
from .settings import EvidenceSettings


def order(run: RunDirectory, settings: EvidenceSettings) -> Order:
    """The steps of a run; releases, pieces and attacks go side by side."""
    yield {"ingest": [call(read_people)]}
    published = {
        draw: call(publish_tables, draw.method, draw.strength, draw.number)
        for draw in draws_of(settings)
    }
    names = settings.evidence.attacks
    n_pieces = pieces_of(run, settings) if RECONSTRUCTION in names else 0
    rebuilt = {
        draw: [call(rebuild, *made.keys, piece, after=[made]) for piece in range(n_pieces)]
        for draw, made in published.items()
    }
    attacks = [
        call(attack, *made.keys, name, after=rebuilt[draw] if name == RECONSTRUCTION else [made])
        for draw, made in published.items()
        for name in names
    ]
    yield {
        stage: calls
        for stage, calls in (
            ("publish", list(published.values())),
            ("rebuild", [piece for pieces in rebuilt.values() for piece in pieces]),
            ("attacks", attacks),
        )
        if calls
    }
    yield {"report": [call(write_page)]}
