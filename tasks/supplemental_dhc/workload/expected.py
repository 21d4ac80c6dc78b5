"""What is expected of a run by its settings, in the words of the independent checks."""

from __future__ import annotations

from ....validation.supplemental_dhc.privacy_loss import ExpectedSupplemental
from ..settings import SupplementalDhcSettings


def expected_of(settings: SupplementalDhcSettings) -> ExpectedSupplemental:
    """What the independent checks expect of a run with these settings."""
    return ExpectedSupplemental(
        rhos=settings.rhos,
        taus=settings.mechanism.taus,
        levels=settings.geography.levels,
        infinite=settings.privacy.infinite,
    )
