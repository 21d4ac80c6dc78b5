"""What is expected of a run by its settings, in the words of the independent checks."""

from __future__ import annotations

from ....validation.group_sizes.privacy_loss import ExpectedGroupSizes
from ..settings import GroupSizesSettings
from .mechanisms import PUBLISHED


def expected_of(settings: GroupSizesSettings) -> ExpectedGroupSizes:
    """What the independent checks expect of a run with these settings."""
    mechanism, declared = settings.mechanism, settings.invariants.groups
    return ExpectedGroupSizes(
        epsilon=settings.epsilon,
        bounded=settings.privacy.neighbors == "bounded",
        quantity=mechanism.largest_quantity,
        published=mechanism.calibration == PUBLISHED,
        mechanism=mechanism.name,
        shares=mechanism.levels,
        smallest_size=settings.smallest_size,
        largest_size=mechanism.largest_size,
        rho=settings.rho,
        is_top_coded=mechanism.top_coded,
        exact_level=settings.invariants.level,
        groups=None if isinstance(declared, bool) else declared,
    )
