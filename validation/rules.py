"""Rules on the input of every product: their form, their files, and their evaluation.

Every rule is a statement about the distinct values of one column of *evidence*: a column of the
table itself, in canonical text or as a whole number, or a yes/no column derived from several
columns or tables. A rule of this kind holds for all rows if and only if it holds for all distinct
values, so it can be evaluated on a table's distinct values, however many rows there are.
`count_violations` evaluates a rule here, with (confidential) row counts; `run_suites` gives the
same rules a public pass or fail. For it Great Expectations evaluates those on allowed values,
ranges and patterns. It sees the distinct values of an evidence column, never rows and never counts.
Results are booleans only, the context lives in memory, and analytics, progress bars and logging
are off. A yes/no column has no more to say than its rule, and is looked at here.

A TOML file, in `declared_rules`, declares the rules in groups:

    evidence = "breaks {name}"   # default of every rule of the file
    [[areas]]                    # a rule of the group `areas`, in the order of reporting
    name = "areas_are_named"
    column = "area"
    statement = "every row must name a level and an area"
    remedy = "fill the level and the area in every row"

Names in braces are replaced by words that are given with the group, or by the rule's own texts;
braces of a pattern are doubled. The table of a rule is the group's name, its suite is its table,
and its evidence its name, unless it says otherwise.

A rule has at most one condition on its evidence: a `pattern`, the values that are `allowed`, the
`numbers` from a first to a last as texts, or the ends `at_least` and `at_most`. These and `allowed`
may be the name of a word. Without a condition the evidence is yes or no, and must be no.

Rules of detailed groups apply to the rows of the tabulated states; rows of other states are removed
before.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from .outcome import Outcome

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

Value = str | int | bool | None
Evidence = Mapping[str, Mapping[str, Mapping[Value, int]]]
"""Suite -> evidence column -> distinct value -> number of rows with it. None is blank."""


@dataclass(frozen=True)
class Rule:
    """A rule about the distinct values of one evidence column.

    `statement` is a clause with "must", which names no value of a record; `remedy` is an
    imperative. A value passes if it is in `allowed`, fully matches `pattern`, or is a number from
    the first to the second of `between`, None for no end; a blank (None) passes if `may_be_blank`.
    `suite` is its suite of expectations, `table` the input table whose file a message names,
    `column` the column it names.
    """

    name: str
    suite: str
    table: str
    column: str
    evidence: str
    statement: str
    remedy: str
    allowed: tuple[Value, ...] | None = None
    pattern: str | None = None
    between: tuple[int | None, int | None] | None = None
    may_be_blank: bool = False

    @property
    def is_yes_or_no(self) -> bool:
        """Whether the evidence is derived, and must be no."""
        return self.allowed == (False,)

    def is_met_by(self, value: Value) -> bool:
        """Whether one distinct value of the evidence column passes."""
        if value is None:
            return self.may_be_blank
        if self.allowed is not None:
            return value in self.allowed
        if self.between is not None:
            low, high = self.between
            if isinstance(value, str):
                return False
            return (low is None or low <= value) and (high is None or value <= high)
        if self.pattern is None or not isinstance(value, str):
            return False
        return re.fullmatch(self.pattern, value) is not None


def count_violations(rule: Rule, evidence: Evidence) -> int:
    """Number of rows that break a rule; confidential."""
    rows_of = evidence[rule.suite][rule.evidence]
    return sum(rows for value, rows in rows_of.items() if not rule.is_met_by(value))


TEXTS = ("name", "suite", "table", "column", "evidence", "statement", "remedy")


@dataclass(frozen=True)
class RuleFile:
    """Content of a file: tables of `rules` by group, the texts `of_all`, and its other `tables`."""

    rules: Mapping[str, list[dict[str, Any]]]
    of_all: Mapping[str, str]
    tables: Mapping[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> RuleFile:
        """Read a TOML file."""
        declared = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = {name: value for name, value in declared.items() if isinstance(value, list)}
        tables = {name: value for name, value in declared.items() if isinstance(value, dict)}
        return cls(rules, {name: declared[name] for name in declared if name in TEXTS}, tables)

    def of(self, group: str, **words: Any) -> tuple[Rule, ...]:
        """The rules of a group, with `words` for the names in braces."""
        return tuple(
            self._rule(declared, {"table": group} | words) for declared in self.rules[group]
        )

    def one(self, group: str, **words: Any) -> Rule:
        """The rule of a group of one."""
        (rule,) = self.of(group, **words)
        return rule

    def _rule(self, declared: Mapping[str, Any], words: Mapping[str, Any]) -> Rule:
        own = {key: declared[key].format(**words) for key in TEXTS if key in declared}
        known = {**words, **own}
        for key, text in self.of_all.items():
            known[key] = own.get(key) or text.format(**known)
        known = {"suite": known["table"], "evidence": known["name"]} | known
        return Rule(
            **{key: known[key] for key in TEXTS},
            **_condition(declared, known),
            may_be_blank=declared.get("may_be_blank", False),
        )


def _condition(declared: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """The condition on the evidence of a rule, as `Rule` takes it."""

    def word(value: Any) -> Any:
        return words[value] if isinstance(value, str) else value

    if "pattern" in declared:
        return {"pattern": declared["pattern"].format(**words)}
    if "at_least" in declared or "at_most" in declared:
        return {"between": tuple(word(declared.get(end)) for end in ("at_least", "at_most"))}
    if "numbers" in declared:
        first, last = declared["numbers"]
        return {"allowed": tuple(map(str, range(first, last + 1)))}
    return {"allowed": tuple(word(declared.get("allowed", (False,))))}


_ASKS_RULES_ALONE: ContextVar[bool] = ContextVar("_ASKS_RULES_ALONE", default=False)


def readable(suite: str, passed: bool) -> Outcome:
    """Outcome of the rule that a suite's files can be read at all, before there are values."""
    statement = "what the settings name can be read, and has the columns that are needed"
    return Outcome("file_is_readable", suite, passed, statement)


def run_suites(
    rules: Sequence[Rule], distinct_values: Mapping[str, Mapping[str, Collection[Value]]]
) -> tuple[Outcome, ...]:
    """Validate the rules and return an outcome for each, in their order.

    `distinct_values` maps a suite to its evidence columns and their distinct values. Great
    Expectations evaluates the rules on allowed values, ranges and patterns; yes/no rules, and
    inside `by_the_rules_alone` all, are evaluated by `Rule.is_met_by`. A rule that cannot be
    evaluated has not passed; one about a column without values holds.
    """
    is_own = _ASKS_RULES_ALONE.get()
    expected = [rule for rule in rules if not (is_own or rule.is_yes_or_no)]
    met = _evaluate(expected, distinct_values) if expected else {}
    outcomes = []
    for rule in rules:
        values = distinct_values[rule.suite].get(rule.evidence)
        if is_own or rule.is_yes_or_no:
            passed = values is not None and all(map(rule.is_met_by, values))
        else:
            is_empty = values is not None and not len(values)
            passed = met.get((rule.suite, rule.name), is_empty)
        outcomes.append(Outcome(rule.name, rule.suite, passed, rule.statement))
    return tuple(outcomes)


def _evaluate(
    rules: Sequence[Rule], distinct_values: Mapping[str, Mapping[str, Collection[Value]]]
) -> dict[tuple[str, str], bool]:
    """Whether the expectations of rules on columns with values are met, by suite and rule."""
    met: dict[tuple[str, str], bool] = {}
    context = import_great_expectations().get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    source = context.data_sources.add_pandas("spineflow")
    for name, suite in _build_suites(rules).items():
        definition = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        frame = _rectangular({c: v for c, v in distinct_values[name].items() if len(v)})
        if frame.empty:
            continue
        batch = definition.get_batch(batch_parameters={"dataframe": frame})
        for result in batch.validate(suite, result_format="BOOLEAN_ONLY").results:
            key = name, result.expectation_config.meta["rule"]
            met[key] = met.get(key, True) and bool(result.success)
    return met


def _build_suites(rules: Sequence[Rule]) -> dict[str, ExpectationSuite]:
    """Great Expectations suites of the rules; an expectation's `meta["rule"]` is its rule's name.

    A rule is one expectation, and one more says that nothing is blank unless the rule lets it be,
    because the former pass over blanks.
    """
    whole = import_great_expectations()
    gx = whole.expectations
    suites: dict[str, ExpectationSuite] = {}
    for rule in rules:
        suite = suites.setdefault(rule.suite, whole.ExpectationSuite(rule.suite))
        own: dict[str, Any] = {"column": rule.evidence, "meta": {"rule": rule.name}}
        if rule.allowed is not None:
            expected = gx.ExpectColumnValuesToBeInSet(value_set=list(rule.allowed), **own)
        elif rule.between is not None:
            low, high = rule.between
            expected = gx.ExpectColumnValuesToBeBetween(min_value=low, max_value=high, **own)
        else:
            regex = rf"\A(?:{rule.pattern})\Z"
            expected = gx.ExpectColumnValuesToMatchRegex(regex=regex, **own)
        suite.add_expectation(expected)
        if not rule.may_be_blank:
            suite.add_expectation(gx.ExpectColumnValuesToNotBeNull(**own))
    return suites


@contextmanager
def by_the_rules_alone() -> Iterator[None]:
    """In the block, `run_suites` decides by `Rule.is_met_by`, without Great Expectations.

    For commands that release nothing: they answer before that could be imported.
    """
    before = _ASKS_RULES_ALONE.set(True)
    try:
        yield
    finally:
        _ASKS_RULES_ALONE.reset(before)


def _rectangular(columns: Mapping[str, Collection[Value]]) -> pd.DataFrame:
    """Columns of distinct values as a frame, short ones filled up by repeating their values.

    Repetition changes no set of distinct values, and therefore no outcome.
    """
    height = max(map(len, columns.values()), default=0)
    filled = {name: [*islice(cycle(values), height)] for name, values in columns.items()}
    return pd.DataFrame(filled, dtype=object)


def import_great_expectations() -> ModuleType:
    """Great Expectations with its reporting and its logging off.

    Imported here, for that takes seconds, which runs without such rules do without.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # The second has a level of its own.
    for name in ("great_expectations", "great_expectations.data_context.types.base"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations
    return great_expectations


def _declared(name: str) -> RuleFile:
    return RuleFile.read(Path(__file__).parent / "declared_rules" / f"{name}.toml")


_CENSUS = _declared("census")

GROUP_QUARTERS_CODES: Mapping[int, tuple[str, ...]] = {
    int(kind): tuple(codes) for kind, codes in _CENSUS.tables["group_quarters"].items()
}
"""Codes of group quarters by type: correctional (1), juvenile (2), nursing (3), other
institutional (4), college (5), military (6), other noninstitutional (7)."""

NURSING_FACILITY = 3
"""Group-quarters type without residents younger than `ADULT_AGE`."""

ADULT_AGE = 18

CENSUS_RULES = _CENSUS.of(
    "rules", group_quarters=[code for codes in GROUP_QUARTERS_CODES.values() for code in codes]
)
"""All rules on census tables (persons, units, geography), in the order of reporting."""


def applicable_rules(evidence: Evidence) -> tuple[Rule, ...]:
    """The rules on census tables whose column is in the evidence; a schema may not need every
    persons column."""
    return tuple(rule for rule in CENSUS_RULES if rule.evidence in evidence.get(rule.suite, {}))


TENURE_RULE = _declared("supplemental_dhc").one("units")
"""Households by tenure need it."""

_DETAILED = _declared("detailed_groups")

NO_CODE = "Null"
"""Word in QRACE2 to QRACE8 where a person has fewer race codes, in the production layout."""

RACE_COLUMNS = tuple(f"QRACE{number}" for number in range(1, 9))
ETHNICITY_COLUMN = "QSPAN"
CODES_FILE = "race-and-ethnicity-codes.txt"

GEOGRAPHY_WIDTHS: Mapping[str, int] = _DETAILED.tables["widths"]["geography"]
PERSON_WIDTHS: Mapping[str, int] = _DETAILED.tables["widths"]["persons"]

HOUSEHOLD_RULES = _DETAILED.of("units")
"""The rules on the units of households; the first is on TEN of those that have a household."""


def production_rules() -> tuple[Rule, ...]:
    """The rules on `person-records.txt` and `GRF-C.txt`, in the order of reporting."""
    digits = (
        _DETAILED.one("digits", table=table, column=name, lower=name.lower(), width=width)
        for table, widths in _DETAILED.tables["widths"].items()
        for name, width in widths.items()
    )
    persons, blocks = _DETAILED.of("persons"), _DETAILED.of("blocks")
    return (*digits, *persons, *code_rules(no_code=NO_CODE), *blocks)


def code_rules(*, no_code: str | None) -> tuple[Rule, ...]:
    """The rules on race and ethnicity codes.

    `no_code` is the word in QRACE2 to QRACE8 for a missing code; None for a blank.
    """
    optional = "code_or_blank" if no_code is None else "code_or_word"
    columns = (*RACE_COLUMNS, ETHNICITY_COLUMN)
    valid = (
        _DETAILED.one(
            optional if name in RACE_COLUMNS[1:] else "code",
            column=name,
            lower=name.lower(),
            word=no_code,
        )
        for name in columns
    )
    known = (
        _DETAILED.one("known_code", column=name, unknown_code=unknown_code(name), file=CODES_FILE)
        for name in columns
    )
    return (*valid, *known, _DETAILED.one("codes_first", none=no_code or "blank"))


def unknown_code(column: str) -> str:
    """Name of the evidence that a code of a column is not in the specification."""
    return f"unknown_code_in_{column.lower()}"


SIZE_RULES = _declared("group_sizes")
"""Rules of group sizes: of the hierarchy `regions`, in the order of checking; and `total`, that the
number of groups is the declared one."""

_TOP_CODE = (
    "set mechanism.top_coded = true, which counts larger ones with the largest size at no more "
    "noise; a largest size taken from confidential data would reveal them"
)


def size_rules(smallest: int, largest: int, is_top_coded: bool = False) -> tuple[Rule, ...]:
    """Rules of the table of sizes; with a top code no size is too large."""
    known = SIZE_RULES.one("known_region", table="sizes")
    return (known, *SIZE_RULES.of("sizes", **_size_words(smallest, largest, is_top_coded)))


def record_rules(
    quantity: int, smallest: int, largest: int, is_top_coded: bool
) -> tuple[Rule, ...]:
    """Rules of the table of persons; the last is about groups."""
    amount = "1, 0 or empty" if quantity == 1 else f"a whole number from 0 to {quantity}"
    words = _size_words(smallest, largest, is_top_coded)
    once, named, *others = SIZE_RULES.of("records", quantity=quantity, amount=amount, **words)
    return (once, named, SIZE_RULES.one("known_region", table="records"), *others)


def unit_size_rule(largest: int) -> Rule:
    """The rule that a unit of census tables is not larger than the largest size."""
    return SIZE_RULES.one("census", largest=largest, top_code=_TOP_CODE)


def _size_words(smallest: int, largest: int, is_top_coded: bool) -> dict[str, Any]:
    """Words in the rules on sizes for the possible sizes."""
    remedy = "correct the column" if is_top_coded else f"correct the column, or {_TOP_CODE}"
    if smallest != 0:
        remedy += "; mechanism.smallest_size = 0 admits empty groups"
    return {
        "smallest": smallest,
        "largest": None if is_top_coded else largest,
        "range": f"of at least {smallest}" if is_top_coded else f"from {smallest} to {largest}",
        "remedy_for_sizes": remedy,
    }


AREA_RULES = _declared("areas")
"""On lists of `areas`: they are named, stand once and have one parent, each; their parents are
known, their levels form a chain, and every branch reaches the finest."""

TRIP_RULES = _declared("trips")
"""Rules of trips, on yes/no evidence. On a list of areas `columns`, that its levels are those
columns of a table; on a table `place`, that a column holds known areas or values, `counts` that are
whole numbers and not negative, `person`, that every trip is somebody's, and `contribution`, that a
person makes at most, and at least, so many trips, and none twice; and `depth`, that origins and
destinations have hierarchies of one depth."""

LARGEST_COUNT = 1 << 40
"""A count beyond this is refused as a slip, as text that is no number is."""


def place_rule(table: str, column: str, role: str, where: str) -> Rule:
    """The rule that a column of a table holds known areas or values."""
    return TRIP_RULES.one("place", table=table, column=column, role=role, where=where)
