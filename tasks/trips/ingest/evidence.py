"""What was found about each rule on the input: how many rows break it, and a public example."""

from __future__ import annotations

from dataclasses import dataclass, field

from spineflow.tasks.tables.findings import Finding
from spineflow.validation.expectations import RuleOutcome, run_suites
from spineflow.validation.rules import Rule


@dataclass
class Evidence:
    """Breaches of rules as they are counted, and the names that messages show for the files."""

    names: dict[str, str]
    breaches: dict[Rule, int] = field(default_factory=dict)
    examples: dict[Rule, str] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, example: str = "") -> bool:
        """Count breaches of a rule, 0 included; returns whether there are none.

        `example` names the first breach; it may only be what a public file of areas says.
        """
        if count and example:
            self.examples.setdefault(rule, example)
        self.breaches[rule] = self.breaches.get(rule, 0) + int(count)
        return not count

    def outcomes(self) -> tuple[RuleOutcome, ...]:
        """Public outcome of every rule that was looked at, as Great Expectations finds it."""
        distinct: dict[str, dict[str, tuple[bool, ...]]] = {}
        for rule, count in self.breaches.items():
            distinct.setdefault(rule.suite, {})[rule.evidence] = (
                (False, True) if count else (False,)
            )
        return run_suites(tuple(self.breaches), distinct)

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, in the order of the rules."""
        return tuple(
            Finding(
                self.names[rule.table],
                rule.column,
                rule.statement + self.examples.get(rule, ""),
                rule.remedy,
                count,
            )
            for rule, count in self.breaches.items()
            if count
        )
