"""The class of products, which the command line, flows, library, `products` and `tune` use.

The module `product` in the folder of each product creates its instance from functions of the
stages. `PRODUCTS` has the paths of these modules as text, so that only the requested product is
loaded. The flow of a product is in `flows/`: only flows import Prefect, so that other commands
start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runs.directory import RunDirectory, refuse_odd_name
from ..runs.errors import InputRefused
from ..runs.files import read_record, write_page
from ..runs.names import did_you_mean
from ..runs.settings import ProductSettings, RunnerSettings
from ..runs.settings_files import load_settings, settings_of_run, with_release_of

PRESETS = Path(__file__).parents[2] / "flows" / "settings"
"""Folder of the settings files of presets."""

PRODUCTS: Mapping[str, str] = {
    "topdown": "tasks.topdown.product:TOPDOWN",
    "estimate": "tasks.topdown.product:ESTIMATE",
    "detailed-groups": "tasks.detailed_groups.product:DETAILED_GROUPS",
    "detailed-households": "tasks.detailed_groups.product:DETAILED_HOUSEHOLDS",
    "group-sizes": "tasks.group_sizes.product:GROUP_SIZES",
    "trips": "tasks.trips.product:TRIPS",
    "supplemental-dhc": "tasks.supplemental_dhc.product:SUPPLEMENTAL",
    "products": "flows.products:PRODUCT",
    "tune": "flows.tune:PRODUCT",
    "evidence": "flows.evidence:PRODUCT",
}
"""Module and name of every product within the package."""

OF_ONE_INPUT = tuple(name for name, place in PRODUCTS.items() if place.startswith("tasks."))
"""Products with a release of one input."""

TOGETHER = {
    "topdown": "topdown",
    "dhc-units": "topdown",
    "dhc-persons": "topdown",
    "detailed-groups": "detailed-groups",
    "detailed-households": "detailed-households",
    "group-sizes": "group-sizes",
    "supplemental-dhc": "supplemental-dhc",
}
"""Products of the census tables, which `products` can run on one dataset, in this order, by the
names that they have there, with the product of each."""


if TYPE_CHECKING:
    import pandas as pd

    from ...validation.outcome import Failures, Outcome
    from ..pages.document import Block, Document, Section
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
    fits : checks the settings against an accepted input, and returns notes for the user.
    refuse : refuses combinations of settings, before any input is read.
    """

    check: Callable[[Any], InputCheck[Any]] | None = None
    fits: Callable[[Any, Any], Iterable[Block]] = lambda settings, accepted: ()
    refuse: Callable[[Any], None] = lambda settings: None


@dataclass(frozen=True)
class Checks:
    """Checks of a run by code that shares nothing with the code that it checks.

    release : checks the finished run and returns outcomes; all must pass before the release.
    plan : checks the plan in a run's folder before any noise is drawn, and adds failures.
    """

    release: Callable[[RunDirectory, Any], Sequence[Outcome]]
    plan: Callable[[Path, Failures], None] | None = None


@dataclass(frozen=True)
class Words:
    """Texts and tables of a product, in addition to those of every plan.

    budget : texts and tables on the costs, from settings and plan.
    notes : warnings, before a run, about measurements with too much noise to be useful.
    certificate : facts of the certificate, in addition to those of the plan.
    report : the public report, from the plan and, for public input, the errors; by default the
        report of the plan.
    restore : rebuilds missing files that a report needs.
    summary : last lines of the command; by default the number of rows of every released table.
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

    keys : columns that identify a quantity.
    words : columns with figures, and their descriptions.
    of_errors : table of the key columns and figures, from a run's errors.
    facts : facts about a run as texts, by label.
    """

    keys: Sequence[str]
    words: Mapping[str, str]
    facts: Callable[[RunDirectory, Any], Mapping[str, str]]
    of_errors: Callable[[pd.DataFrame], pd.DataFrame] = lambda errors: errors


@dataclass(frozen=True)
class Accuracy:
    """Comparison of a release with the confidential input; the result is confidential too.

    read : reads the errors of a run by quantity; None if they were deleted.
    write : computes and saves the errors; None if a separate step does.
    truth : the confidential files that the comparison needs.
    figures : figures for replicates and comparisons; None if runs cannot be compared.
    of_release : settings with a release as public input, to compute expected errors.
    """

    read: Callable[[RunDirectory], pd.DataFrame | None] = lambda run: None
    write: Callable[[RunDirectory, Any], None] | None = None
    truth: Callable[[RunDirectory], Iterable[Path]] = lambda run: ()
    figures: Figures | None = None
    of_release: Callable[[RunDirectory, Any, Path], ProductSettings] | None = None

    def is_possible(self, run: RunDirectory) -> bool:
        """Whether all files that the comparison needs still exist."""
        return all(path.exists() for path in self.truth(run))


@dataclass(frozen=True, eq=False)
class Product:
    """A product: computes a checked release from settings and an input, under one charge.

    A settings file becomes an instance of `settings`, whose PRODUCT is the product's name. The
    stages of a run are in the product's module of `flows/`: ingest, which writes public and
    confidential files to separate folders; the charge, before any noise is drawn; measurement,
    estimation and tables; and the steps of `steps`, which check, release and report.

    plan : computes measures and guarantee from settings and a run with its input read. Without a
        run it uses settings and public files alone; `budget` shows the costs of this plan. The
        other modules of this package derive everything else from the plan. A product without a
        plan measures nothing itself: a search, or several products in one run
        (`ProductSettings.parts`), each charged, checked and reported by a run of its own.
    measured : paths of all files of noisy answers, existing or not; by default one file for each
        measured level.
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
        """Load settings from a file, tables or overrides, and check them without the input."""
        settings = load_settings(self.settings, source, presets=PRESETS, overrides=overrides)
        settings = settings.resolved()
        self.refuse(settings)
        refuse_missing_runner(settings.run)
        return settings

    def refuse(self, settings: ProductSettings) -> None:
        """Check settings by the rules of the product or of its parts; raises InputRefused."""
        if self.rules is not None:
            self.rules.refuse(settings)
            return
        for own, part in _parts(settings).values():
            own.refuse(part)

    def plan_of(self, run: RunDirectory, settings: ProductSettings) -> Plan:
        """The plan of a run: read from its file, or computed if there is no file."""
        from .plan import plan_file, read_plan

        if self.plan is None:
            raise ValueError(f"{self.name} measures nothing")
        return read_plan(run) if plan_file(run).exists() else self.plan(settings, run)

    def plans(self, settings: ProductSettings) -> dict[str, Plan]:
        """The plan of a run from settings and public files alone, under an empty name, or those of
        its products by their names."""
        if self.plan is not None:
            return {"": self.plan(settings, None)}
        parts = _parts(settings).items()
        return {n: plan for n, (own, part) in parts for plan in own.plans(part).values()}

    def costs(self, settings: ProductSettings) -> dict[str, Any]:
        """The cost of a run by universe, or by name of several products, from settings and public
        files alone."""
        plans = self.plans(settings).items()
        found = {name: {cost.name: cost for cost in plan.costs} for name, plan in plans}
        return found.get("", found)

    def costs_in_words(self, settings: ProductSettings) -> Iterable[Block | Section]:
        """The costs as text: a line and tables for each universe, and texts of the product."""
        from .budget import costs_in_words
        from .plan import explain_charges

        if self.plan is not None:
            plan = self.plan(settings, None)
            yield from costs_in_words(plan.costs)
            yield from explain_charges(plan)
            yield from self.words.budget(settings, plan)

    def curves(self, settings: ProductSettings) -> Curves | None:
        """The privacy curves of a run with these settings, or None if no curve is known."""
        return None if self.plan is None else self.plan(settings, None).curves()

    def needed(self, settings: ProductSettings, wanted: Mapping[str, int]) -> Iterator[str]:
        """Sentences with the budget that each target needs for its margin of error.

        `wanted` has margins of error by target. If a run has several products, a target begins with
        the product's name and a colon. Raises InputRefused.
        """
        from .plan import needed_losses

        plans = self.plans(settings)
        for target, margin in wanted.items():
            name, _, within = ("", "", target) if "" in plans else target.partition(":")
            if name not in plans:
                raise InputRefused(
                    f"--target {target}: write PRODUCT:TARGET; the products are {', '.join(plans)}."
                    if plans
                    else f"Margins cannot be turned into a budget for {self.name}."
                )
            for sentence in needed_losses(plans[name], within, margin):
                yield f"{name}: {sentence}" if name else sentence

    def measurement_files(self, run: RunDirectory, settings: ProductSettings) -> Sequence[Path]:
        """Paths of all files of noisy answers, existing or not; see `measured`."""
        if self.measured is not None or self.plan is None:
            return () if self.measured is None else self.measured(run, settings)
        universes = self.plan_of(run, settings).universes
        files = [run.dpqueries(u.universe, own.level) for u in universes for own in u.measured]
        return list(dict.fromkeys(files))

    def charge_run(self, run: RunDirectory, settings: ProductSettings) -> None:
        """Write the plan of a run, check it by independent code, and enter it in the ledger.

        The plan of a charged run is not written again. Raises BudgetRefused before any noise is
        drawn, and InputRefused if an older version charged the run without a plan.
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
            public_inputs = [run.root / name for name in plan.inputs]
            charge_draws(
                run,
                settings,
                draws=plan.universes,
                inputs=digests_to_charge(run, settings),
                decided_by=[*public_inputs, file],
                truth=[run.root / name for name in plan.counts],
                files=self.measurement_files(run, settings),
            )

    def check_run(self, run: RunDirectory, settings: ProductSettings) -> tuple[Outcome, ...]:
        """Check a finished run before its release, and write the public outcomes.

        Raises CheckFailed with the first failed check; the run is then not released.
        """
        if self.checks is None:
            raise ValueError(f"{self.name} releases nothing that is checked")
        from ..ledger.charging import refuse_unlike_ledger
        from .acceptance import accept

        refuse_unlike_ledger(run, settings)
        return accept(run, settings, self.checks.release(run, settings))

    def facts(self, run: RunDirectory, settings: ProductSettings) -> Facts:
        """The facts of a run's certificate; curves and costs that it does not state are the
        plan's."""
        from .certificate import Facts

        stated = self.words.certificate
        facts = Facts() if stated is None else stated(run, settings)
        if self.plan is None or facts.exact is not None:
            return facts
        plan = self.plan(settings, run)
        return replace(facts, curves=facts.curves or plan.curves(), costs=plan.costs)

    def compare_with_truth(self, run: RunDirectory, settings: ProductSettings) -> None:
        """Save the errors of a release in its confidential folder, if the truth still exists."""
        if self.accuracy.write is not None and self.accuracy.is_possible(run):
            self.accuracy.write(run, settings)

    def report(self, run: RunDirectory, settings: ProductSettings) -> Path:
        """Write the public report, with the errors only if the input is not confidential."""
        from .reports import plain_document

        if self.plan is None and self.words.report is None:
            return run.report
        plan: Any = None if self.plan is None else self.plan_of(run, settings)
        errors = None if settings.input.confidential else self.accuracy.read(run)
        report = self.words.report or plain_document
        return write_page(run.report, report(run, settings, plan, errors))

    def outcome(self, run: RunDirectory, settings: ProductSettings) -> Iterator[str]:
        """Lines on a finished run: its guarantee, its checks and the paths of its results."""
        from ..runs.publication import marker_address
        from .acceptance import CERTIFICATE, warnings_of
        from .plan import summarise_statement

        if self.plan is not None and settings.draws_noise:
            statement = self.plan_of(run, settings).statement
            yield from (*statement.protected, summarise_statement(statement))
        yield from (f"warning: {warning}" for warning in warnings_of(run))
        checks, certificate = run.outcomes, run.release / f"{CERTIFICATE}.html"
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
        """A run with its figures; raises InputRefused if truth and errors were both deleted."""
        figures = self.accuracy.figures
        if figures is None:
            raise InputRefused(f"There are no figures of {self.name}.")
        from .comparison import ComparedRun

        self.compare_with_truth(run, settings)
        errors = self.accuracy.read(run)
        if errors is None:
            raise InputRefused(
                f"{run.root} has no figures of its accuracy; write them with 'spineflow report' "
                "while its truth is there, or leave it out of the comparison."
            )
        facts = {"dataset": settings.privacy.dataset, **figures.facts(run, settings)}
        return ComparedRun(run, settings, facts, figures.of_errors(errors))

    def write_comparison(self, runs: Sequence[tuple[RunDirectory, ProductSettings]]) -> Path:
        """Write a report that compares finished runs, and return its path."""
        figures = self.accuracy.figures
        if figures is None:
            raise InputRefused(f"Runs of {self.name} cannot be compared; name runs of one product.")
        from .comparison import write_comparison

        found = [self.compared(run, settings) for run, settings in runs]
        return write_comparison(found, figures.keys, figures.words)


def product(name: str) -> Any:
    """The product of a name, a `Product`; raises KeyError for one that is not in `PRODUCTS`."""
    module, _, instance = PRODUCTS[name].partition(":")
    return getattr(import_module(f"{__name__.partition('.')[0]}.{module}"), instance)


def product_of(run: RunDirectory) -> Any:
    """The product of a run; raises InputRefused for one that this version does not have."""
    name = run.read_manifest()["product"]
    if name not in PRODUCTS:
        raise InputRefused(f"{run.root} is a run of {name}, which this version does not have.")
    return product(name)


def existing_run(folder: Path) -> tuple[RunDirectory, Any, ProductSettings]:
    """A run that has been started: its directory, its product and its frozen settings.

    Raises InputRefused if it does not exist, or its settings were edited.
    """
    run = RunDirectory(folder.resolve())
    refuse_odd_name(run)
    asked = product_of(run)
    run.refuse_edited_settings()
    return run, asked, settings_of_run(asked.settings, run)


def parts_of(
    run: RunDirectory, settings: ProductSettings
) -> Iterator[tuple[RunDirectory, ProductSettings]]:
    """A run, and the runs of the products that it is made of, if it is one of several."""
    yield run, settings
    chosen = getattr(settings, "products", None)
    for name, own in chosen.chosen().items() if chosen is not None else ():
        part = RunDirectory(run.root / name)
        yield part, with_release_of(part, own)


def find_product(name: str) -> Any:
    """The product of one input of a name, as a person spells it; raises InputRefused."""
    spelt = name.replace("_", "-")
    if spelt not in OF_ONE_INPUT:
        raise InputRefused(
            f"unknown product {name!r}{did_you_mean(spelt, OF_ONE_INPUT)}; there are "
            f"{', '.join(OF_ONE_INPUT)}."
        )
    return product(spelt)


def settings_of(run: RunDirectory) -> type[Any]:
    """The model of a run's settings."""
    return product_of(run).settings


def _parts(settings: ProductSettings) -> dict[str, tuple[Product, ProductSettings]]:
    """If a run has several products: each with its settings, by its name in the settings."""
    return {name: (product(own.PRODUCT), own) for name, own in settings.parts.items()}


def rules_of(read: Callable[[Any], ProductSettings]) -> Rules:
    """The rules on settings that read the input of others, by the product of the `read` ones."""

    def rules(settings: Any) -> Any:
        return product(read(settings).PRODUCT).rules

    return Rules(
        lambda settings: rules(settings).check(read(settings)),
        lambda settings, accepted: rules(settings).fits(read(settings), accepted),
        lambda settings: rules(settings).refuse(read(settings)),
    )


def count_released_rows(run: RunDirectory) -> Iterator[str]:
    """A sentence with the number of rows of every released table, if there are tables."""
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
