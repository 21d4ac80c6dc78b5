"""What the commands print: progress on a terminal, summaries, budgets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from pyarrow import parquet
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from spineflow.tasks.census.inputs import InputCheck
from spineflow.tasks.census.queries import normalize_query_name
from spineflow.tasks.noise.mechanisms import noise_deviation
from spineflow.tasks.pages.numbers import shown_delta, shown_epsilon
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.publication import marker_address
from spineflow.tasks.runs.settings import ProductSettings
from spineflow.tasks.topdown.checks.accuracy.run import accuracy_report
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import budget_report
from spineflow.tasks.topdown.workload.margins import margin_of_error, total_for_margin

WIDTH_WHEN_PIPED = 160


def page() -> Console:
    """The terminal, or a wide page where the output is piped, so that no cell is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WHEN_PIPED)


@contextmanager
def shown_progress() -> Iterator[None]:
    """A line per stage on a terminal; nothing when standard error is piped."""
    # Prefect is slow to import, and only runs need it.
    from spineflow.flows.progress import listening

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (
        SpinnerColumn(finished_text="[green]done"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        starting = progress.add_task("starting Prefect", total=1)
        shown = {}

        def listener(stage: str, done: int, planned: int) -> None:
            progress.update(starting, completed=1)
            if stage not in shown:
                shown[stage] = progress.add_task(stage, total=planned)
            progress.update(shown[stage], completed=done)

        with listening(listener):
            yield


def topdown_finished(run: RunDirectory, settings: TopdownSettings) -> None:
    """The summary at the end of a run: what is in the release, what it cost, where it is."""
    lines = []
    for universe in settings.run.universes:
        rows = parquet.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        lines.append(
            f"{universe}: {rows:,} rows; rho {_decimal(report['rho'])}, "
            f"epsilon {shown_epsilon(report['epsilon']['tight'])} at delta "
            f"{shown_delta(report['delta'])}"
        )
    print_finished(run, settings, lines)
    if accuracy_report(run).exists():
        print(f"accuracy, confidential: {accuracy_report(run)}")


def print_finished(run: RunDirectory, settings: ProductSettings, lines: Sequence[str]) -> None:
    """What every finished run prints: `lines` on its release and its cost, then where it all is."""
    checks = json.loads((run.checks / "checks.json").read_text(encoding="utf-8"))["checks"]
    if not settings.is_private:
        print(f"*** {settings.stamp} ***")
    for line in lines:
        print(line)
    seconds = sum(stage["seconds"] or 0 for stage in run.read_manifest()["stages"].values())
    print(f"{len(checks)} checks passed; {seconds:.0f} s of work")
    print(f"release: {run.release}")
    certificate = run.release / "certificate.html"
    if certificate.exists():
        print(f"certificate: {certificate}")
    print(f"report: {run.report}")
    if settings.published_to is not None:
        print(f"published: {marker_address(settings.published_to, settings.PRODUCT)}")


def print_rules(check: InputCheck, *, with_counts: bool) -> None:
    """Pass or fail of every rule on the input, then what is wrong with it."""
    console = page()
    table = Table("table", "rule", "outcome", title="Rules on the input")
    for outcome in check.outcomes:
        shown = "[green]passed" if outcome.passed else "[red]failed"
        table.add_row(outcome.suite, outcome.rule.replace("_", " "), shown)
    console.print(table)
    for finding in check.findings[1:]:
        print(finding.sentence(with_counts=with_counts), file=sys.stderr)


def topdown_costs(settings: TopdownSettings) -> dict[str, Any]:
    """What a run would cost, per universe: `budget_report`, and each query's margin of error."""
    costs = {}
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        costs[universe] = budget_report(budget, settings.schema_of(universe))
        for query in costs[universe]["queries"]:
            shares = (Fraction(query["geolevel_share"]), Fraction(query["query_share"]))
            query["margin_of_error"] = margin_of_error(budget, *shares)
    return costs


def topdown_needs(settings: TopdownSettings, target: str, margin: int) -> str:
    """The budget that a target UNIVERSE:GEOLEVEL:QUERY needs for a margin of error."""
    parts = target.split(":")
    if len(parts) != 3 or parts[0] not in settings.run.universes:
        raise InputRefused(
            f"--target {target}: write universe, geolevel and query, for example "
            "'persons:County:total=25'."
        )
    universe, geolevel, query = parts
    budget = settings.budget_of(universe)
    try:
        total = total_for_margin(budget, geolevel, normalize_query_name(query), margin)
    except ValueError as error:
        raise InputRefused(f"--target {target}: {error}.") from None
    symbol = "epsilon" if budget.is_pure else "rho"
    told = "none" if budget.infinite else f"{float(budget.total):.4g}"
    return (
        f"{query} at {geolevel} is within {margin} of the truth, but for post-processing, with a "
        f"probability of 95 % at {symbol} {float(total):.6g} and these shares (now {told})"
    )


def print_topdown_costs(settings: TopdownSettings) -> None:
    """The same as tables, with what an attacker learns about an attribute."""
    console = page()
    for universe, report in topdown_costs(settings).items():
        console.print(
            f"\n[bold]{universe}[/bold]: {report['mechanism'].replace('_', ' ')}, "
            f"rho {report['rho']} ({_decimal(report['rho'])}), "
            f"epsilon {shown_epsilon(report['epsilon']['tight'])} at delta "
            f"{shown_delta(report['delta'])} "
            f"(simple bound {shown_epsilon(report['epsilon']['simple'])})"
        )
        table = Table(
            "geolevel", "query", "geolevel share", "query share", "noise s.d.", "margin, 95 %"
        )
        for query in report["queries"]:
            table.add_row(
                query["geolevel"],
                query["query"],
                query["geolevel_share"],
                query["query_share"],
                f"{noise_deviation(query):.3g}",
                f"{query['margin_of_error']:,}",
            )
        console.print(table)
        protected = Table("what an attacker lacks", "epsilon")
        for name, epsilon in report["attributes"].items():
            protected.add_row(f"{name} of a record", shown_epsilon(epsilon))
        for name, epsilon in report["block_within"].items():
            protected.add_row(f"block within its {name}", shown_epsilon(epsilon))
        console.print(protected)


def print_ledger(summary: dict, *, as_json: bool) -> None:
    """What every dataset has spent; see `tasks.ledger.summary.summary`."""
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    console = page()
    if not summary["datasets"]:
        print("Nothing has been drawn under this ledger.")
    for name, dataset in summary["datasets"].items():
        epsilon = dataset["epsilon"]
        cap = "none" if dataset["cap"] is None else _decimal(dataset["cap"])
        delta_cap = dataset["delta_cap"]
        console.print(
            f"\n[bold]{name}[/bold]: rho {_decimal(dataset['rho'])} spent, cap {cap}; delta "
            f"{shown_delta(dataset['delta'])} spent, cap "
            f"{'none' if delta_cap is None else shown_delta(delta_cap)}; epsilon "
            f"{shown_epsilon(epsilon['tight'])} at delta {shown_delta(epsilon['delta'])} "
            f"(simple bound {shown_epsilon(epsilon['simple'])})"
        )
        table = Table("product", "run", "draw", "native guarantee", "bounded rho", "charged")
        for product, drawn in dataset["products"].items():
            for draw in drawn["draws"]:
                symbol = "epsilon" if draw["definition"] == "pure_dp" else "rho"
                table.add_row(
                    product,
                    draw["run_id"],
                    draw["name"],
                    f"{symbol} {draw['parameter']}, {draw['neighbors']}"
                    + (f", delta {shown_delta(draw['delta'])}" if Fraction(draw["delta"]) else ""),
                    _decimal(draw["bounded_rho"]),
                    draw["charged_at"],
                )
        console.print(table)


def _decimal(fraction: str) -> str:
    return fraction if fraction == "inf" else f"{float(Fraction(fraction)):.4f}"
