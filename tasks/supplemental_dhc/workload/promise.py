"""What the settings promise, in the words of the independent checks."""

from __future__ import annotations

from ....validation.supplemental_dhc.privacy_loss import Promise
from ..settings import SupplementalDhcSettings


def promise_of(settings: SupplementalDhcSettings) -> Promise:
    """The promise of a run's settings."""
    return Promise(
        rhos=settings.rhos,
        taus=settings.mechanism.taus,
        levels=settings.geography.levels,
        infinite=settings.privacy.infinite,
    )
