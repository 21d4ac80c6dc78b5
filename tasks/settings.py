"""Settings of a run: read from TOML, merged with a preset, validated once.

Everything behind this module works with the frozen objects that it returns. Unknown keys are
refused, privacy parameters are exact fractions, and relative paths are taken from the folder of
the settings file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from geography.rules import GEOLEVELS
from tasks.errors import InputRefused
from tasks.files import NOT_PRIVATE
from tasks.measurement.accounting import rho_from_epsilon_simple
from tasks.workload.budget import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, Budget
from tasks.workload.queries import marginal_query, normalize_query_name, queries_are_nested
from tasks.workload.schema import UNIVERSE_ATTRIBUTES, Schema

Universe = Literal["persons", "units"]
UNIVERSES: tuple[Universe, ...] = get_args(Universe)


def _fraction(value: Any) -> Fraction:
    """An exact fraction from a string or an integer; binary floats are refused."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool | float) or not isinstance(value, str | int):
        raise ValueError('must be an exact fraction in quotes, for example "1/20" or "0.05"')
    try:
        return Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise ValueError('is not a fraction; write for example "1/20" or "0.05"') from None


SMALLEST_LOSS, LARGEST_LOSS = Fraction("1e-12"), Fraction("1e12")
"""A rho or epsilon beyond these is a slip, and its noise could not be computed with."""

ExactFraction = Annotated[Fraction, BeforeValidator(_fraction)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class InputSettings(_Section):
    """The three tables of the Census Edited File layout."""

    persons: str
    units: str
    geography: str
    confidential: bool = True
    """Confidential inputs never have counts or other detail shown outside `confidential/`."""


class PrivacySettings(_Section):
    """Whose privacy is spent, and where that is recorded."""

    dataset: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name under which the ledger adds up everything drawn from these people."""
    ledger: str = "ledger.db"
    infinite: bool = False
    """Switch noise off; for testing on data that are not confidential."""
    seed: int | None = None
    """Make noise repeatable; for testing on data that are not confidential."""


class AianRange(_Section):
    """A range of AIANNHCE codes, and whether its areas form the AIAN branch of the spine."""

    low: str = Field(pattern=r"^\d{4}$")
    high: str = Field(pattern=r"^\d{4}$")
    area: str
    on_spine: bool


class GeographySettings(_Section):
    """How the spine is built."""

    spine: Literal["conventional", "aian", "optimized", "dhc"] = "optimized"
    fanout_cutoff: int = Field(default=12, ge=0)
    bypass_cutoff: int = Field(default=150, ge=0)
    categories: tuple[str, ...] | None = None
    """Off-spine entity categories of the optimised spine; None takes those of the product."""
    school_district_column: str | None = None
    strong_mcd_states: tuple[str, ...]
    aian_areas: tuple[str, ...] | None = None
    """Area types on the AIAN branch; None takes those that the preset marks."""
    aian_ranges: tuple[AianRange, ...]


class RunSettings(_Section):
    """What is run, and on what."""

    universes: tuple[Universe, ...] = UNIVERSES
    runner: Literal["threads", "processes", "dask"] = "threads"
    workers: int = Field(default=2, ge=1)
    dask_address: str | None = None

    @model_validator(mode="after")
    def _universes_are_distinct(self) -> RunSettings:
        if not self.universes or len(set(self.universes)) != len(self.universes):
            raise ValueError("universes must name persons, units, or both, once each")
        return self


class BudgetSettings(_Section):
    """The budget of one universe; see `tasks.workload.budget`."""

    mechanism: Literal["discrete_gaussian", "discrete_laplace"] = DISCRETE_GAUSSIAN
    rho: ExactFraction | None = None
    epsilon: ExactFraction | None = None
    delta: ExactFraction | None = None
    geolevels: dict[str, ExactFraction]
    queries: dict[str, dict[str, ExactFraction]]

    @field_validator("geolevels")
    @classmethod
    def _from_the_root_down(cls, shares: dict[str, Fraction]) -> dict[str, Fraction]:
        """Geolevels in the order of the spine, wherever the file or an override put them."""
        unknown = [name for name in shares if name not in GEOLEVELS]
        return {name: shares[name] for name in (*unknown, *GEOLEVELS) if name in shares}


class GeolevelPasses(_Section):
    """Passes of the estimators at a geolevel; `all` and `all but NAME` stand for queries."""

    least_squares: tuple[tuple[str, ...], ...]
    rounder: tuple[tuple[str, ...], ...]


class StructuralZero(_Section):
    """Cells that are zero by definition: those whose attributes take the given levels."""

    name: str
    where: dict[str, tuple[int, ...]]


class UniverseSettings(_Section):
    """What is asked of a universe and how it is estimated."""

    attributes: tuple[str, ...]
    structural_zeros: tuple[StructuralZero, ...] = ()
    passes: dict[str, GeolevelPasses]


class Settings(_Section):
    """All settings of a topdown run."""

    preset: str | None = None
    input: InputSettings
    privacy: PrivacySettings
    geography: GeographySettings
    run: RunSettings = RunSettings()
    budget: dict[Universe, BudgetSettings]
    workload: dict[Universe, UniverseSettings]

    @model_validator(mode="after")
    def _testing_needs_public_data(self) -> Settings:
        if self.input.confidential and (self.privacy.infinite or self.privacy.seed is not None):
            raise ValueError(
                "privacy.infinite and privacy.seed are for testing only: set "
                "input.confidential = false if these data may be disclosed"
            )
        return self

    @property
    def is_private(self) -> bool:
        """Whether the run's noise protects anybody; otherwise its files say NOT PRIVATE."""
        return not self.privacy.infinite and self.privacy.seed is None

    def schema_of(self, universe: str) -> Schema:
        """The schema of a universe."""
        return Schema(universe, self.workload[universe].attributes)

    def budget_of(self, universe: str) -> Budget:
        """The budget of a universe, with measured queries only and names normalised."""
        section = self.budget[universe]
        if section.mechanism == DISCRETE_LAPLACE:
            total = section.epsilon
        elif section.rho is not None:
            total = section.rho
        else:
            total = rho_from_epsilon_simple(section.epsilon, section.delta)
        return Budget(
            universe,
            section.mechanism,
            total,
            section.delta,
            dict(section.geolevels),
            {
                geolevel: {
                    normalize_query_name(name): share for name, share in shares.items() if share
                }
                for geolevel, shares in section.queries.items()
                if geolevel in section.geolevels
            },
            self.privacy.infinite,
        )

    def passes_of(self, universe: str, geolevel: str) -> GeolevelPasses:
        """Passes at a geolevel with `all` and `all but NAME` spelt out."""
        passes = self.workload[universe].passes
        asked = list(self.budget_of(universe).query_shares[geolevel])
        chosen = passes.get(geolevel, passes.get("other"))

        def spelt_out(names: Sequence[str]) -> tuple[str, ...]:
            queries: list[str] = []
            for name in names:
                if name == "all":
                    queries += asked
                elif name.startswith("all but "):
                    without = {
                        normalize_query_name(part)
                        for part in name.removeprefix("all but ").split(",")
                    }
                    queries += [query for query in asked if query not in without]
                else:
                    queries.append(normalize_query_name(name))
            return tuple(queries)

        return GeolevelPasses(
            least_squares=tuple(spelt_out(names) for names in chosen.least_squares),
            rounder=tuple(
                tuple(normalize_query_name(name) for name in names) for names in chosen.rounder
            ),
        )


def load_settings(
    path: str | Path,
    *,
    presets: Path,
    overrides: Sequence[str] = (),
) -> Settings:
    """Read, merge and validate the settings of a run.

    `presets` is the folder of preset files; `overrides` are `section.key=value` strings whose
    value is TOML or else a bare string. Raises InputRefused, naming the key and the remedy.
    """
    path = Path(path)
    merged = _read_toml(path)
    for override in overrides:
        _apply_override(merged, override)
    preset = merged.get("preset")
    if preset is not None:
        file = presets / f"{preset}.toml"
        known = sorted(entry.stem for entry in presets.glob("*.toml"))
        if not isinstance(preset, str) or not file.exists():
            raise InputRefused(
                f"{path.name}: unknown preset {preset!r}{_nearest(str(preset), known)}; "
                f"there are {', '.join(known)}."
            )
        merged = _merge(_without_replaced(_read_toml(file), merged), merged)
    return _validated(merged, path)


def frozen_settings(path: Path) -> Settings:
    """Settings that a run has frozen in its directory: merged already, paths absolute."""
    return _validated(_read_toml(path), path)


def dump_settings(settings: Settings) -> str:
    """TOML of the merged settings, which `frozen_settings` reads back to an equal object."""
    text = tomli_w.dumps(_plain(settings.model_dump(mode="python")))
    return text if settings.is_private else f"# {NOT_PRIVATE}\n{text}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputRefused(f"{path}: no such settings file; check the path.") from None
    except IsADirectoryError:
        raise InputRefused(f"{path} is a folder; name the settings file in it.") from None
    except UnicodeDecodeError:
        raise InputRefused(f"{path.name} is not UTF-8 text; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputRefused(f"{path.name} is not valid TOML: {error}.") from None


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merge(below, value) if both else value
    return merged


def _without_replaced(preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The preset less what the file's own settings replace as a whole.

    An own rho or epsilon of a universe replaces either; own attributes of its schema replace the
    preset's queries, passes and structural zeros, which belong to other attributes.
    """
    for universe in UNIVERSES:
        budget, workload = (_table(_table(own, name), universe) for name in ("budget", "workload"))
        replaced: list[tuple[str, str]] = []
        if {"rho", "epsilon"} & set(budget):
            replaced += [("budget", "rho"), ("budget", "epsilon")]
        if "attributes" in workload:
            replaced += [("budget", "queries")]
            replaced += [("workload", "passes"), ("workload", "structural_zeros")]
        for section, key in replaced:
            preset.get(section, {}).get(universe, {}).pop(key, None)
    return preset


def _table(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The table under a key; empty if there is none or something else."""
    found = tree.get(key)
    return found if isinstance(found, Mapping) else {}


def _apply_override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputRefused(f"--set {override}: write it as section.key=value.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *sections, last = key.strip().split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise InputRefused(f"--set {override}: {section} is not a section.")
    tree[last] = value


def _validated(tree: Mapping[str, Any], path: Path) -> Settings:
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise InputRefused(_sentence(error, path)) from None
    settings = _with_absolute_paths(settings, path.parent)
    for universe in settings.run.universes:
        _check_universe(settings, universe, path)
    return settings


def _with_absolute_paths(settings: Settings, folder: Path) -> Settings:
    def absolute(name: str) -> str:
        return name if "://" in name else str((folder / name).resolve())

    tables = {key: absolute(getattr(settings.input, key)) for key in UNIVERSES + ("geography",)}
    return settings.model_copy(
        update={
            "input": settings.input.model_copy(update=tables),
            "privacy": settings.privacy.model_copy(
                update={"ledger": absolute(settings.privacy.ledger)}
            ),
        }
    )


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _sentence(error: ValidationError, path: Path) -> str:
    """One sentence for the first of pydantic's complaints."""
    first, *others = error.errors(include_url=False)
    where = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "extra_forbidden":
        section = Settings.model_json_schema()
        known = _keys_beside(section, first["loc"])
        text = f"unknown setting {where!r}{_nearest(str(first['loc'][-1]), known)}"
        text += f"; known here: {', '.join(known)}" if known else ""
    elif first["type"] == "missing":
        text = f"the setting {where!r} is missing; add it, or name a preset that has it"
    elif first["type"] == "value_error":
        problem = str(first["ctx"]["error"])
        text = f"{where} {problem}" if where else problem
    else:
        text = f"{where}: {first['msg']}"
    more = f" ({len(others)} more problems follow it)" if others else ""
    return f"{path.name}: {text}{more}."


def _keys_beside(schema: Mapping[str, Any], location: Sequence[Any]) -> list[str]:
    """Names of the settings that are known where an unknown one was found."""
    definitions = schema.get("$defs", {})
    node: Mapping[str, Any] = schema
    for part in location[:-1]:
        entry = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
        if isinstance(part, int):
            entry = node.get("items", {})
        reference = entry.get("$ref", "").rpartition("/")[2]
        node = definitions.get(reference, entry)
    return sorted(node.get("properties", {}))


def _check_universe(settings: Settings, universe: str, path: Path) -> None:
    """Refuse budgets and passes that do not fit the schema; names the universe and the key."""

    def refuse(text: str) -> None:
        raise InputRefused(f"{path.name}: {text}.")

    for section in ("budget", "workload"):
        if universe not in getattr(settings, section):
            refuse(f"run.universes names {universe}, but there is no section {section}.{universe}")
    where = f"budget.{universe}"
    budget = settings.budget[universe]
    given = [name for name in ("rho", "epsilon") if getattr(budget, name) is not None]
    if budget.mechanism == DISCRETE_LAPLACE and given != ["epsilon"]:
        refuse(f"{where} needs epsilon and no rho under the discrete Laplace mechanism")
    if budget.mechanism == DISCRETE_GAUSSIAN:
        if len(given) != 1:
            refuse(f"{where} needs either rho, or epsilon together with delta")
        if budget.delta is None:
            refuse(f"{where} needs delta, at which epsilon is reported")
    for name in given:
        value = getattr(budget, name)
        if not SMALLEST_LOSS <= value <= LARGEST_LOSS:
            refuse(f"{where}.{name} must be a positive fraction, from 1e-12 to 1e12")
    if budget.delta is not None and not 0 < budget.delta < 1:
        refuse(f"{where}.delta is {budget.delta}; it must be positive and below 1")
    _check_shares(budget.geolevels, f"{where}.geolevels", refuse)
    if any(share == 0 for share in budget.geolevels.values()):
        refuse(f"{where}.geolevels holds a share of 0; leave that geolevel out")
    if next(reversed(budget.geolevels), None) != "Block":
        refuse(f"{where}.geolevels must end with Block")
    try:
        schema = settings.schema_of(universe)
        foreign = set(schema.attributes) - set(UNIVERSE_ATTRIBUTES[universe])
        if foreign:
            raise ValueError(
                f"attribute {min(foreign)!r} is not one of {universe}; there are "
                f"{', '.join(UNIVERSE_ATTRIBUTES[universe])}"
            )
        for zero in settings.workload[universe].structural_zeros:
            schema.cells_where(zero.where)
    except ValueError as error:
        refuse(f"workload.{universe}: {error}")
    for geolevel in budget.geolevels:
        key = f"{where}.queries.{geolevel}"
        if geolevel not in budget.queries:
            refuse(f"{key} is missing; every geolevel with a share needs query shares")
        _check_shares(budget.queries[geolevel], key, refuse)
        passes = settings.workload[universe].passes
        if geolevel not in passes and "other" not in passes:
            refuse(f"workload.{universe}.passes has neither {geolevel} nor other")
        spelt = settings.passes_of(universe, geolevel)
        try:
            for name in budget.queries[geolevel]:
                marginal_query(schema, name)
            chains = [[marginal_query(schema, name) for name in names] for names in spelt.rounder]
            measured = {name for names in spelt.least_squares for name in names}
            for name in measured:
                marginal_query(schema, name)
        except ValueError as error:
            refuse(f"{key}: {error}")
        if not all(queries_are_nested(chain) for chain in chains):
            refuse(
                f"workload.{universe}.passes at {geolevel}: each rounder pass must be a chain in "
                "which every query refines the one before it"
            )
        unused = set(settings.budget_of(universe).query_shares[geolevel]) - measured
        if unused:
            refuse(
                f"{key} spends on {sorted(unused)[0]!r}, which no least-squares pass at "
                f"{geolevel} uses"
            )


def _check_shares(shares: Mapping[str, Fraction], where: str, refuse) -> None:
    negative = [name for name, share in shares.items() if share < 0]
    if negative:
        refuse(f"{where}.{negative[0]} is {shares[negative[0]]}; shares cannot be negative")
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        refuse(f"{where} sums to {_readable(total)}; the shares must sum to exactly 1")


def _readable(value: Fraction) -> str:
    return f"{value} ({float(value):.6g})" if value.denominator != 1 else str(value)
