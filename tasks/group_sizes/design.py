"""The best shares of a group-sizes budget over levels, as settings that are ready to run."""

from __future__ import annotations

from typing import Any

from ..runs.errors import InputRefused
from ..runs.settings import Refuse, without_section
from ..solvers.level_design import DesignedLevels, LevelDesign, design_levels
from .costs import level_errors, plan_shares, shares_by_name
from .ingest.read import public_plan
from .plan import PUBLISHED
from .settings import GroupSizesSettings


class GroupSizesDesignSettings(GroupSizesSettings):
    """A settings file of group-sizes with a section [design]."""

    ASIDE = frozenset()

    design: LevelDesign

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse what the product and the design cannot have, and the published calibration."""
        super().refuse_invalid(refuse)
        self.design.refuse_invalid(self.privacy.infinite, refuse)
        if self.mechanism.calibration == PUBLISHED:
            refuse("a design needs mechanism.calibration = 'proven'")


def optimize_shares(
    settings: GroupSizesDesignSettings,
) -> tuple[DesignedLevels, GroupSizesSettings]:
    """The best shares for a design, and the settings with them; reads the public hierarchy alone.

    Raises InputRefused as `design_levels`, and for a hierarchy with a single level to measure.
    """
    own = without_section(GroupSizesSettings, settings)
    plan = public_plan(own)
    errors = level_errors(plan)
    if len(errors.names) == 1 or plan.loss is None:
        raise InputRefused(
            "design: there is nothing to share, because all levels have the same regions; ask "
            "'spineflow budget group-sizes --target LEVEL=MARGIN' for the budget of one."
        )
    found = design_levels(errors, settings.design, plan.loss, plan_shares(plan))
    update: dict[str, Any] = {
        "mechanism": own.mechanism.model_copy(
            update={"levels": shares_by_name(plan, found.shares), "name": plan.mechanism}
        ),
        "privacy": own.privacy.model_copy(update={errors.symbol: found.total}),
    }
    return found, own.model_copy(update=update)
