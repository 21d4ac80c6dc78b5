"""Great Expectations suites of the input tables, run for a public pass or fail per rule.

Great Expectations sees the distinct values of every evidence column, never rows and never counts:
a value-set, pattern or not-null expectation holds for all rows if and only if it holds for all
distinct values (see `validation.rules`). Results are booleans only, the context lives in
memory, and analytics, progress bars and logging are off.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from string import Template
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from . import judge
from .outcome import ExpectationOutcome, Outcome
from .rules import Rule, Value

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration


_ASKS_RULES_ALONE: ContextVar[bool] = ContextVar("_ASKS_RULES_ALONE", default=False)


def readable(suite: str, passed: bool) -> Outcome:
    """Outcome of the rule that a suite's files can be read at all, before there are values."""
    statement = "what the settings name can be read, and has the columns that are needed"
    return Outcome("file_is_readable", suite, passed, statement)


def build_suites(rules: Sequence[Rule]) -> dict[str, ExpectationSuite]:
    """Great Expectations suites of the rules; an expectation's `meta["rule"]` is its rule's name.

    A rule on allowed values, a range or a pattern is one expectation, and one more says that
    nothing is blank unless the rule lets it be, because the former pass over blanks.
    """
    gx = import_great_expectations()
    suites: dict[str, ExpectationSuite] = {}
    for rule in rules:
        suite = suites.setdefault(rule.suite, gx.ExpectationSuite(rule.suite))
        meta = {"rule": rule.name, "statement": rule.statement}
        if rule.allowed is not None:
            expected = gx.expectations.ExpectColumnValuesToBeInSet
            limits: dict[str, Any] = {"value_set": list(rule.allowed)}
        elif rule.between is not None:
            expected = gx.expectations.ExpectColumnValuesToBeBetween
            limits = dict(zip(("min_value", "max_value"), rule.between, strict=True))
        else:
            expected = gx.expectations.ExpectColumnValuesToMatchRegex
            limits = {"regex": rf"\A(?:{rule.pattern})\Z"}
        suite.add_expectation(expected(column=rule.evidence, meta=meta, **limits))
        # Yes/no columns are derived, and so have no blanks.
        if not rule.may_be_blank and rule.allowed != (False,):
            suite.add_expectation(
                gx.expectations.ExpectColumnValuesToNotBeNull(column=rule.evidence, meta=meta)
            )
    return suites


def run_suites(
    rules: Sequence[Rule], distinct_values: Mapping[str, Mapping[str, Collection[Value]]]
) -> tuple[Outcome, ...]:
    """Validate the rules with Great Expectations and return an outcome for each, in their order.

    `distinct_values` maps a suite to its evidence columns and their distinct values. A rule whose
    expectation cannot be evaluated has not passed; one about a column without values holds.
    Inside `by_the_rules_alone` the rules themselves are asked. A process that judges for others, if
    there is one, is asked first.
    """
    if _ASKS_RULES_ALONE.get():
        return tuple(_own_outcome(r, distinct_values[r.suite].get(r.evidence)) for r in rules)
    found: tuple[Outcome, ...] | None = judge.asked(rules, distinct_values)
    return judged(rules, distinct_values) if found is None else found


def judged(
    rules: Sequence[Rule], distinct_values: Mapping[str, Mapping[str, Collection[Value]]]
) -> tuple[Outcome, ...]:
    """As `run_suites`, by Great Expectations in this process."""
    gx = import_great_expectations()
    met: dict[tuple[str, str], list[ExpectationOutcome]] = {}
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    source = context.data_sources.add_pandas("spineflow")
    for name, suite in build_suites(rules).items():
        definition = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        frame = _rectangular({c: v for c, v in distinct_values[name].items() if len(v)})
        if frame.empty:
            continue
        batch = definition.get_batch(batch_parameters={"dataframe": frame})
        for result in batch.validate(suite, result_format="BOOLEAN_ONLY").results:
            config = result.expectation_config
            outcome = ExpectationOutcome(_sentence(config), bool(result.success))
            met.setdefault((name, config.meta["rule"]), []).append(outcome)
    return tuple(
        Outcome(
            rule.name,
            rule.suite,
            _is_empty(distinct_values[rule.suite].get(rule.evidence))
            or (bool(evaluated) and all(outcome.passed for outcome in evaluated)),
            rule.statement,
            tuple(evaluated),
        )
        for rule in rules
        for evaluated in [met.get((rule.suite, rule.name), [])]
    )


@contextmanager
def by_the_rules_alone() -> Iterator[None]:
    """In the block, `run_suites` decides by `Rule.is_met_by`, without Great Expectations.

    For commands that release nothing: they answer before that could be imported. A run asks it
    in any case, and the tests hold that both say the same.
    """
    before = _ASKS_RULES_ALONE.set(True)
    try:
        yield
    finally:
        _ASKS_RULES_ALONE.reset(before)


def _own_outcome(rule: Rule, values: Collection[Value] | None) -> Outcome:
    """A rule's outcome by the rule itself; not passed without a column of evidence."""
    passed = values is not None and all(map(rule.is_met_by, values))
    return Outcome(rule.name, rule.suite, passed, rule.statement)


def _is_empty(values: Collection[Value] | None) -> bool:
    return values is not None and not len(values)


def _sentence(config: ExpectationConfiguration) -> str:
    """What an expectation expects, as Great Expectations words it, long sets shortened.

    The words come from the rule alone; nothing of the data is in them.
    """
    return _worded(config.type, json.dumps({k: _shortened(v) for k, v in config.kwargs.items()}))


@cache
def _worded(kind: str, kwargs: str) -> str:
    """The words of Great Expectations for a type of expectation and its arguments, in JSON."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.render.renderer.inline_renderer import InlineRenderer

    config = ExpectationConfiguration(type=kind, kwargs=json.loads(kwargs))
    rendered = InlineRenderer(render_object=config).get_rendered_content()[0].value
    values = {name: param["value"] for name, param in (rendered.params or {}).items()}
    return Template(rendered.template or "").safe_substitute(values)


def _shortened(value: object) -> object:
    """A long set by its first four values and its last one: each that is worded takes time."""
    if isinstance(value, list) and len(value) > 5:
        return [*value[:4], "…", value[-1]]
    return value


def _rectangular(columns: Mapping[str, Collection[Value]]) -> pd.DataFrame:
    """Columns of distinct values as a frame, short ones filled up by repeating their first value.

    Repetition changes no set of distinct values, and therefore no outcome.
    """
    height = max((len(values) for values in columns.values()), default=0)
    filled = {}
    for name, values in columns.items():
        texts = list(values)
        texts += texts[:1] * (height - len(texts))
        filled[name] = pd.Series(texts, dtype=object)
    return pd.DataFrame(filled)


NOT_ASKED = ("altair", "scipy.stats")
"""What Great Expectations imports for pictures and statistics, of which no rule makes use."""

NOT_THERE = ("boto3", "botocore", "sqlalchemy")
"""What it imports for data in databases and stores, if they are installed; ours are in memory."""


def import_great_expectations() -> ModuleType:
    """Great Expectations with its reporting off; the first import takes seconds.

    The libraries of `NOT_ASKED` are imported when they are first used, as a rule never: they take
    two fifths of the time of the rest. Those of `NOT_THERE`, a quarter of it, it does without.
    """
    if "great_expectations" in sys.modules:
        return sys.modules["great_expectations"]
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), _imported_when_used(NOT_ASKED), _not_there(NOT_THERE):
        warnings.simplefilter("ignore")
        import great_expectations

    # This one has a level of its own.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.CRITICAL)
    _word_with_one_model_for_a_name()
    return great_expectations


def import_alone() -> None:
    """As `import_great_expectations`, in a process that does nothing else meanwhile: it makes a
    model of every reader of pandas that it finds, of which no rule makes use, and finds none."""
    readers = {name: own for name, own in vars(pd).items() if name.startswith("read_")}
    for name in readers:
        delattr(pd, name)
    try:
        import_great_expectations()
    finally:
        vars(pd).update(readers)


def _word_with_one_model_for_a_name() -> None:
    """Have Great Expectations make the model of a parameter once for each name. It makes one for
    each parameter of each expectation that it words, a third of the time of judging."""
    from great_expectations.render.renderer_configuration import RendererConfiguration

    name = "_get_renderer_value_base_model_type"
    made = getattr(RendererConfiguration, name, None)
    if made is not None:
        setattr(RendererConfiguration, name, staticmethod(cache(made)))


class _StandIn(ModuleType):
    """A module in the place of another, which is imported when something of it is used."""

    def __getattr__(self, attribute: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), attribute)


@contextmanager
def _imported_when_used(names: Sequence[str]) -> Iterator[None]:
    """What the block imports of these modules is imported when it is used; who imports them after
    the block does so as ever."""
    stand_ins = [_StandIn(name) for name in names if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in stand_ins})
    try:
        yield
    finally:
        for each in stand_ins:
            if sys.modules.get(each.__name__) is each:
                del sys.modules[each.__name__]


class _NotThere:
    """A finder of modules that says to one thread that some are not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._thread = get_ident()

    def find_spec(self, name: str, *_others: object) -> None:
        if name in self._names and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def _not_there(names: Sequence[str]) -> Iterator[None]:
    """This thread imports in the block as if these modules were not installed, but for those that
    were imported before."""
    finder = _NotThere(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
