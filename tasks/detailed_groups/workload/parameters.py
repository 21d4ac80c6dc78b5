"""Parameters of the adaptive mechanism: `config.json` and the four specification files.

Decimals are read as exact fractions. Values out of range are refused, including budgets, which the
production program does not check. A run keeps a copy of the files in its directory, so that every
step works with the same ones.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from ...noise.quantiles import COVERAGE
from ...runs.errors import InputRefused, refuse_errors
from ...runs.files import sha256_of_file, write_text
from ...tables.sources import InputFile, is_url, read_public_text
from .regions import PR, PUERTO_RICO, REGION_TYPES, US, region_types
from .specification import (
    LEVELS,
    SPECIFICATION_FILES,
    Specification,
    SpecificationError,
    parse_specification,
)
from .tabulations import SEX_BY_AGE, TABULATIONS, Tabulation

CONFIG_FILE = "config.json"
ZCDP, PURE_DP = "zcdp", "puredp"
DEFINITIONS = (ZCDP, PURE_DP)
MOST_RACE_CODES = 8
STATES = frozenset(f"{n:02d}" for n in range(1, 57)) - {"03", "07", "14", "43", "52"}
"""FIPS codes that the pass of the United States may have."""

SMALLEST_BUDGET, LARGEST_BUDGET = Fraction("1e-12"), Fraction("1e12")
NEVER = 2**63 - 1
"""A threshold above all noisy totals."""


Level = tuple[str, int]
"""Region type and iteration level of a population group level."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a run: of one tabulation of persons, or of two of households.

    definition : `zcdp` (discrete Gaussian) or `puredp` (two-sided geometric).
    max_race_codes : race codes of a person that count, from QRACE1 on.
    stage_1_fraction : gamma, the part of a level's budget that chooses each group's table; 0 where
        tables are chosen by totals that are known before.
    budgets : by tabulation rho, or epsilon if pure, of the levels that are measured, by region type
        and level, highest summary level first; none is zero.
    thresholds : thresholds of the noisy total, by the same: from each on, the next larger table.
    zero_suppression_chance : probability that an empty group is suppressed; None for never.
    passes : the passes that are run.
    states : FIPS codes of the United States pass; empty if it is not run.
    coverage : the probability with which every margin of error holds, wanted or not.
    wanted : margins that the noise of released counts of persons is to have, by level.
    infinite : whether noise is switched off; budgets then only determine the measured levels.
    """

    definition: str
    max_race_codes: int
    stage_1_fraction: Fraction
    budgets: Mapping[str, Mapping[Level, Fraction]]
    thresholds: Mapping[str, Mapping[Level, tuple[int, ...]]]
    zero_suppression_chance: Fraction | None
    allow_negative_counts: bool
    passes: tuple[str, ...]
    states: tuple[str, ...]
    coverage: Fraction = COVERAGE
    wanted: Mapping[Level, int] = field(default_factory=dict)
    infinite: bool = False

    @property
    def is_pure(self) -> bool:
        """Whether the guarantee is pure epsilon-DP."""
        return self.definition == PURE_DP

    @property
    def tabulations(self) -> tuple[Tabulation, ...]:
        """The tabulations, which are all of one kind of record."""
        return tuple(TABULATIONS[name] for name in self.budgets)

    @property
    def records(self) -> str:
        """Kind of record: persons or households."""
        return self.tabulations[0].records

    def of(self, name: str) -> Parameters:
        """The parameters of one tabulation alone."""
        return replace(self, budgets={name: self.budgets[name]})

    def states_of(self, region_pass: str) -> tuple[str, ...]:
        """FIPS codes of the states of a pass."""
        return self.states if region_pass == US else (PUERTO_RICO,)

    def budgets_of(self, name: str, region_pass: str) -> dict[Level, Fraction]:
        """The budgets of a tabulation's measured levels of a pass."""
        return {
            level: budget
            for level, budget in self.budgets[name].items()
            if REGION_TYPES[level[0]].region_pass == region_pass
        }

    def levels(self) -> tuple[Level, ...]:
        """The levels that any tabulation measures, in their order."""
        measured = {level for own in self.budgets.values() for level in own}
        return tuple(level for level in product(REGION_TYPES, LEVELS) if level in measured)

    def total_of(self, region_pass: str) -> Fraction:
        """The budget of all tabulations in a pass: of adding or removing one record there."""
        of_tables = (self.budgets_of(name, region_pass).values() for name in self.budgets)
        return sum(chain.from_iterable(of_tables), Fraction(0))

    @property
    def total(self) -> Fraction:
        """The larger budget of all passes: no record is in two of them, and moving between them
        costs one removal and one addition, like moving within a pass.
        """
        return max((self.total_of(name) for name in self.passes), default=Fraction(0))


def choose_table(noisy_total: np.ndarray, thresholds: tuple[int, ...]) -> np.ndarray:
    """Table of each group: the number of thresholds that its noisy total reaches; int8."""
    bounds = np.array(thresholds, dtype=np.int64)
    return np.searchsorted(bounds, noisy_total, side="right").astype(np.int8)


def read_config(text: str) -> dict[str, Any]:
    """The keys of a `config.json`, decimals as exact fractions.

    Raises SpecificationError for text that is not a JSON object, a repeated key, or NaN.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise SpecificationError(f"{CONFIG_FILE}: the key {key!r} is repeated; keep one")
        return dict(pairs)

    def constant(text: str) -> float:
        if text != "Infinity":
            raise SpecificationError(f"{CONFIG_FILE}: {text} is no number to use; correct it")
        return math.inf

    try:
        config = json.loads(
            text, parse_float=Fraction, parse_constant=constant, object_pairs_hook=once
        )
    except json.JSONDecodeError as error:
        raise SpecificationError(
            f"{CONFIG_FILE}: line {error.lineno} is not valid JSON ({error.msg}); correct it"
        ) from None
    except RecursionError:
        raise SpecificationError(f"{CONFIG_FILE}: values are nested too deep") from None
    if not isinstance(config, dict):
        raise SpecificationError(f"{CONFIG_FILE}: the file must hold one JSON object; correct it")
    return config


def thresholds_key(region_type: str, level: int) -> str:
    """The key of a level's thresholds in `thresholds_p` of `config.json`."""
    return f"({region_type}, {level})"


def mechanism_parameters(
    config: Mapping[str, Any],
    name: str = CONFIG_FILE,
    *,
    infinite: bool = False,
    tabulations: Sequence[str] = (SEX_BY_AGE.name,),
) -> Parameters:
    """Check the keys of a configuration and gather the mechanism's parameters of some tabulations.

    Messages begin with `name`. Under `infinite` every budget above zero counts as 1 and only
    determines the measured levels; `Infinity` is allowed then.

    Raises SpecificationError for a missing key, a value of another kind or out of range, budgets
    that are negative, thresholds that are not so many in ascending order, states unknown or twice,
    or if nothing would be measured.
    """
    check = _Checker(config, name)
    passes = tuple(name for name in (US, PR) if check.truth(f"run_{name}"))
    if not passes:
        raise SpecificationError(f"{name}: run_us and run_pr are both false; set one to true")
    is_known, named = DEFINITIONS.__contains__, " or ".join(map(repr, DEFINITIONS))
    definition = check.given("privacy_defn", named, is_known)
    kinds = [kind.name for name in passes for kind in region_types(name)]
    tables = [TABULATIONS[own] for own in tabulations]
    budgets, thresholds = {}, {}
    for table in tables:
        found = {
            level: check.budget(table.budget(*level), infinite=infinite)
            for level in product(kinds, LEVELS)
        }
        budgets[table.name] = {level: budget for level, budget in found.items() if budget}
        if not budgets[table.name]:
            raise SpecificationError(f"{name}: every budget is 0; give one level a budget at least")
        thresholds[table.name] = {
            level: check.thresholds(thresholds_key(*level), table) for level in budgets[table.name]
        }
    of_persons = tables[0].of_persons
    return Parameters(
        definition=definition,
        max_race_codes=check.given(
            "max_race_codes",
            f"a whole number from 1 to {MOST_RACE_CODES}",
            lambda value: type(value) is int and 1 <= value <= MOST_RACE_CODES,
        ),
        stage_1_fraction=check.between("privacy_budget_p_stage_1_fraction")
        if of_persons
        else Fraction(0),
        budgets=budgets,
        thresholds=thresholds,
        zero_suppression_chance=check.between("zero_suppression_chance", with_zero=True)
        if of_persons and "zero_suppression_chance" in config
        else None,
        allow_negative_counts=check.truth("allow_negative_counts"),
        passes=passes,
        states=check.states("state_filter_us") if US in passes else (),
        infinite=infinite,
    )


@dataclass(frozen=True)
class _Checker:
    """Takes single values out of a configuration, or refuses them."""

    config: Mapping[str, Any]
    name: str

    def value(self, key: str) -> Any:
        if key not in self.config:
            raise SpecificationError(f"{self.name}: the key {key!r} is missing; add it")
        return self.config[key]

    def refuse(self, key: str, must: str) -> SpecificationError:
        return SpecificationError(f"{self.name}: {key} must be {must}; correct it")

    def given(self, key: str, must: str, is_right: Callable[[Any], bool]) -> Any:
        """The value of a key; refused unless right."""
        value = self.value(key)
        if not is_right(value):
            raise self.refuse(key, must)
        return value

    def truth(self, key: str) -> bool:
        return self.given(key, "true or false", lambda value: isinstance(value, bool))

    def number(self, key: str) -> Fraction | None:
        """The exact number of a key, None for Infinity."""
        if self.value(key) == math.inf:
            return None
        return Fraction(self.given(key, "a number", lambda value: type(value) in (int, Fraction)))

    def between(self, key: str, *, with_zero: bool = False) -> Fraction:
        number = self.number(key)
        if number is None or not (0 < number < 1 or (with_zero and number == 0)):
            raise self.refuse(key, f"{'at least' if with_zero else 'above'} 0 and below 1")
        return number

    def budget(self, key: str, *, infinite: bool) -> Fraction:
        number = self.number(key)
        if number is None:
            if infinite:
                return Fraction(1)
            raise self.refuse(key, "finite; set infinite = true in [privacy] to test without noise")
        if number < 0:
            raise SpecificationError(f"{self.name}: {key} is negative; give 0 or more")
        if number and not SMALLEST_BUDGET <= number <= LARGEST_BUDGET:
            raise self.refuse(key, "0, or from 1e-12 to 1e12")
        return Fraction(bool(number)) if infinite else number

    def thresholds(self, key: str, tabulation: Tabulation) -> tuple[int, ...]:
        found, n = self.value(tabulation.thresholds), tabulation.n_thresholds
        if not isinstance(found, Mapping):
            raise self.refuse(tabulation.thresholds, "an object of lists")
        if key not in found:
            raise SpecificationError(f"{self.name}: {tabulation.thresholds} lacks {key!r}; add it")
        values, where = found[key], f"{tabulation.thresholds} {key!r}"
        if not isinstance(values, list | tuple) or len(values) != n:
            raise self.refuse(where, f"a list of {n} number{'s' if n > 1 else ''}")
        numbers = [_Checker({where: value}, self.name).number(where) for value in values]
        # Noisy totals are whole, so that they reach a threshold if they reach the next whole
        # number.
        bounds = [NEVER if number is None else math.ceil(number) for number in numbers]
        ordered = [math.inf if number is None else number for number in numbers]
        if any(low > high for low, high in zip(ordered, ordered[1:], strict=False)):
            raise self.refuse(where, "in ascending order")
        return tuple(max(-NEVER, min(NEVER, bound)) for bound in bounds)

    def states(self, key: str) -> tuple[str, ...]:
        must = "a list of state codes, at least one"
        values = self.given(key, must, lambda own: isinstance(own, list | tuple) and bool(own))
        unknown = [value for value in values if not (isinstance(value, str) and value in STATES)]
        if unknown:
            raise self.refuse(key, f"a list of FIPS codes of states, not {unknown[0]!r}")
        if len(set(values)) != len(values):
            raise self.refuse(key, "a list that names each state once")
        return tuple(values)


SETTINGS_SECTION = "[mechanism]"


def read_specification(directory: str) -> Specification:
    """The specification in a folder; raises InputRefused with a sentence about the first fault."""
    _refuse_missing(directory)
    texts = {name: _read(directory, name) for name in SPECIFICATION_FILES}
    with refuse_errors(of=SpecificationError):
        return parse_specification(texts)


def read_parameters(
    directory: str,
    overrides: Mapping[str, Any],
    *,
    infinite: bool = False,
    tabulations: Sequence[str] = (SEX_BY_AGE.name,),
) -> Parameters:
    """The mechanism's parameters: `config.json` of a folder, if there is one, under the overrides.

    `overrides` has keys of `config.json`; thresholds are merged one by one. Raises
    InputRefused with one sentence about the first fault.
    """
    _refuse_missing(directory)
    sources = [CONFIG_FILE] if _has_config(directory) else []
    with refuse_errors(of=SpecificationError):
        config = read_config(_read(directory, CONFIG_FILE)) if sources else {}
        if overrides or not sources:
            sources.append(SETTINGS_SECTION)
        merged = {
            key: config[key] | overrides[key]
            for key in (TABULATIONS[name].thresholds for name in tabulations)
            if key in overrides and isinstance(config.get(key), dict)
        }
        config, name = {**config, **overrides, **merged}, " and ".join(sources)
        return mechanism_parameters(config, name, infinite=infinite, tabulations=tabulations)


def copy_parameters(directory: str, to: Path) -> None:
    """Copy the parameters' files into a folder of a run."""
    names = [*SPECIFICATION_FILES, *([CONFIG_FILE] if _has_config(directory) else [])]
    for name in names:
        write_text(to / name, _read(directory, name))


def parameters_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of the files that `copy_parameters` wrote."""
    listed = [f"{path.name} {sha256_of_file(path)}" for path in sorted(folder.iterdir())]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()


def _refuse_missing(directory: str) -> None:
    """Raise InputRefused for a folder that is not there."""
    if not is_url(directory) and not Path(directory).is_dir():
        raise InputRefused(
            f"input.parameters: {directory} is no folder; name the folder of the specification "
            "files."
        )


def _has_config(directory: str) -> bool:
    return is_url(directory) or (Path(directory) / CONFIG_FILE).exists()


def _read(directory: str, name: str) -> str:
    return read_public_text(InputFile("parameters", f"{directory.rstrip('/')}/{name}", name))
