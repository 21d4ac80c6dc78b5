"""The Great Expectations suites judge as the rules do, quietly and without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from spineflow.validation.outcome import Outcome
from spineflow.validation.rules import (
    CENSUS_RULES,
    Rule,
    applicable_rules,
    by_the_rules_alone,
    count_violations,
    run_suites,
)

SUITES = ("geography", "units", "persons", "cross_table")
"""One suite for every input table, and one for the keys and rules between tables."""


GOOD = {
    "TABBLKST": ["44", "09"],
    "TABBLKCOU": ["001"],
    "TABTRACTCE": ["030100"],
    "TABBLKGRPCE": ["1"],
    "TABBLK": ["1000"],
    "AIANNHCE": ["9999", "0615"],
    "COUSUBFP": ["05140"],
    "PLACEFP": ["99999"],
    "RTYPE": ["2", "4"],
    "QGQTYP": [None, "101", "904"],
    "QAGE": ["0", "115"],
    "CENHISP": ["1", "2"],
    "CENRACE": ["1", "63"],
    "QSEX": ["1", "2"],
}
BAD = {
    **{name: [None, "", "A" * len(GOOD[name][0]), GOOD[name][0] + "1"] for name in list(GOOD)[:8]},
    "RTYPE": [None, "3"],
    "QGQTYP": ["0", "107", "x"],
    "QAGE": [None, "116", "-1", "x"],
    "CENHISP": [None, "0", "3"],
    "CENRACE": [None, "0", "64", "x"],
    "QSEX": [None, "0", "3"],
}


def evidence_of(rule: Rule, *extra):
    values = GOOD.get(rule.evidence, [False])
    return dict.fromkeys(values, 10) | dict.fromkeys(extra, 3)


def full_evidence():
    evidence: dict = {}
    for rule in CENSUS_RULES:
        evidence.setdefault(rule.suite, {})[rule.evidence] = evidence_of(rule)
    return evidence


def outcomes_by_rule(evidence):
    """By Great Expectations, and by the rules alone, which say the same."""
    outcomes = run_suites(CENSUS_RULES, evidence)
    with by_the_rules_alone():
        assert run_suites(CENSUS_RULES, evidence) == outcomes
    return {(o.subject, o.name): o.passed for o in outcomes}


def test_every_rule_passes_on_good_values():
    evidence = full_evidence()
    assert all(count_violations(rule, evidence) == 0 for rule in CENSUS_RULES)
    assert run_suites(CENSUS_RULES, evidence) == tuple(
        Outcome(rule.name, rule.suite, True) for rule in CENSUS_RULES
    )


@pytest.mark.parametrize("position", range(4))
def test_every_rule_fails_on_each_bad_value(position):
    evidence = full_evidence()
    spoilt = {}
    for rule in CENSUS_RULES:
        bad = BAD.get(rule.evidence, [True])
        value = bad[position % len(bad)]
        evidence[rule.suite][rule.evidence] = evidence_of(rule, value)
        spoilt[rule.suite, rule.name] = count_violations(rule, evidence)
    assert set(spoilt.values()) == {3}
    assert not any(outcomes_by_rule(evidence).values())


def test_one_broken_rule_leaves_the_others_alone():
    evidence = full_evidence()
    evidence["persons"]["QAGE"]["130"] = 1
    outcomes = outcomes_by_rule(evidence)
    assert [key for key, passed in outcomes.items() if not passed] == [("persons", "qage_is_valid")]


def test_rules_are_named_once_and_state_what_must_hold():
    assert len({(rule.suite, rule.name) for rule in CENSUS_RULES}) == len(CENSUS_RULES)
    assert len({(rule.suite, rule.evidence) for rule in CENSUS_RULES}) == len(CENSUS_RULES)
    for rule in CENSUS_RULES:
        assert rule.suite in SUITES
        assert (rule.allowed is None) != (rule.pattern is None)
        assert " must " in rule.statement or " may " in rule.statement
        assert (
            rule.column in rule.statement
            or rule.name == "no_facility_without_person"
            or (rule.name == "no_repeated_block")
        )


def test_columns_that_were_not_read_have_no_rules():
    evidence = full_evidence()
    del evidence["persons"]["QSEX"]
    names = {rule.name for rule in applicable_rules(evidence)}
    assert "qsex_is_valid" not in names
    assert len(names) == len({rule.name for rule in CENSUS_RULES}) - 1


def test_an_expectation_that_cannot_be_evaluated_has_not_passed():
    evidence = {"persons": {"QAGE": {"1": 1}}}
    rules = [rule for rule in CENSUS_RULES if rule.suite == "persons" and rule.evidence == "QAGE"]
    strange = Rule("strange", "persons", "persons", "X", "absent", "X must be", "-", allowed=("1",))
    outcomes = run_suites([*rules, strange], evidence)
    assert [outcome.passed for outcome in outcomes] == [True, False]


@pytest.mark.soak(4)
def test_no_output_no_files_no_network(tmp_path):
    program = textwrap.dedent(
        """
        import socket

        def refuse(*arguments, **named):
            raise AssertionError("network use")

        socket.socket.connect = refuse
        socket.getaddrinfo = refuse
        from spineflow.validation.rules import run_suites
        from spineflow.validation.rules import CENSUS_RULES

        rules = [rule for rule in CENSUS_RULES if rule.evidence == "QAGE"]
        assert "great_expectations" not in __import__("sys").modules
        outcomes = run_suites(rules, {"persons": {"QAGE": ["130"]}})
        assert [outcome.passed for outcome in outcomes] == [False]
        """
    )
    assert_quiet(program, tmp_path)


def assert_quiet(program: str, tmp_path: Path) -> None:
    """Run a program in a process of its own, which prints nothing and leaves nothing at home."""
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
