"""Evidence about the rules on the input, as it is gathered."""

from __future__ import annotations

from dataclasses import dataclass, field

from spineflow.tasks.tables.findings import Finding
from spineflow.validation.expectations import RuleOutcome, run_suites
from spineflow.validation.rules import Rule


@dataclass
class RuleTally:
    """How often each rule is broken, in the order in which rules are looked at.

    `files` maps a table to the name that messages show for it.
    """

    files: dict[str, str]
    _broken: dict[Rule, int] = field(default_factory=dict)
    _examples: dict[Rule, str] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, example: str = "") -> bool:
        """Add cases that break a rule, 0 included; whether there are none.

        `example` goes into the public sentence: only what a public file says.
        """
        self._broken[rule] = self._broken.get(rule, 0) + int(count)
        if count and example:
            self._examples.setdefault(rule, f", but {example}")
        return not count

    @property
    def is_clean(self) -> bool:
        """Whether no rule has been broken."""
        return not any(self._broken.values())

    def outcomes(self) -> tuple[RuleOutcome, ...]:
        """Public outcome of every rule that was looked at, by Great Expectations."""
        distinct: dict[str, dict[str, tuple[bool, ...]]] = {}
        for rule, count in self._broken.items():
            values = (False, True) if count else (False,)
            distinct.setdefault(rule.suite, {})[rule.evidence] = values
        return run_suites(tuple(self._broken), distinct)

    def findings(self) -> tuple[Finding, ...]:
        """The broken rules, with their counts."""
        return tuple(
            Finding(
                self.files[rule.table],
                rule.column,
                rule.statement + self._examples.get(rule, ""),
                rule.remedy,
                count,
            )
            for rule, count in self._broken.items()
            if count
        )
