"""Settings common to all products.

Settings are frozen, unknown keys are refused, and privacy parameters are exact fractions. A
product's model inherits from `ProductSettings` and adds its own sections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .errors import InputRefused
from .files import NOT_PRIVATE
from .names import match_spelling
from .stores import carries_secrets, is_url


class WrittenNumber(float):
    """A number of `--set`, from which a shell takes quotes, with its `text`, which is exact."""

    def __init__(self, text: str) -> None:
        self.text = text


def exact_fraction(value: Any) -> Fraction:
    """An exact fraction from a string, an integer or a number of `--set`; binary floats are
    refused.
    """
    if isinstance(value, Fraction):
        return value
    value = value.text if isinstance(value, WrittenNumber) else value
    if isinstance(value, bool | float) or not isinstance(value, str | int):
        raise ValueError('must be an exact fraction in quotes, for example "1/20" or "0.05"')
    try:
        return Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise ValueError('is not a fraction; write for example "1/20" or "0.05"') from None


SMALLEST_LOSS, LARGEST_LOSS = Fraction("1e-12"), Fraction("1e12")
"""A rho or epsilon beyond these is a slip, and its noise could not be computed with."""


def checked_loss(value: Fraction) -> Fraction:
    """A rho or epsilon; raises ValueError for one not positive, or absurdly small or large."""
    if not SMALLEST_LOSS <= value <= LARGEST_LOSS:
        raise ValueError("must be a positive fraction, from 1e-12 to 1e12")
    return value


def checked_probability(value: Fraction) -> Fraction:
    """A delta or a confidence; raises ValueError for one that is not strictly from 0 to 1."""
    if not 0 < value < 1:
        raise ValueError(f"is {value}; it must be positive and below 1")
    return value


ExactFraction = Annotated[Fraction, BeforeValidator(exact_fraction)]
Loss = Annotated[ExactFraction, AfterValidator(checked_loss)]
"""A rho or epsilon."""
Probability = Annotated[ExactFraction, AfterValidator(checked_probability)]
"""A delta or a confidence."""

_PATH = "path"
FilePath = Annotated[str, _PATH]
"""A path, taken from the settings file's folder if it is relative, or an fsspec URL."""

Refuse = Callable[[str], NoReturn]
"""Raises InputRefused with a sentence that begins with the settings file's name."""


def _to_tuples(value: Any) -> Any:
    """A value with tuples in place of the lists in it."""
    if isinstance(value, Mapping):
        return {key: _to_tuples(item) for key, item in value.items()}
    return tuple(map(_to_tuples, value)) if isinstance(value, list | tuple) else value


class KnownKeys(frozenset[str]):
    """Placeholder for the value of an unknown key; holds the known keys, for the refusal."""


class ExactTypes(BaseModel):
    """A model without conversion between types.

    "off", 0 and "f" are no booleans, true, "3" and 3.0 no whole numbers, at any depth of a field's
    type; lists are accepted for tuples, since TOML and JSON have no tuples.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    FORMER: ClassVar[Mapping[str, Any]] = {}
    """Keys that only earlier versions have, with their default: at that value they are ignored,
    since runs have frozen it."""

    @model_validator(mode="before")
    @classmethod
    def _lists_are_tuples(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping) or cls.model_config["extra"] == "allow":
            return _to_tuples(tree)
        known = {field.alias or name for name, field in cls.model_fields.items()}
        takes = known | (
            set(cls.model_fields) if cls.model_config.get("populate_by_name") else set()
        )
        return {
            key: _to_tuples(value) if key in takes else KnownKeys(known)
            for key, value in tree.items()
            if key not in cls.FORMER or value != cls.FORMER[key]
        }


class Section(ExactTypes):
    """A table of a settings file."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def with_sections(self, changed: Callable[[Section], Section]) -> Self:
        """This section with `changed` applied to every section that it has, alone or in a table."""
        update: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Section):
                update[name] = changed(value)
            elif isinstance(value, Mapping):
                update[name] = {
                    key: changed(item) if isinstance(item, Section) else item
                    for key, item in value.items()
                }
        return self.model_copy(update=update)

    def with_section(self, name: str, **changes: Any) -> Self:
        """This section with changes of one of the sections that it has."""
        return self.model_copy(update={name: getattr(self, name).model_copy(update=changes)})

    def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
        """This section with `absolute` applied to every path in it and in the sections below."""
        own = self.model_copy(update={name: absolute(path) for name, path in self.paths().items()})
        return own.with_sections(lambda section: section.with_absolute_paths(absolute))

    def paths(self) -> dict[str, str]:
        """The paths in this section itself, by key; keys without a value are left out."""
        fields = type(self).model_fields.items()
        values = {name: getattr(self, name) for name, field in fields if is_path(field)}
        return {name: value for name, value in values.items() if value is not None}

    def located_paths(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """Every path in this section and in those below, with its dotted key."""
        for name, path in self.paths().items():
            yield prefix + name, path
        for name in type(self).model_fields:
            if isinstance(section := getattr(self, name), Section):
                yield from section.located_paths(f"{prefix}{name}.")


def is_path(field: Any) -> bool:
    """Whether a field is a FilePath, alone or optional."""
    alternatives = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return _PATH in field.metadata or any(
        _PATH in getattr(alternative, "__metadata__", ()) for alternative in alternatives
    )


OF_PRODUCTS = "products."
"""Begins an input that is the release of an earlier product of a run of several."""


class InputSettings(Section):
    """Where the input is; products add its files."""

    confidential: bool = Field(
        default=True,
        title="The input",
        description="Confidential unless it says otherwise; pages then show no counts of it.",
    )
    """Confidential inputs never have counts or other detail shown outside `confidential/`."""

    def files(self) -> tuple[str, ...]:
        """Files and folders that hold the input; a run goes on only with the same ones."""
        return tuple(self.paths().values())

    @property
    def awaited(self) -> dict[str, str]:
        """Products of the same run that are released earlier, by the names of inputs."""
        return {
            name: path.removeprefix(OF_PRODUCTS)
            for name, path in self.paths().items()
            if name in self.releases and path.startswith(OF_PRODUCTS)
        }

    @property
    def releases(self) -> Collection[str]:
        """The inputs that may be releases of earlier products; by default, none."""
        return ()

    def with_absolute_paths(self, absolute: Callable[[str], str]) -> Self:
        """These settings with `absolute` applied to every path except earlier products."""
        awaited = {f"{OF_PRODUCTS}{name}" for name in self.awaited.values()}
        return super().with_absolute_paths(lambda path: path if path in awaited else absolute(path))

    def with_releases(self, folders: Mapping[str, str]) -> Self:
        """These settings with the folders of the runs in place of the products' names."""
        return type(self).model_validate({**self.model_dump(), **folders})


class PrivacySettings(Section):
    """The dataset whose privacy is spent, and its ledger."""

    dataset: str = Field(
        min_length=1,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        title="Dataset",
        description="The ledger adds up everything drawn from these people under this name.",
    )
    ledger: FilePath = Field(
        default="ledger.db",
        title="Ledger",
        description="Full path of the privacy-loss ledger, made by ledger init.",
    )
    infinite: bool = False
    """Switch noise off; for testing on data that are not confidential."""
    seed: int | None = None
    """Make noise repeatable; for testing on data that are not confidential."""
    large_delta: Literal["a person may be published outright"] | None = None
    """Accepts, in these words, a delta of one over the number of persons or more."""


Neighbors = Literal["bounded", "unbounded"]
"""Neighbouring datasets of a guarantee: one record is changed, or added or removed."""


class RunnerSettings(Section):
    """Runner of the tasks; `auto` is threads."""

    runner: Literal["auto", "threads", "processes", "dask"] = Field(
        default="auto",
        title="Runner",
        description="Task runner; the release does not depend on it.",
    )
    workers: int = Field(
        default=2, ge=1, le=10_000, title="Workers", description="How many tasks run at once."
    )
    dask_address: str | None = Field(
        default=None,
        title="Dask scheduler",
        description="Address such as tcp://scheduler:8786.",
    )


RUNNER_KEYS = tuple(f"run.{name}" for name in RunnerSettings.model_fields)
"""The settings that change only how long a run takes; a resumed run may change them."""


class ReleaseSettings(Section):
    """Place of a copy of the release."""

    publish_to: FilePath | None = Field(
        default=None,
        title="Publish to",
        description="Folder or fsspec URL to which the checked release is copied.",
    )


WithPreset = Callable[["type[ProductSettings]", Mapping[str, Any]], Mapping[str, Any]]
"""Merges the preset named in a product's table, if any, beneath the table."""


class ProductSettings(Section):
    """The settings that every product has; read by `tasks.runs.settings_files`."""

    PRODUCT: ClassVar[str]
    """Name of the flow."""
    ASIDE: ClassVar[frozenset[str]] = frozenset()
    """Sections of a settings file that other commands read, without effect on a run."""
    WRITTEN_AS: ClassVar[Mapping[str, str]] = {}
    """Sections of a settings file under another name, by the field that they set."""
    NEEDS_PUBLIC_DATA: ClassVar[str] = (
        "privacy.infinite and privacy.seed are for testing only: set input.confidential = false "
        "if these data may be disclosed"
    )
    """Why a run that is not private refuses confidential input."""

    preset: str | None = None
    """Preset whose sections this file completes or overrides."""
    input: InputSettings
    privacy: PrivacySettings
    run: RunnerSettings = RunnerSettings()
    release: ReleaseSettings = ReleaseSettings()

    @model_validator(mode="after")
    def _testing_needs_public_data(self) -> Self:
        if self.input.confidential and not self.is_private:
            raise ValueError(self.NEEDS_PUBLIC_DATA)
        return self

    @property
    def published_to(self) -> str | None:
        """The folder or URL to which the run's own release is copied, None if nowhere."""
        return self.release.publish_to

    @property
    def release_keys(self) -> tuple[str, ...]:
        """The settings of the release, which spend no budget; a run that has begun may change them
        until it is released."""
        return tuple(f"release.{name}" for name in type(self.release).model_fields)

    @property
    def why_not_private(self) -> str | None:
        """Why the run's noise does not protect, as a clause; None for a private run."""
        if self.privacy.infinite:
            return "noise was switched off"
        if self.privacy.seed is not None:
            return "noise can be repeated from the seed in the settings"
        return None

    @property
    def parts(self) -> Mapping[str, ProductSettings]:
        """The settings of the products that a run is made of, by their names in it."""
        return {}

    @property
    def draws_noise(self) -> bool:
        """Whether the run draws noise, and charges it to a ledger."""
        return True

    @property
    def is_private(self) -> bool:
        """Whether the run's noise protects; otherwise its files say NOT PRIVATE."""
        return self.why_not_private is None

    @property
    def stamp(self) -> str | None:
        """First line of the pages of a run that is not private, with the reason, or None."""
        why = self.why_not_private
        return None if why is None else f"{NOT_PRIVATE}: {why}; for testing only"

    @classmethod
    def chosen_by(cls, tree: Mapping[str, Any]) -> type[Self]:
        """The model for a settings file's tables, or for frozen settings; by default this
        one, for all tables.
        """
        return cls

    @classmethod
    def completed(cls, own: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """A settings file's table, completed from files that it names; by default, unchanged.

        `folder` is the folder of the settings file, to which relative paths refer.
        """
        return own

    @classmethod
    def expanded(cls, own: Mapping[str, Any], with_preset: WithPreset) -> Mapping[str, Any]:
        """A settings file's table, completed from its presets."""
        return with_preset(cls, own)

    def resolved(self) -> Self:
        """These settings, completed from the files that they name; by default, themselves.

        Called once, on the given settings: a run keeps its frozen settings.
        """
        return self

    @classmethod
    def without_replaced(cls, preset: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """The preset without the keys that the file's own settings replace as a whole."""
        return preset

    def refuse_unfit_addresses(self, refuse: Refuse) -> None:
        """Refuse URLs that hold secrets, since settings are frozen in runs, and a remote ledger."""
        for key, path in self.located_paths():
            if is_url(path) and carries_secrets(path):
                refuse(
                    f"{key} holds a user, a password or a query; give the address alone, and "
                    "credentials in the environment"
                )
        if is_url(self.privacy.ledger):
            refuse("privacy.ledger must be a path; the ledger is a file that is locked and synced")

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Check conditions between fields; call `refuse` with a sentence on the first failure."""

    @property
    def conditions(self) -> Conditions:
        """The settings that have an effect under some others alone."""
        return {
            "run.dask_address": (self.run.runner == "dask", 'run.runner = "dask"'),
            "privacy.large_delta": (
                self.input.confidential and self.is_private,
                "confidential input",
            ),
        }

    def refuse_ineffective(self, own: Mapping[str, Any], refuse: Refuse) -> None:
        """Refuse settings that a file gives, other than their defaults, without their condition.

        `own` is the settings file's own table, without its preset. Called for settings files
        alone: a run that an earlier version began keeps its settings.
        """
        for key, (holds, condition) in self.conditions.items():
            name, _, field = key.partition(".")
            section = getattr(self, name)
            default = type(section).model_fields[field].get_default()
            if field in table_of(own, name) and not holds and getattr(section, field) != default:
                refuse(f"{key} does nothing without {condition}; remove it")


Conditions = Mapping[str, tuple[bool, str]]
"""For settings by section and key: whether they have an effect given the others, and the condition
for it."""


def table_of(tree: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The table under nested keys; empty if it does not exist."""
    for key in keys:
        found = tree.get(key)
        tree = found if isinstance(found, Mapping) else {}
    return tree


AnySection = TypeVar("AnySection", bound=Section)


def without_section(model: type[AnySection], settings: AnySection) -> AnySection:
    """Settings of a model that adds sections to another, as the other's."""
    return model.model_construct(**{name: getattr(settings, name) for name in model.model_fields})


def with_runner(settings: AnySection, runner: RunnerSettings) -> AnySection:
    """Settings with another runner in every section that names one; their release is the same."""
    if isinstance(settings, RunnerSettings):
        chosen = {name: getattr(runner, name) for name in RunnerSettings.model_fields}
        return settings.model_copy(update=chosen)
    return settings.with_sections(lambda section: with_runner(section, runner))


def have_same_draws(one: ProductSettings, other: ProductSettings) -> bool:
    """Whether two settings differ in their runners and in [release] alone, if at all."""
    return have_same_release(one, other.model_copy(update={"release": one.release}))


def have_same_release(one: ProductSettings, other: ProductSettings) -> bool:
    """Whether two settings differ in their runners alone, if at all."""
    # Comparing the settings themselves would include derived arrays.
    first, second = (with_runner(own, RunnerSettings()).model_dump() for own in (one, other))
    return type(one) is type(other) and first == second


def merged_tables(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the keys of both; where both have one, `top` wins, and tables are merged.

    Names of queries are compared without their spaces and the order of their factors.
    """
    merged = dict(base)
    for given, value in top.items():
        key = match_spelling(given, merged)
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merged_tables(below, value)
        merged[key] = value
    return merged


def refuse_within(where: str, refuse: Refuse) -> Refuse:
    """A `Refuse` whose sentences begin with a place in the settings file."""
    return lambda text: refuse(f"{where}: {text}")


@contextmanager
def refusing(where: str, refuse: Refuse) -> Iterator[None]:
    """Refuse settings, by their place in the file, for which a ValueError is raised inside."""
    try:
        yield
    except ValueError as error:
        refuse(f"{where}: {error}")


def refuse_in(file_name: str) -> Refuse:
    """A `Refuse` for the settings file of that name."""

    def refuse(text: str) -> NoReturn:
        raise InputRefused(f"{file_name}: {text}.")

    return refuse


def refuse_large_delta(
    settings: ProductSettings, delta: Fraction | None, n_persons: int, key: str
) -> None:
    """Refuse a delta of one over the number of persons or more, unless the settings accept it.

    Such a guarantee is met by a mechanism that publishes a person picked at random. The sentence
    has no number, since the number of persons may be confidential: a reader of the refusal learns
    only whether it is at least one over delta. Raises InputRefused for confidential input of a
    private run.
    """
    if delta is None or delta * n_persons < 1 or not settings.is_private:
        return
    if settings.input.confidential and settings.privacy.large_delta is None:
        raise InputRefused(
            f"{key} is not below one over the number of persons, so that the guarantee does not "
            "rule out that a person is published outright; choose a smaller delta such as 1e-10, "
            'or accept that with privacy.large_delta = "a person may be published outright".'
        )


def refuse_shares(shares: Mapping[str, Fraction], where: str, refuse: Refuse) -> None:
    """Refuse shares that are negative or do not sum to exactly 1."""
    negative = [name for name, share in shares.items() if share < 0]
    if negative:
        refuse(f"{where}.{negative[0]} is {shares[negative[0]]}; shares cannot be negative")
    total = sum(shares.values(), Fraction(0))
    if total != 1:
        refuse(f"{where} sums to {_readable(total)}; the shares must sum to exactly 1")


def _readable(value: Fraction) -> str:
    return f"{value} ({float(value):.6g})" if value.denominator != 1 else str(value)
