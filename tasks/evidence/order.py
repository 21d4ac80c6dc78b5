"""The order of the steps of a comparison.

read people -> tables of every method, strength and draw -> attacks on each -> figures and page
"""

from __future__ import annotations

from ..products.order import Order, call
from ..runs.directory import RunDirectory
from .attacks.steps import attack
from .ingest.steps import read_people
from .methods.files import draws_of
from .methods.steps import publish_tables
from .release.steps import write_page
from .settings import EvidenceSettings


def order(run: RunDirectory, settings: EvidenceSettings) -> Order:
    """The steps of a run; releases and their attacks go side by side."""
    yield {"ingest": [call(read_people)]}
    published = {
        draw: call(publish_tables, draw.method, draw.strength, draw.number)
        for draw in draws_of(settings)
    }
    attacks = [
        call(attack, draw.method, draw.strength, draw.number, name, after=[made])
        for draw, made in published.items()
        for name in settings.evidence.attacks
    ]
    yield {"publish": list(published.values())} | ({"attacks": attacks} if attacks else {})
    yield {"report": [call(write_page)]}
