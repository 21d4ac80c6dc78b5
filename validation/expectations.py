"""Rules on the input tables, evaluated for a public pass or fail of each.

Great Expectations evaluates and words those on allowed values, ranges and patterns. It sees the
distinct values of an evidence column, never rows and never counts: an expectation holds for all
rows if and only if it holds for all distinct values (see `validation.rules`). Results are booleans
only, the context lives in memory, and analytics, progress bars and logging are off. A yes/no column
has no more to say than its rule, and is looked at here.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from string import Template
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

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

    A rule is one expectation, and one more says that nothing is blank unless the rule lets it be,
    because the former pass over blanks.
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
        if not rule.may_be_blank:
            suite.add_expectation(
                gx.expectations.ExpectColumnValuesToNotBeNull(column=rule.evidence, meta=meta)
            )
    return suites


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
        evaluated = tuple(met.get((rule.suite, rule.name), ()))
        if is_own or rule.is_yes_or_no:
            passed = values is not None and all(map(rule.is_met_by, values))
        elif evaluated:
            passed = all(own.passed for own in evaluated)
        else:
            passed = values is not None and not len(values)
        outcomes.append(Outcome(rule.name, rule.suite, passed, rule.statement, evaluated))
    return tuple(outcomes)


def _evaluate(
    rules: Sequence[Rule], distinct_values: Mapping[str, Mapping[str, Collection[Value]]]
) -> Mapping[tuple[str, str], Sequence[ExpectationOutcome]]:
    """Outcomes of the expectations of rules on columns with values, by suite and rule."""
    met: dict[tuple[str, str], list[ExpectationOutcome]] = {}
    context = import_great_expectations().get_context(mode="ephemeral")
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
    return met


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


def _sentence(config: ExpectationConfiguration) -> str:
    """Great Expectations' text of an expectation, long sets shortened.

    The text comes from the rule alone; it contains no data.
    """
    return _word_expectation(
        config.type, json.dumps({k: _shorten_set(v) for k, v in config.kwargs.items()})
    )


@cache
def _word_expectation(kind: str, kwargs: str) -> str:
    """The words of Great Expectations for a type of expectation and its arguments, in JSON."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.render.renderer.inline_renderer import InlineRenderer

    config = ExpectationConfiguration(type=kind, kwargs=json.loads(kwargs))
    rendered = InlineRenderer(render_object=config).get_rendered_content()[0].value
    values = {name: param["value"] for name, param in (rendered.params or {}).items()}
    return Template(rendered.template or "").safe_substitute(values)


def _shorten_set(value: object) -> object:
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
