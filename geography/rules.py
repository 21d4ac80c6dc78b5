"""Settings of a spine: geolevels, AIAN code ranges, off-spine entity categories, cut-offs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace


class GeographyRefused(ValueError):
    """Geography, shares or spine rules cannot be used; the text is one public sentence.

    Geography is public, so the sentence names codes, columns and geolevels freely. Group-quarters
    facility counts, the only other input, never appear in it.
    """


GEOLEVEL_ORDER = {
    "conventional": ("US", "State", "County", "Tract", "Block_Group", "Block"),
    "aian": ("US", "State", "County", "Tract", "Block_Group", "Block"),
    "optimized": ("US", "State", "County", "Tract_Group", "Tract", "Block_Group", "Block"),
    "dhc": (
        "US",
        "State",
        "County",
        "Prim",
        "Tract_Subset_Group",
        "Tract_Subset",
        "Block_Group",
        "Block",
    ),
}
"""Geolevels a spine of each kind can have, root first; a spine may leave some out.

conventional: the tabulation spine; aian: with an AIAN branch; optimized: also with optimised
block groups (and tract groups, if the geolevels have them); dhc: the spine of the demographic
and housing characteristics product."""

GEOLEVELS = (
    "US",
    "State",
    "County",
    "Prim",
    "Tract_Subset_Group",
    "Tract_Subset",
    "Tract_Group",
    "Tract",
    "Block_Group",
    "Block",
)
"""Geolevels of all kinds of spine, from the root down."""

DEFAULT_CATEGORIES = {
    "conventional": ("aian", "group_quarters", "mcd", "place"),
    "aian": ("aian", "group_quarters", "mcd", "place"),
    "optimized": ("aian", "group_quarters", "mcd", "place"),
    "dhc": ("school_district", "block_group"),
}
"""Default off-spine entity categories, as in the production runs."""

OUTSIDE_AIAN = "9999"


@dataclass(frozen=True, kw_only=True)
class AianRange:
    """A closed range of codes of AIAN areas that belong to one type of area."""

    low: str
    high: str
    area: str
    """Type of area, for example "Hawaiian home land"."""
    on_spine: bool
    """Whether areas of this type form the AIAN branch of the spine."""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise GeographyRefused(
                f"AIAN range '{self.area}' runs from {self.low} down to {self.high}; swap them"
            )


NEVER_SPLIT = ("US", "State")
"""Geolevels above the county, where the rule for two and more children does not apply."""


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """How geounits are formed of groups, and bypassed."""

    fanout_cutoff: float = 12
    """An optimised group has at most floor(sqrt(n) + fanout_cutoff) members, where n is the
    number of candidates under its parent."""
    cut: str = "even"
    """How blocks of equal combinations are cut into optimised block groups: "even" or
    "production"; see `spineflow.geography.hierarchy.cut_groups`."""
    bypass: bool = True
    """Whether Algorithm 3 of [Spines2024] runs."""
    bypass_cutoff: int | None = 150
    """A geounit with two or more children is not bypassed if its parent would get more than this
    many children; None for no limit."""
    never_split: tuple[str, ...] = NEVER_SPLIT
    """Geolevels that the bypass under pure differential privacy does not split."""


@dataclass(frozen=True, kw_only=True)
class SpineRules(GroupRules):
    """Rules that determine a spine together with the geography and the shares.

    Raises GeographyRefused when built with values that cannot be used.
    """

    aian_ranges: tuple[AianRange, ...] = ()
    """Types of AIAN area by code; codes in no range are treated as outside."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of the geography frame by category; a category that is left out has a column of its
    own name.
    """
    strong_mcd_states: tuple[str, ...] = ()
    """FIPS codes of the states whose minor civil divisions are targeted instead of places."""
    categories: tuple[str, ...] | None = None
    """Off-spine entity categories: "aian", "group_quarters", "mcd", "place", "school_district",
    "block_group", or a column of the geography frame; None for the production run's."""
    greedy_tract_subset_groups: bool = True
    """Whether tract subset groups come from the greedy search of Algorithm 2 of [Spines2024], which
    brings school districts closer. Otherwise they are formed as optimised block groups
    are, from tract subsets of equal AIAN area, as in the production runs."""

    def __post_init__(self) -> None:
        ordered = sorted(self.aian_ranges, key=lambda aian_range: aian_range.low)
        for first, second in zip(ordered, ordered[1:], strict=False):
            if second.low <= first.high:
                raise GeographyRefused(
                    f"AIAN ranges '{first.area}' and '{second.area}' overlap at {second.low}; "
                    "a code must have one type of area"
                )
        if self.categories is not None and len(set(self.categories)) < len(self.categories):
            raise GeographyRefused("an off-spine entity category is named twice; name it once")

    def column_of(self, category: str) -> str:
        """The column of the geography frame with a category's codes."""
        return self.columns.get(category, category)


def select_aian_areas(ranges: Iterable[AianRange], areas: Iterable[str]) -> tuple[AianRange, ...]:
    """Ranges with `on_spine` set for the named types of area and unset for all others.

    Raises GeographyRefused if a name is no type of area.
    """
    ranges, areas = tuple(ranges), set(areas)
    unknown = sorted(areas - {aian_range.area for aian_range in ranges})
    if unknown:
        known = ", ".join(f"'{aian_range.area}'" for aian_range in ranges)
        raise GeographyRefused(f"'{unknown[0]}' is no type of AIAN area; choose from {known}")
    return tuple(replace(item, on_spine=item.area in areas) for item in ranges)


GROUPED_GEOLEVEL = {"Tract_Group": "Tract", "Tract_Subset_Group": "Tract_Subset"}
"""Geolevels whose geounits are groups of geounits of the geolevel below."""

DECLARED_KINDS = ("conventional", "optimized")
"""Kinds of spine of a declared census."""


def block_geolevels(names: Collection[str], kind: str) -> tuple[str, ...]:
    """The geolevels of a spine of blocks, root first, after checking them against its kind.

    Raises GeographyRefused as `checked_geolevels`, and for groups without their geolevel below.
    """
    found = checked_geolevels(names, kind, GEOLEVEL_ORDER[kind], ("US", "State"))
    for group, item in GROUPED_GEOLEVEL.items():
        if group in found and item not in found:
            raise GeographyRefused(f"'{group}' needs the geolevel '{item}' below it")
    return found


def declared_geolevels(
    names: Collection[str], kind: str, geolevels: Sequence[str]
) -> tuple[str, ...]:
    """The geolevels of a spine of declared areas, root first, after checking them.

    Raises GeographyRefused as `checked_geolevels`, for a kind that a declared census does not have,
    and for too few geolevels to form groups in.
    """
    if kind not in DECLARED_KINDS:
        raise GeographyRefused(
            f"spine kind '{kind}' is not one of a declared census; choose from "
            f"{', '.join(DECLARED_KINDS)}"
        )
    found = checked_geolevels(names, kind, geolevels, geolevels[:1])
    if kind == "optimized" and len(found) < 3:
        raise GeographyRefused(
            "an optimized spine needs a geolevel between the first and the last, whose geounits it "
            "forms"
        )
    return found


def checked_geolevels(
    names: Collection[str], kind: str, geolevels: Sequence[str], roots: Sequence[str]
) -> tuple[str, ...]:
    """The names of a spine's geolevels, after checking them against those that its kind has.

    Raises GeographyRefused for an unknown one, for another order, and unless they begin with one of
    the `roots` and end with the last of `geolevels`.
    """
    found = tuple(names)
    for name in found:
        if name not in geolevels:
            raise GeographyRefused(
                f"geolevel '{name}' is not part of the {kind} spine; it has {', '.join(geolevels)}"
            )
    if list(found) != sorted(found, key=list(geolevels).index):
        raise GeographyRefused(f"geolevels must be in the order {', '.join(geolevels)}")
    if len(found) < 2 or found[0] not in roots or found[-1] != geolevels[-1]:
        raise GeographyRefused(
            f"a spine must begin with {' or '.join(map(repr, roots))} and end with "
            f"'{geolevels[-1]}'"
        )
    return found
