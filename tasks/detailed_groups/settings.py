"""Settings of the detailed-groups flow: its files, and overrides of their `config.json`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt

from ..noise.quantiles import COVERAGE
from ..runs.settings import (
    Conditions,
    ExactFraction,
    FilePath,
    InputSettings,
    Probability,
    ProductSettings,
    Refuse,
    Section,
)
from .workload.budgets import budgets_for_margins
from .workload.parameters import CONFIG_FILE, read_parameters, read_specification, thresholds_key
from .workload.regions import REGION_TYPES
from .workload.specification import LEVELS, SPECIFICATION_FILES
from .workload.tabulations import HOUSEHOLD_TABULATIONS, SEX_BY_AGE, TABULATIONS

CENSUS_TABLES = ("persons", "units", "geography")
PUBLIC_FILES = ("parameters", "region_names", "groups")
DATA_FILES = ("person-records.txt", "GRF-C.txt")
FILES_IN_FOLDERS = {
    "parameters": (*SPECIFICATION_FILES, CONFIG_FILE),
    "data": DATA_FILES,
    "groups": ("release/t1.csv",),
}
"""The files read from the input's folders, by key."""


class InputInFolders(InputSettings):
    """Input with folders among its paths."""

    def files(self) -> tuple[str, ...]:
        """The files in the folders, which may hold others, even a run."""
        return tuple(
            file
            for key, path in self.paths().items()
            if key not in self.awaited
            for file in (
                [f"{path.rstrip('/')}/{name}" for name in FILES_IN_FOLDERS[key]]
                if key in FILES_IN_FOLDERS
                else [path]
            )
        )

    @property
    def tables(self) -> dict[str, str]:
        """The confidential input, by key."""
        return {key: path for key, path in self.paths().items() if key not in PUBLIC_FILES}


PARAMETERS: Any = Field(
    title="Parameters",
    description="Folder with the four specification files and, if its keys are wanted, "
    "config.json.",
)


class GroupsInput(InputInFolders):
    """Parameters, and persons and geography in one of two layouts."""

    parameters: FilePath = PARAMETERS
    data: FilePath | None = Field(
        default=None,
        title="Data",
        description="Folder with person-records.txt and GRF-C.txt, or the census tables.",
    )
    persons: FilePath | None = None
    """Table of persons, in the layout of the Census Edited File."""
    units: FilePath | None = None
    """Table of housing units and group-quarters facilities."""
    geography: FilePath | None = None
    """Table of blocks."""
    region_names: FilePath | None = None
    """Names of regions for the release: REGION_TYPE, REGION_ID, REGION_NAME."""


KEYS = {
    "privacy_defn": "definition",
    "max_race_codes": "max_race_codes",
    "privacy_budget_p_stage_1_fraction": "stage_1_fraction",
    "zero_suppression_chance": "zero_suppression_chance",
    "allow_negative_counts": "allow_negative_counts",
    "run_us": "run_us",
    "run_pr": "run_pr",
    "state_filter_us": "states",
}
"""The settings of a mechanism that replace single keys of `config.json`, by key."""


Budgets = Mapping[str, Mapping[str, Fraction]]
"""By region type and iteration level."""
Thresholds = Mapping[str, Mapping[str, tuple[int, ...]]]
"""By the same."""


def refuse_unknown_levels(
    where: str, of_types: Mapping[str, Collection[str]], refuse: Refuse
) -> None:
    """Check the names of region types and levels in a table of the settings."""
    levels = {str(level) for level in LEVELS}
    for region_type, values in of_types.items():
        if region_type not in REGION_TYPES or not set(values) <= levels:
            refuse(
                f"{where}.{region_type} must be one of {', '.join(REGION_TYPES)}, with the levels "
                "1 and 2"
            )


class SharedMechanism(Section):
    """Mechanism settings common to persons and households; None takes the key of `config.json`."""

    definition: Literal["zcdp", "puredp"] | None = Field(
        default=None, title="Privacy definition", description="Overrides that of config.json."
    )
    max_race_codes: int | None = None
    """Race codes of a person that count, 1 to 8; later columns are ignored."""
    confidence: Probability | None = None
    """Probability with which margins of error hold; None for 95 %."""
    allow_negative_counts: bool | None = None
    """Whether noisy counts below 0 stay."""
    run_us: bool | None = None
    """Whether the pass of the United States is run."""
    run_pr: bool | None = None
    """Whether the pass of Puerto Rico is run."""
    states: tuple[str, ...] | None = None
    """FIPS codes of the states of the first pass."""

    @property
    def coverage(self) -> Fraction:
        """The probability with which margins of error hold."""
        return COVERAGE if self.confidence is None else self.confidence

    @property
    def wanted(self) -> dict[tuple[str, int], int]:
        """The margins that are wanted, by region type and iteration level."""
        return {}

    @property
    def of_tables(self) -> Mapping[str, tuple[Budgets, Thresholds]]:
        """The budgets and the thresholds of every tabulation, by its name."""
        raise NotImplementedError

    @property
    def config(self) -> dict[str, Any]:
        """The settings that replace keys of `config.json`, by key."""
        given = {key: getattr(self, name, None) for key, name in KEYS.items()}
        config = {key: value for key, value in given.items() if value is not None}
        for table, (budgets, thresholds) in self.of_tables.items():
            keys = TABULATIONS[table]
            for region_type, levels in budgets.items():
                for level, budget in levels.items():
                    config[keys.budget(region_type, int(level))] = budget
            if thresholds:
                config[keys.thresholds] = {
                    thresholds_key(region_type, int(level)): values
                    for region_type, of_levels in thresholds.items()
                    for level, values in of_levels.items()
                }
        return config


class MechanismSettings(SharedMechanism):
    """The mechanism; left out, a key is taken from `config.json`."""

    stage_1_fraction: ExactFraction | None = None
    """Part of a level's budget that chooses tables."""
    budgets: dict[str, dict[str, ExactFraction]] = {}
    """By region type and iteration level, for example `USA.2`."""
    margins: dict[str, dict[str, NonNegativeInt]] | None = None
    """Margins of error that set the budgets of levels, by region type and iteration level."""
    thresholds: dict[str, dict[str, tuple[int, ...]]] = {}
    """Ascending noisy totals from which on a group gets the next table: 4, 9 and 23 ages."""
    zero_suppression_chance: ExactFraction | None = None
    """Probability that an empty sub-state group is suppressed; none for no suppression."""
    coterminous: bool = False
    """Whether regions with the same blocks get the same counts."""
    summary_levels: tuple[str, ...] = tuple(REGION_TYPES)
    """Order in which coterminous regions lend their counts."""
    units_are_invariant: bool = False
    """Whether housing units and facilities of every block are public by declaration."""
    suppress_alone_above_combination: bool = False
    """Whether an 'alone' group whose total is above that in any combination is hidden."""

    @property
    def wanted(self) -> dict[tuple[str, int], int]:
        """The margins that are wanted, by region type and iteration level."""
        levels = (self.margins or {}).items()
        return {(kind, int(level)): margin for kind, own in levels for level, margin in own.items()}

    @property
    def of_tables(self) -> Mapping[str, tuple[Budgets, Thresholds]]:
        """The budgets and the thresholds of the only tabulation."""
        return {SEX_BY_AGE.name: (self.budgets, self.thresholds)}


class HouseholdsInput(InputInFolders):
    """Parameters, the census tables, and the finished run whose totals choose the tables."""

    parameters: FilePath = PARAMETERS
    persons: FilePath
    """Table of persons, in the layout of the Census Edited File."""
    units: FilePath
    """Table of housing units and group-quarters facilities."""
    geography: FilePath
    """Table of blocks."""
    groups: FilePath = Field(
        title="Groups",
        description="Folder of a finished run of detailed groups, or products.detailed-groups.",
    )
    region_names: FilePath | None = None
    """Names of regions for the release: REGION_TYPE, REGION_ID, REGION_NAME."""

    @property
    def releases(self) -> tuple[str, ...]:
        """The finished run."""
        return ("groups",)


class HouseholdMechanismSettings(SharedMechanism):
    """The mechanism; left out, a key is taken from `config.json`."""

    budgets: dict[str, dict[str, dict[str, ExactFraction]]] = {}
    """By tabulation, region type and iteration level, for example `t3.USA.2`."""
    thresholds: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {}
    """Thresholds of the noisy total of persons, by the same: three of `t3`, one of `t4`."""

    @property
    def of_tables(self) -> Mapping[str, tuple[Budgets, Thresholds]]:
        """The budgets and the thresholds of every tabulation, by its name."""
        return {
            name: (self.budgets.get(name, {}), self.thresholds.get(name, {}))
            for name in HOUSEHOLD_TABULATIONS
        }


class DetailedHouseholdsSettings(ProductSettings):
    """All settings of a detailed-households run."""

    PRODUCT: ClassVar[str] = "detailed-households"
    TABULATIONS: ClassVar[tuple[str, ...]] = ("t3", "t4")

    input: HouseholdsInput
    mechanism: HouseholdMechanismSettings = HouseholdMechanismSettings()

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Check the names of tabulations, region types and levels."""
        for key in ("budgets", "thresholds"):
            for name, of_types in getattr(self.mechanism, key).items():
                if name not in HOUSEHOLD_TABULATIONS:
                    refuse(
                        f"mechanism.{key}.{name} must be one of {', '.join(HOUSEHOLD_TABULATIONS)}"
                    )
                refuse_unknown_levels(f"mechanism.{key}.{name}", of_types, refuse)


class DetailedGroupsSettings(ProductSettings):
    """All settings of a detailed-groups run."""

    PRODUCT: ClassVar[str] = "detailed-groups"
    TABULATIONS: ClassVar[tuple[str, ...]] = ("p",)
    FORMER = {"explorer": {"decimals": 3}}

    input: GroupsInput
    mechanism: MechanismSettings = MechanismSettings()

    def resolved(self) -> Self:
        """These settings with least budgets for the levels that have a wanted margin and no budget.

        The budgets are computed from the parameters' files, and frozen with the run.
        """
        own = self.mechanism
        missing = [
            (region_type, level)
            for region_type, level in own.wanted
            if str(level) not in own.budgets.get(region_type, {})
        ]
        if not missing:
            return self
        # Only whether the computed budgets are above 0 matters here.
        config = own.config | {SEX_BY_AGE.budget(*level): Fraction(1) for level in missing}
        folder = self.input.parameters
        parameters = read_parameters(folder, config, infinite=self.privacy.infinite)
        parameters = replace(parameters, coverage=own.coverage, wanted=own.wanted)
        found = budgets_for_margins(parameters, read_specification(folder))
        budgets = {region_type: dict(levels) for region_type, levels in own.budgets.items()}
        for region_type, level in missing:
            if (region_type, level) in found:
                budgets.setdefault(region_type, {})[str(level)] = found[region_type, level]
        return self.model_copy(update={"mechanism": own.model_copy(update={"budgets": budgets})})

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Check which input there is, and the names of region types and levels."""
        given = tuple(self.input.tables)
        if given not in (("data",), CENSUS_TABLES):
            refuse("[input] needs either data, or all of persons, units and geography")
        for key in ("budgets", "margins", "thresholds"):
            refuse_unknown_levels(f"mechanism.{key}", getattr(self.mechanism, key) or {}, refuse)
        if sorted(self.mechanism.summary_levels) != sorted(REGION_TYPES):
            refuse(f"mechanism.summary_levels must order all of {', '.join(REGION_TYPES)}")
        if self.mechanism.units_are_invariant and given != CENSUS_TABLES:
            refuse("mechanism.units_are_invariant needs the census tables, which have units")

    @property
    def conditions(self) -> Conditions:
        """As for every product, and settings of coterminous regions."""
        together = (self.mechanism.coterminous, "mechanism.coterminous = true")
        names = ("mechanism.summary_levels", "mechanism.units_are_invariant")
        return {**super().conditions, **dict.fromkeys(names, together)}
