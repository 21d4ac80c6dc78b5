"""The best shares of a trips budget over levels, as settings that are ready to run."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..runs.errors import InputRefused
from ..runs.settings import Refuse, without_section
from ..solvers.level_design import DesignedLevels, LevelDesign, design_levels
from .costs import level_errors
from .ingest.ingest import public_plan
from .settings import TripsSettings


class TripsDesignSettings(TripsSettings):
    """A settings file of trips with a section [design]; targets are numbers or names of levels."""

    ASIDE = frozenset()

    design: LevelDesign

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse settings that the product and the design cannot have."""
        super().refuse_invalid(refuse)
        self.design.refuse_invalid(self.privacy.infinite, refuse)


def optimize_shares(settings: TripsDesignSettings) -> tuple[DesignedLevels, TripsSettings]:
    """The best shares for a design, and the settings with them; reads the public areas alone.

    Raises InputRefused as `design_levels`, and for mechanisms that share no budget among levels.
    """
    own = without_section(TripsSettings, settings)
    plan = public_plan(own)
    errors, budget = level_errors(plan), plan.budget
    if errors is None or budget is None or budget.rho is None:
        raise InputRefused(
            f"design: {plan.mechanism} shares no budget among levels here; choose inftda, or "
            "inftda_full_information, for a tree of two measured levels or more."
        )
    found = design_levels(errors, settings.design, budget.rho, budget.shares)
    mechanism = {
        "shares": tuple(found.shares[level] for level in plan.levels),
        "share_ratio": Fraction(1),
    }
    update: dict[str, Any] = {"mechanism": own.mechanism.model_copy(update=mechanism)}
    if settings.design.objective == "smallest_budget":
        # A delta is kept for display; the rho no longer corresponds to an epsilon.
        spent = {"rho": found.total, "epsilon": None, "conversion": "simple"}
        update["privacy"] = own.privacy.model_copy(update=spent)
    return found, own.model_copy(update=update)
