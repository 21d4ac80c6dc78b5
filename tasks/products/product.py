"""What a product is: one record, which the command line, flows, library, `products`, `tune` read.

A product is made in the module `product` of its folder, out of functions of its stages, and is
found by its name (`registry`). Its flow stands in `flows/`: Prefect is imported when that is asked
for, so that commands that run nothing start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.errors import InputRefused
from ..runs.files import write_page
from ..runs.settings import ProductSettings, RunnerSettings
from ..runs.settings_files import load_settings
from .presets import PRESETS

if TYPE_CHECKING:
    import pandas as pd

    from ...validation.outcome import Failures, Outcome
    from ..pages.document import Block, Document, Section, Table
    from ..runs.directory import RunDirectory
    from ..tables.findings import InputCheck
    from .certificate import Facts
    from .comparison import Compared
    from .plan import Plan
    from .privacy_curves import Curves


class Caution(str):
    """A sentence that a user must not miss; commands print it on standard error."""


@dataclass(frozen=True)
class Accuracy:
    """How a release is compared with its truth; what comes out is as confidential as the input.

    read : the errors of a run by what they are of; None if they are gone.
    write : compares and keeps the errors; None where a step of its own does.
    truth : the confidential files that it is compared with, as long as they are all there.
    in_brief : the errors in a small table, for the page of a run; None if nothing tells.
    """

    read: Callable[[RunDirectory], pd.DataFrame | None]
    write: Callable[[RunDirectory, Any], None] | None = None
    truth: Callable[[RunDirectory], Iterable[Path]] = lambda run: ()
    in_brief: Callable[[RunDirectory, Any], Table | None] | None = None

    def is_possible(self, run: RunDirectory) -> bool:
        """Whether the truth is still there to compare with."""
        return all(path.exists() for path in self.truth(run))


@dataclass(frozen=True)
class Figures:
    """What replicates, comparisons and searches tell of the errors of a run.

    keys : the columns that say what an error is of.
    words : the columns of figures, with what they are in words.
    of_errors : the table of both, from a run's errors.
    facts : what a run is, in words, by what they are about.
    """

    keys: Sequence[str]
    words: Mapping[str, str]
    facts: Callable[[RunDirectory, Any], Mapping[str, str]]
    of_errors: Callable[[pd.DataFrame], pd.DataFrame] = lambda errors: errors


@dataclass(frozen=True)
class Shown:
    """A table that the page of a run shows in the Prefect UI."""

    key: str
    description: str
    content: Table


@dataclass(frozen=True, eq=False)
class Product:
    """A product: how settings and an input become a checked release under one charge.

    Only `settings` and `costs` are needed. What a product leaves out it does not have: a search
    releases no certificate, and several products in one run are charged, checked and reported by
    their own runs.

    *Before a run.* A settings file becomes an instance of `settings`, whose PRODUCT is the
    product's name. `refuse` adds what no single field shows, before any input is read.
    `check_input` reads the input and holds it to every rule; `fits` holds the settings to an input
    that was accepted, and gives what a user may want to know. `costs` is what a run would spend and
    how wide its noise is, from settings and public files alone, by universe; `costs_in_words` the
    same for people, by default as tables, and `charged_for` sentences on a charge of more than a
    budget adds up to. `needed` is the budget that a margin of error needs, given the name of what
    has it, and `needed_at_once` that of several, with its split. `curves` are the privacy curves
    of its parts, None where nothing is guaranteed. `of_parts` are the settings of the products
    that a run is made of, by their names in it; all of this is then asked of each.

    *The run.* Its stages stand in the product's module of `flows/`: ingest first, which writes what
    is public and what is confidential in folders of their own; then the charge, before any noise is
    drawn; measurement, estimation, the tables; and the steps of `release.steps`, which check,
    release and report. `plan` is what the run measures and guarantees, once its input is read: it
    recomputes the loss by independent code and raises BudgetRefused. `measured` are all files of
    noisy answers, there yet or not; by default one for each measured level. `notes` are sentences
    on what is about to be measured to no avail.

    *Its end.* `checks` are the outcomes of checks that share no code with what they check; a
    release appears once all have passed. `facts` is what the certificate says besides the plan.
    `accuracy` compares the release with the truth. `document` is the public report, by default of
    the plan alone; it shows errors of public input. `summary` is what the command ends with;
    `shown` what the UI shows when some stages have ended, of none when the run begins, and of `END`
    at its end; by default the noise of every measure.

    *Afterwards.* `figures` are the errors that replicates and comparisons tell; `compare` writes a
    comparison where that is more than a table. `of_release` makes settings with a release as public
    input, for errors to be expected. `rewritten` makes again what a report needs and may lack.
    `write_truth` writes the true counts of input that may be disclosed, beside replicates.
    """

    settings: type[ProductSettings]
    costs: Callable[[Any], Mapping[str, Any]]
    costs_in_words: Callable[[Any], Iterable[Block | Section]] | None = None
    refuse: Callable[[Any], None] = lambda settings: None
    check_input: Callable[[Any], InputCheck[Any]] | None = None
    fits: Callable[[Any, Any], Iterable[Block]] | None = None
    charged_for: Callable[[Any], Iterable[str]] = lambda settings: ()
    needed: Callable[[Any, str, int], str] | None = None
    needed_at_once: Callable[[Any, Mapping[str, int]], str | None] | None = None
    curves: Callable[[Any], Curves | None] = lambda settings: None
    of_parts: Callable[[Any], Mapping[str, ProductSettings]] = lambda settings: {}
    plan: Callable[[RunDirectory, Any], Plan] | None = None
    measured: Callable[[RunDirectory, Any], Sequence[Path]] | None = None
    check_plan: Callable[[Path, Failures], None] | None = None
    notes: Callable[[RunDirectory, Any], Sequence[str]] = lambda run, settings: ()
    checks: Callable[[RunDirectory, Any], Sequence[Outcome]] | None = None
    facts: Callable[[RunDirectory, Any], Facts] | None = None
    accuracy: Accuracy | None = None
    document: Callable[[RunDirectory, Any, Any, pd.DataFrame | None], Document] | None = None
    summary: Callable[[RunDirectory, Any], Iterable[Block]] = lambda run, settings: ()
    shown: Callable[[RunDirectory, Any, Collection[str]], Iterable[Shown]] = (
        lambda run, settings, stages: shown_plan(run, stages)
    )
    figures: Figures | None = None
    compare: Callable[[Sequence[tuple[RunDirectory, Any]]], Path] | None = None
    of_release: Callable[[RunDirectory, Any, Path], ProductSettings] | None = None
    rewritten: Callable[[RunDirectory, Any], object] = lambda run, settings: None
    write_truth: Callable[[Any, Path], Sequence[Path]] = lambda settings, folder: ()

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

    def plan_of(self, run: RunDirectory, settings: ProductSettings) -> Plan:
        """The plan of a run, as it was written, or made anew of a run that has none yet."""
        from .plan import plan_file, read_plan

        if self.plan is None:
            raise ValueError(f"{self.name} measures nothing")
        return read_plan(run) if plan_file(run).exists() else self.plan(run, settings)

    def tell_costs(self, settings: ProductSettings) -> Iterable[Block | Section]:
        """The costs for people; by default a line and a table for each universe."""
        from .budget import costs_in_words

        if self.costs_in_words is not None:
            return self.costs_in_words(settings)
        return costs_in_words(self.costs(settings)) if self.plan is not None else ()

    def measurement_files(self, run: RunDirectory, settings: ProductSettings) -> Sequence[Path]:
        """All files of noisy answers, there yet or not; by default one for each measured level."""
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
        plan, file = self.plan(run, settings), plan_file(run)
        if "ledger" not in run.read_manifest()["stages"]:
            write_plan(run, plan)
        if not file.exists():
            raise InputRefused(
                f"{run.root} was charged by an earlier version of spineflow, without "
                "plan/plan.json; finish it with version 0.2."
            )
        if self.check_plan is not None:
            refuse_other_noise(partial(self.check_plan, run.root))
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
        return accept(run, settings, self.checks(run, settings))

    def compare_with_truth(self, run: RunDirectory, settings: ProductSettings) -> None:
        """Keep the errors of a release in its confidential folder, while the truth is there."""
        found = self.accuracy
        if found is not None and found.write and found.is_possible(run):
            found.write(run, settings)

    def report(self, run: RunDirectory, settings: ProductSettings) -> Path:
        """Write the public report; errors are shown of input that is not confidential."""
        from .reports import plain_document

        plan = None if self.plan is None else self.plan_of(run, settings)
        if self.document is None:
            if plan is None:
                return run.report
            return write_page(run.report, plain_document(run, settings, plan))
        errors = None
        if self.accuracy is not None and not settings.input.confidential:
            errors = self.accuracy.read(run)
        return write_page(run.report, self.document(run, settings, plan, errors))

    def compared(self, run: RunDirectory, settings: ProductSettings) -> Compared:
        """A run with its figures; raises InputRefused if truth and errors are both gone."""
        if self.figures is None or self.accuracy is None:
            raise InputRefused(f"There are no figures of {self.name}.")
        from .comparison import Compared, errors_or_refused

        self.compare_with_truth(run, settings)
        errors = errors_or_refused(run, self.accuracy.read(run))
        facts = {"dataset": settings.privacy.dataset, **self.figures.facts(run, settings)}
        return Compared(run, settings, facts, self.figures.of_errors(errors))

    def write_comparison(self, runs: Sequence[tuple[RunDirectory, ProductSettings]]) -> Path:
        """Write a report of several finished runs side by side; returns its path."""
        if self.compare is not None:
            return self.compare(runs)
        if self.figures is None:
            raise InputRefused(f"Runs of {self.name} cannot be compared; name runs of one product.")
        from .comparison import write_comparison

        found = [self.compared(run, settings) for run, settings in runs]
        return write_comparison(found, self.figures.keys, self.figures.words)


def shown_plan(run: RunDirectory, stages: Collection[str]) -> Iterator[Shown]:
    """The noise of every measure, once the plan is written."""
    from ..runs.directory import LEDGER
    from .budget import noise_table
    from .plan import plan_file, read_plan

    if LEDGER in stages and plan_file(run).exists():
        for own in read_plan(run).universes:
            if own.measured:
                key = f"noise-{own.universe.replace('_', '-').replace(' ', '-')}"
                yield Shown(key, f"Noise of {own.universe}", noise_table(own))


END: Collection[str] = ("end",)
"""What `Product.shown` is asked for when all stages have ended."""


def noted(sentences: Iterable[str]) -> Iterator[str]:
    """What a user may want to change before anything is spent, or next time."""
    return (f"note: {sentence}." for sentence in sentences)


def refuse_missing_runner(runner: RunnerSettings) -> None:
    """Raise InputRefused for a runner whose package is not installed."""
    if runner.runner == "dask" and find_spec("prefect_dask") is None:
        raise InputRefused(
            'run.runner = "dask" needs prefect-dask: install spineflow[dask], or choose threads.'
        )
