"""Settings of the group-sizes flow: the hierarchy of regions, and the release mechanism."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ..runs.names import FileName
from ..runs.settings import (
    Conditions,
    ExactFraction,
    FilePath,
    InputSettings,
    Loss,
    Neighbors,
    PrivacySettings,
    ProductSettings,
    Refuse,
    Section,
    refuse_shares,
)
from .plan import GROUP_SIZES, KEEP_ROWS, PROVEN, PUBLISHED, VECTOR_OF


class GroupTables(InputSettings):
    """One of three kinds of input: records of persons, a table of sizes, or census tables."""

    records: FilePath | None = None
    """person, unit, region and, if people do not all count once, quantity."""
    sizes: FilePath | None = Field(
        default=None,
        title="Sizes",
        description="Table with region, size and count of the finest regions.",
    )
    regions: FilePath | None = Field(
        default=None,
        title="Regions",
        description="Table with level, region, parent; goes with records and with sizes.",
    )
    persons: FilePath | None = None
    """Table of persons, in the layout of the Census Edited File."""
    units: FilePath | None = None
    """Table of housing units and group-quarters facilities."""
    geography: FilePath | None = None
    """Table of blocks."""

    @property
    def kind(self) -> str:
        """The kind of input: "records", "sizes" or "census"."""
        return "records" if self.records else "sizes" if self.sizes else "census"


class GroupPrivacy(PrivacySettings):
    """The budget, epsilon or rho, and the neighbours that it distinguishes."""

    epsilon: Loss | None = Field(
        default=None,
        title="epsilon",
        description="Budget of pure privacy, by discrete Laplace noise.",
    )
    rho: Loss | None = Field(
        default=None,
        title="rho",
        description="Budget of zero-concentrated privacy, by discrete Gaussian noise.",
    )
    neighbors: Neighbors = "unbounded"
    """Unbounded: a person joins or leaves a group. Bounded: a person moves between groups."""


class Invariants(Section):
    """Facts that are public by declaration."""

    groups: bool | int = Field(default=False)
    """The number of groups: this integer, or with `true` as many as the input has."""
    level: str | None = None
    """The numbers of groups of the regions of this level, and above, are public as they are in the
    input; None is the finest level for census tables, and the total alone otherwise."""


class GeographySettings(Section):
    """The hierarchy of census tables."""

    levels: tuple[FileName, ...] = ("US", "State", "County")
    """From the root down: US, State, County, Tract, Block_Group, Block, or any column of the
    geography table."""


class MechanismSettings(Section):
    """Which sizes are released, by which mechanism."""

    name: str | None = None
    """One of `VECTOR_OF`; None chooses by the numbers of regions."""
    smallest_size: int | None = Field(default=None, ge=0, le=1)
    """0 counts empty groups too; None is 0 for census tables and 1 otherwise."""
    largest_size: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        title="Largest size",
        description="Larger groups count as this size.",
    )
    top_coded: bool = True
    """The largest size counts all groups of that size and more; otherwise larger ones are refused.
    """
    largest_quantity: int = Field(default=1, ge=1)
    """The most by which one person changes the size of a group."""
    levels: dict[str, ExactFraction] | None = None
    """Share of the budget of each level of the hierarchy, 0 for one that is not measured; None
    shares it equally."""
    calibration: Literal["proven", "published"] = PROVEN
    """Published noise scales reproduce the table of [GroupSizes2021]; some give no protection."""


class GroupSizesSettings(ProductSettings):
    """All settings of a group-sizes run."""

    PRODUCT: ClassVar[str] = "group-sizes"
    ASIDE = frozenset({"design"})
    NEEDS_PUBLIC_DATA: ClassVar[str] = (
        "privacy.infinite, privacy.seed and the published calibration are for testing only: set "
        "input.confidential = false if these data may be disclosed"
    )

    input: GroupTables
    privacy: GroupPrivacy
    geography: GeographySettings = GeographySettings()
    invariants: Invariants = Invariants()
    mechanism: MechanismSettings = MechanismSettings()

    @property
    def why_not_private(self) -> str | None:
        """As for every product; runs with the published calibration count as not private."""
        why = super().why_not_private
        if why is None and self.mechanism.calibration == PUBLISHED:
            return "noise has the published scale, which need not cover what a person can change"
        return why

    @property
    def smallest_size(self) -> int:
        """The smallest size that is released, 0 or 1."""
        smallest = self.mechanism.smallest_size
        return smallest if smallest is not None else int(self.input.kind != "census")

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse inputs that are no whole kind, parameters out of range, and unknown mechanisms."""
        given, privacy, mechanism = set(self.input.paths()), self.privacy, self.mechanism
        census = {"persons", "units", "geography"}
        if given not in ({"records", "regions"}, {"sizes", "regions"}, census):
            refuse(
                "the section input needs records and regions, or sizes and regions, or persons, "
                f"units and geography; it has {', '.join(sorted(given)) or 'none of them'}"
            )
        if privacy.epsilon is not None and privacy.rho is not None:
            refuse("privacy gives both epsilon and rho; remove one of them")
        if privacy.epsilon is None and privacy.rho is None and not privacy.infinite:
            refuse("privacy needs epsilon or rho")
        if mechanism.calibration == PUBLISHED and privacy.rho is not None:
            refuse(
                "mechanism.calibration = 'published' is a scale of discrete Laplace noise; give "
                "privacy.epsilon, not privacy.rho"
            )
        if mechanism.name is not None and mechanism.name not in VECTOR_OF:
            refuse(
                f"mechanism.name {mechanism.name!r} is unknown; there are {', '.join(VECTOR_OF)}"
            )
        if mechanism.levels is not None:
            refuse_shares(mechanism.levels, "mechanism.levels", refuse)
        is_census = self.input.kind == "census"
        if is_census and mechanism.smallest_size == 1:
            refuse("mechanism.smallest_size must be 0 for census tables, which have vacant units")
        if is_census and mechanism.largest_quantity != 1:
            refuse("mechanism.largest_quantity must be 1 for census tables: a person counts once")
        levels = self.geography.levels
        if not is_census and levels != GeographySettings().levels:
            refuse("geography.levels is for census tables; the regions file has the levels")
        if not levels or len(set(levels)) < len(levels):
            refuse("geography.levels must name at least one level, and none twice")
        if is_census and self.invariants.groups is not False:
            refuse(
                "invariants.groups is not for census tables, whose housing units and facilities "
                "are invariant; leave it out"
            )
        if not is_census and self.invariants.groups is False:
            refuse(
                "the mechanisms state the number of groups exactly, so it must be public: declare "
                "it with invariants.groups = true, or give the number there"
            )
        if self.invariants.level is not None and mechanism.name not in (None, *KEEP_ROWS):
            refuse(
                f"invariants.level keeps numbers of groups by region, which {mechanism.name} "
                f"cannot; choose {' or '.join(KEEP_ROWS)}, or leave it out"
            )
        if not isinstance(self.invariants.groups, bool) and self.invariants.groups < 0:
            refuse("invariants.groups is negative; give the number of groups")

    @property
    def conditions(self) -> Conditions:
        """As for every product, and settings that scale noise or choose a mechanism."""
        own, is_proven = self.mechanism, self.mechanism.calibration == PROVEN
        # The quantity limits records, and without a name it chooses the mechanism.
        counts_sizes = own.name is not None and VECTOR_OF[own.name] == GROUP_SIZES
        return {
            **super().conditions,
            "privacy.neighbors": (is_proven, "the proven calibration"),
            "mechanism.largest_quantity": (
                self.input.kind == "records"
                or own.name is None
                or (is_proven and not counts_sizes),
                "a table of records, or cumulative sizes whose noise it scales",
            ),
        }
