"""What the settings of a group-sizes run promise, in the words of the independent checks."""

from __future__ import annotations

from ....validation.group_sizes.privacy_loss import Promise
from ..settings import GroupSizesSettings
from .mechanisms import PUBLISHED


def promise_of(settings: GroupSizesSettings) -> Promise:
    """The promise of a run's settings."""
    mechanism, declared = settings.mechanism, settings.invariants.groups
    return Promise(
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
