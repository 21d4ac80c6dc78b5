"""The record of a product, which the command line, flows, library, `products` and `tune` read.

A product is made in the module `product` of its folder, from functions of its stages, and is
found by its name (`registry`). Its flow is in `flows/`: Prefect is imported with the flow alone,
so that commands that run nothing start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import InputRefused
from ..runs.files import read_record, write_page
from ..runs.settings import ProductSettings, RunnerSettings
from ..runs.settings_files import load_settings

PRESETS = Path(__file__).parents[2] / "flows" / "settings"
"""Their folder."""


if TYPE_CHECKING:
    import pandas as pd

    from ...validation.outcome import Failures, Outcome
    from ..pages.document import Block, Document, Section
    from ..runs.directory import RunDirectory
    from ..tables.findings import InputCheck
    from .certificate import Facts
    from .comparison import ComparedRun
    from .plan import Plan
    from .privacy_curves import Curves


class Caution(str):
    """A sentence that a user must not miss; commands print it on standard error."""


@dataclass(frozen=True)
class Rules:
    """Rules on settings and input, before a run.

    check : reads the input and checks it against every rule.
    fits : checks the settings against an accepted input, and returns advisory notes.
    refuse : refuses combinations of settings, before any input is read.
    """

    check: Callable[[Any], InputCheck[Any]] | None = None
    fits: Callable[[Any, Any], Iterable[Block]] = lambda settings, accepted: ()
    refuse: Callable[[Any], None] = lambda settings: None


@dataclass(frozen=True)
class Checks:
    """Checks of a run by code that shares nothing with the code that it checks.

    release : outcomes for the finished run, all of which must pass before its release appears.
    plan : of a run's folder, before any noise is drawn; adds failures.
    """

    release: Callable[[RunDirectory, Any], Sequence[Outcome]]
    plan: Callable[[Path, Failures], None] | None = None


@dataclass(frozen=True)
class Words:
    """Words and tables of a product, in addition to every plan's.

    budget : of the costs, from settings and plan.
    notes : sentences on useless measurements of a run that is about to begin.
    certificate : the facts of the certificate; by default the facts of the plan.
    report : the public report, given the plan and the errors of public input; by default the report
        of the plan.
    restore : rebuilds missing files that a report needs.
    summary : the end of the command; by default the rows of every released table.
    """

    budget: Callable[[Any, Plan], Iterable[Block | Section]] = lambda settings, plan: ()
    notes: Callable[[RunDirectory, Any], Sequence[str]] = lambda run, settings: ()
    certificate: Callable[[RunDirectory, Any], Facts] | None = None
    report: Callable[[RunDirectory, Any, Any, pd.DataFrame | None], Document] | None = None
    restore: Callable[[RunDirectory, Any], object] = lambda run, settings: None
    summary: Callable[[RunDirectory, Any], Iterable[Block]] = lambda run, settings: (
        count_released_rows(run)
    )


@dataclass(frozen=True)
class Figures:
    """Figures on the errors of a run, for replicates, comparisons and searches.

    keys : the columns that identify a quantity.
    words : the columns of figures, with their descriptions.
    of_errors : the table of both, from a run's errors.
    facts : facts about a run, in words, by label.
    """

    keys: Sequence[str]
    words: Mapping[str, str]
    facts: Callable[[RunDirectory, Any], Mapping[str, str]]
    of_errors: Callable[[pd.DataFrame], pd.DataFrame] = lambda errors: errors


@dataclass(frozen=True)
class Accuracy:
    """Comparison of a release with its truth; the result is as confidential as the input.

    read : the errors of a run by quantity; None if they are gone.
    write : compares and keeps the errors; None where a separate step does.
    truth : the confidential files for the comparison, as long as all exist.
    figures : the errors of replicates and comparisons; None where runs are not compared.
    compare : writes a comparison where that is more than a table.
    of_release : settings with a release as public input, for expected errors.
    """

    read: Callable[[RunDirectory], pd.DataFrame | None] = lambda run: None
    write: Callable[[RunDirectory, Any], None] | None = None
    truth: Callable[[RunDirectory], Iterable[Path]] = lambda run: ()
    figures: Figures | None = None
    compare: Callable[[Sequence[tuple[RunDirectory, Any]]], Path] | None = None
    of_release: Callable[[RunDirectory, Any, Path], ProductSettings] | None = None

    def is_possible(self, run: RunDirectory) -> bool:
        """Whether the truth still exists, for comparisons."""
        return all(path.exists() for path in self.truth(run))


@dataclass(frozen=True, eq=False)
class Product:
    """A product: how settings and an input become a checked release under one charge.

    A settings file becomes an instance of `settings`, whose PRODUCT is the product's name. The
    stages of a run are in the product's module of `flows/`: ingest first, which writes public
    and confidential files to separate folders; then the charge, before any noise is
    drawn; measurement, estimation, the tables; and the steps of `steps`, which check,
    release and report.

    `plan` maps settings, and a run once its input is read, to measures and guarantee;
    without a run it is the plan by settings and public files alone, whose costs `budget` shows.
    The other modules of this package derive everything else from it. A product without a plan
    measures nothing itself: a search, or several products in one run (`ProductSettings.parts`),
    whose parts are charged, checked and reported by their own runs. `measured` are all files of
    noisy answers, present or not, where these are not one for each measured level.
    """

    settings: type[ProductSettings]
    plan: Callable[[Any, RunDirectory | None], Plan] | None = None
    rules: Rules | None = None
    checks: Checks | None = None
    words: Words = Words()
    accuracy: Accuracy = Accuracy()
    measured: Callable[[RunDirectory, Any], Sequence[Path]] | None = None

    @property
    def name(self) -> str:
        """Name of the product, and of its flow."""
        return self.settings.PRODUCT

    def load(
        self, source: str | Path | Mapping[str, Any] | None, overrides: Sequence[str] = ()
    ) -> ProductSettings:
        """Settings from a file, tables or overrides, checked as far as that needs no input."""
        settings = load_settings(self.settings, source, presets=PRESETS, overrides=overrides)
        settings = settings.resolved()
        self.refuse(settings)
        refuse_missing_runner(settings.run)
        return settings

    def refuse(self, settings: ProductSettings) -> None:
        """Check settings by the product's rules, or each part's; raises InputRefused."""
        if self.rules is not None:
            self.rules.refuse(settings)
            return
        for own, part in _parts(settings).values():
            own.refuse(part)

    def plan_of(self, run: RunDirectory, settings: ProductSettings) -> Plan:
        """The plan of a run, as written, or made anew for a run without one."""
        from .plan import plan_file, read_plan

        if self.plan is None:
            raise ValueError(f"{self.name} measures nothing")
        return read_plan(run) if plan_file(run).exists() else self.plan(settings, run)

    def costs(self, settings: ProductSettings) -> dict[str, Any]:
        """The cost of a run, from settings and public files alone, by universe; for several
        products by name."""
        if self.plan is None:
            return {name: own.costs(part) for name, (own, part) in _parts(settings).items()}
        return {cost.name: cost for cost in self.plan(settings, None).costs}

    def costs_in_words(self, settings: ProductSettings) -> Iterable[Block | Section]:
        """The costs for people: a line and tables for each universe, and words of the product."""
        from .budget import costs_in_words
        from .plan import explain_charges

        if self.plan is not None:
            plan = self.plan(settings, None)
            yield from costs_in_words(plan.costs)
            yield from explain_charges(plan)
            yield from self.words.budget(settings, plan)

    def curves(self, settings: ProductSettings) -> Curves | None:
        """The privacy curves of a run of settings; None without a guarantee or a known curve."""
        return None if self.plan is None else self.plan(settings, None).curves()

    def needed(self, settings: ProductSettings, wanted: Mapping[str, int]) -> Iterator[str]:
        """Sentences on the budget with which targets have margins of error.

        Targets of several products begin with the product's name and a colon. Raises InputRefused.
        """
        from .plan import needed_losses

        if self.plan is not None:
            yield from needed_losses(self.plan(settings, None), wanted)
            return
        parts = _parts(settings)
        for target, margin in wanted.items():
            name, _, what = target.partition(":")
            if name not in parts:
                raise InputRefused(
                    f"--target {target}: write PRODUCT:WHAT, with one of {', '.join(parts)}."
                    if parts
                    else f"Margins cannot be turned into a budget for {self.name}."
                )
            own, part = parts[name]
            yield from (f"{name}: {sentence}" for sentence in own.needed(part, {what: margin}))

    def measurement_files(self, run: RunDirectory, settings: ProductSettings) -> Sequence[Path]:
        """All files of noisy answers, present or not; by default one for each measured level."""
        if self.measured is not None or self.plan is None:
            return () if self.measured is None else self.measured(run, settings)
        universes = self.plan_of(run, settings).universes
        files = [run.dpqueries(u.universe, own.level) for u in universes for own in u.measured]
        return list(dict.fromkeys(files))

    def charge_run(self, run: RunDirectory, settings: ProductSettings) -> None:
        """Write the plan of a run, check it by independent code, and enter it in the ledger.

        A run that was charged keeps its plan. Raises BudgetRefused before any noise is drawn, and
        InputRefused for a run that an older version charged without a plan.
        """
        from ..ledger.charging import charge_draws
        from ..ledger.identity import digests_to_charge
        from .plan import plan_file, refuse_other_noise, write_plan

        if self.plan is None:
            raise ValueError(f"{self.name} measures nothing")
        plan, file = self.plan(settings, run), plan_file(run)
        if "ledger" not in run.read_manifest()["stages"]:
            write_plan(run, plan)
        if not file.exists():
            raise InputRefused(
                f"{run.root} was charged by an earlier version of spineflow, without "
                "plan/plan.json; finish it with version 0.2."
            )
        if self.checks is not None and self.checks.plan is not None:
            refuse_other_noise(partial(self.checks.plan, run.root))
        if settings.is_private:
            deciding = [run.root / name for name in plan.inputs]
            charge_draws(
                run,
                settings,
                draws=plan.universes,
                inputs=digests_to_charge(run, settings),
                decided_by=[*deciding, file],
                truth=[run.root / name for name in plan.counts],
                files=self.measurement_files(run, settings),
            )

    def check_run(self, run: RunDirectory, settings: ProductSettings) -> tuple[Outcome, ...]:
        """Check the finished, still unreleased run and write the public outcomes.

        Raises CheckFailed, naming the first check that failed; the release is then withheld.
        """
        if self.checks is None:
            raise ValueError(f"{self.name} releases nothing that is checked")
        from ..ledger.charging import refuse_unlike_ledger
        from .acceptance import accept

        refuse_unlike_ledger(run, settings)
        return accept(run, settings, self.checks.release(run, settings))

    def facts(self, run: RunDirectory, settings: ProductSettings) -> Facts:
        """The facts of a run's certificate; by default the facts of the plan."""
        from .certificate import Facts

        if self.words.certificate is not None:
            return self.words.certificate(run, settings)
        plan = self.plan(settings, run) if self.plan is not None else None
        curves, costs = (None, ()) if plan is None else (plan.curves(), plan.costs)
        return Facts("products/templates/certificate.md.j2", curves=curves, costs=costs)

    def compare_with_truth(self, run: RunDirectory, settings: ProductSettings) -> None:
        """Keep the errors of a release in its confidential folder, while the truth exists."""
        if self.accuracy.write is not None and self.accuracy.is_possible(run):
            self.accuracy.write(run, settings)

    def report(self, run: RunDirectory, settings: ProductSettings) -> Path:
        """Write the public report; errors are shown of input that is not confidential."""
        from .reports import plain_document

        if self.plan is None and self.words.report is None:
            return run.report
        plan: Any = None if self.plan is None else self.plan_of(run, settings)
        errors = None if settings.input.confidential else self.accuracy.read(run)
        report = self.words.report or plain_document
        return write_page(run.report, report(run, settings, plan, errors))

    def outcome(self, run: RunDirectory, settings: ProductSettings) -> Iterator[str]:
        """The guarantee of a finished run, its checks, and the places of its results, in lines."""
        from ...validation.outcome import CHECKS_FILE
        from ..runs.publication import marker_address
        from .acceptance import CERTIFICATE, warnings_of
        from .statement import describe_statement

        if self.plan is not None and settings.draws_noise:
            yield from describe_statement(self.plan_of(run, settings).statement)
        yield from (f"warning: {warning}" for warning in warnings_of(run))
        checks, certificate = run.checks / CHECKS_FILE, run.release / f"{CERTIFICATE}.html"
        if checks.exists():
            n_checks = len(read_record(checks)["checks"])
            seconds = sum(stage["seconds"] or 0 for stage in run.read_manifest()["stages"].values())
            yield f"{n_checks} checks passed; {seconds:.0f} s of work. Look at the report first:"
        yield f"report: {run.report}"
        if certificate.exists():
            yield f"certificate: {certificate}"
        yield f"release: {run.release}"
        if settings.published_to is not None:
            yield f"published: {marker_address(settings.published_to, self.name)}"

    def compared(self, run: RunDirectory, settings: ProductSettings) -> ComparedRun:
        """A run with its figures; raises InputRefused if truth and errors are both gone."""
        figures = self.accuracy.figures
        if figures is None:
            raise InputRefused(f"There are no figures of {self.name}.")
        from .comparison import ComparedRun, require_errors

        self.compare_with_truth(run, settings)
        errors = require_errors(run, self.accuracy.read(run))
        facts = {"dataset": settings.privacy.dataset, **figures.facts(run, settings)}
        return ComparedRun(run, settings, facts, figures.of_errors(errors))

    def write_comparison(self, runs: Sequence[tuple[RunDirectory, ProductSettings]]) -> Path:
        """Write a report of several finished runs side by side; returns its path."""
        if self.accuracy.compare is not None:
            return self.accuracy.compare(runs)
        figures = self.accuracy.figures
        if figures is None:
            raise InputRefused(f"Runs of {self.name} cannot be compared; name runs of one product.")
        from .comparison import write_comparison

        found = [self.compared(run, settings) for run, settings in runs]
        return write_comparison(found, figures.keys, figures.words)


def _parts(settings: ProductSettings) -> dict[str, tuple[Product, ProductSettings]]:
    """The products of a run of several, with their settings, by their names in it."""
    from .registry import product

    return {name: (product(own.PRODUCT), own) for name, own in settings.parts.items()}


def count_released_rows(run: RunDirectory) -> Iterator[str]:
    """A sentence: the number of rows of every released table; none without tables."""
    import pyarrow.parquet as pq  # Slow to load.

    files = sorted(run.release.glob("*.parquet"))
    rows = (f"{pq.read_metadata(file).num_rows:,} rows of {file.stem}" for file in files)
    if files:
        yield f"released: {', '.join(rows)}"


def format_notes(sentences: Iterable[str]) -> Iterator[str]:
    """Format advisory notes."""
    return (f"note: {sentence}." for sentence in sentences)


def refuse_missing_runner(runner: RunnerSettings) -> None:
    """Raise InputRefused for a runner whose package is not installed."""
    if runner.runner == "dask" and find_spec("prefect_dask") is None:
        raise InputRefused(
            'run.runner = "dask" needs prefect-dask: install spineflow[dask], or choose threads.'
        )
