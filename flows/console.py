"""Arguments that several commands have, and their output: progress, summaries, budgets."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from ..tasks.pages.document import Block, Section
from ..tasks.pages.document import Table as PageTable
from ..tasks.products.product import Caution, Product
from ..tasks.products.product import product as product_named
from ..tasks.products.spent import caps_words, composed_sentence, draws_table
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.settings import ProductSettings
from ..tasks.tables.findings import InputCheck
from .kernels import ANNOUNCEMENT
from .logs import LOGGER, PROGRESS, sentence_of
from .registry import MODULES

if TYPE_CHECKING:
    AnyFlow: TypeAlias = str
    AnyDemo: TypeAlias = str
else:
    AnyFlow = Literal[tuple(MODULES)]
    AnyDemo = Literal[(*MODULES, "households", "grid")]

FlowName = Annotated[AnyFlow, Parameter(help="flow")]
SettingsFile = Annotated[Path, Parameter(help="settings file of the run")]
RunFolder = Annotated[
    Path,
    Parameter(
        help="folder of a run: the --run-dir of 'spineflow run', or the folder it made in runs/ "
        "next to the settings file"
    ),
]
Overrides = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="override one setting, as SECTION.KEY=VALUE; may be given several times",
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON instead of tables")]


WIDTH_WHEN_PIPED = 160


def page() -> Console:
    """The terminal, or a wide page where the output is piped, so that no cell is cut."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH_WHEN_PIPED)


@contextmanager
def print_stages(is_compiling: bool) -> Iterator[None]:
    """A bar per stage on a terminal, and a line on kernels; elsewhere a line per finished stage."""
    from .results import listening  # 1.1 s, Prefect's

    console = Console(stderr=True)
    if not console.is_terminal:
        with listening(_line_by_line()):
            yield
        return
    if is_compiling:
        console.print(f"{ANNOUNCEMENT}: meanwhile the run goes on until they are needed.")
    with _bars(console) as progress, listening(_bar_by_bar(progress)):
        yield


@contextmanager
def print_work() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a `progress.Listener` for a command that runs no flow. It prints lines on the error
    stream, with bars on a terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, planned: None if planned else PROGRESS.info(what)
        return
    with _bars(console) as progress:
        yield _bar_by_bar(progress)


def _bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]done"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _bar_by_bar(progress: Progress) -> Callable[[str, int, int], None]:
    """A listener that draws a bar for every stage."""
    shown: dict[str, TaskID] = {}

    def listener(stage: str, done: int, planned: int) -> None:
        if planned == 0:
            progress.console.print(stage)
            return
        if stage not in shown:
            shown[stage] = progress.add_task(stage, total=planned)
        progress.update(shown[stage], completed=done)

    return listener


def _line_by_line() -> Callable[[str, int, int], None]:
    """A listener to progress that prints a line, with the time, for every stage that has ended."""
    begun: dict[str, float] = {}

    def listener(stage: str, done: int, planned: int) -> None:
        now = time.monotonic()
        said = stage
        if planned:
            began = begun.setdefault(stage, now)
            if done < planned:
                return
            said = sentence_of(stage, planned, now - began)
        PROGRESS.info(said)

    return listener


def print_block(block: Block | Section) -> None:
    """Print a product's text: sentences, tables, or a section with a title."""
    if isinstance(block, Caution):
        LOGGER.warning(block)
    elif isinstance(block, Section):
        first, *others = block.blocks
        page().print(f"\n[bold]{block.title}[/bold]: {first}")
        for other in others:
            print_block(other)
    elif isinstance(block, PageTable):
        table = Table(*block.headers)
        for row in block.rows:
            table.add_row(
                *(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)
            )
        page().print(table)
    else:
        print(block)


def print_costs(asked: Product, settings: ProductSettings) -> None:
    """Print the cost of a run as tables; for several products one after the other."""
    for name, own in settings.parts.items():
        print(f"{name}:")
        print_costs(product_named(own.PRODUCT), own)
    for block in asked.costs_in_words(settings):
        print_block(block)


def check_input(asked: Product, settings: ProductSettings) -> None:
    """Check the input against every rule, and that the settings fit it; draw no noise.

    Prints the outcome of the rules; raises InputRefused.
    """
    rules, accepted = asked.rules, None
    if rules is not None and rules.check is not None:
        found = rules.check(settings)
        with_counts = not settings.input.confidential
        print_rules(found, with_counts=with_counts)
        accepted = found.accepted(with_counts=with_counts)
    if rules is not None:
        for block in rules.fits(settings, accepted):
            print_block(block)
        return
    for name, own in settings.parts.items():
        print(f"{name}:")
        check_input(product_named(own.PRODUCT), own)


def print_summary(asked: Product, run: RunDirectory, settings: ProductSettings) -> None:
    """Print the end of a finished run; for several products one after the other, then their own."""
    for name, own in settings.parts.items():
        part = RunDirectory(run.root / name)
        if part.manifest.exists():
            print(f"{name}:")
            print_summary(product_named(own.PRODUCT), part, own)
    if asked.checks is None:
        for block in asked.words.summary(run, settings):
            print_block(block)
        return
    if not settings.is_private:
        print(f"*** {settings.stamp} ***")
    for block in asked.words.summary(run, settings):
        print_block(block)
    print(*asked.outcome(run, settings), sep="\n")


def print_closing(run: RunDirectory, settings: ProductSettings, seconds: float) -> None:
    """Print the last lines of a command that ran a flow: address, wall time, next steps."""
    from .results import run_id  # 1.1 s, Prefect's
    from .servers import address_of, is_embedded

    flow_run = run_id(str(run.root))
    if flow_run is not None:
        later = " (once 'prefect server start' runs)" if is_embedded() else ""
        print(f"in the UI: {address_of(flow_run)}{later}")
    print(f"time: {seconds:.0f} s from the command to this line")
    if settings.is_private and Path(settings.privacy.ledger).exists():
        print(f"next: spineflow ledger show --ledger {shlex.quote(settings.privacy.ledger)}")
    elif not settings.is_private:
        print("next: spineflow check FLOW SETTINGS.toml, for tables of your own")


def print_rules(check: InputCheck[object], *, with_counts: bool) -> None:
    """Print pass or fail of every rule on the input, its files, then the findings."""
    console = page()
    table = Table("table", "rule", "outcome", title="Rules on the input")
    for outcome in check.outcomes:
        shown = "[green]passed" if outcome.passed else "[red]failed"
        table.add_row(outcome.subject, outcome.name.replace("_", " "), shown)
    console.print(table)
    for file in check.files:
        rows = f"{file.n_rows:,} rows" if with_counts and file.n_rows is not None else ""
        print(f"{file.name}: {rows or 'read'}")
        if file.n_rows == 0:
            print(f"note: {file.name} holds no rows.")
    for finding in check.findings[1:]:
        LOGGER.error(finding.sentence(with_counts=with_counts))


def print_ledger(summary: dict, *, as_json: bool) -> None:
    """Print the spending of every dataset; see `tasks.ledger.caps.summary`."""
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    if default := caps_words(summary):
        print(f"Every dataset without a cap of its own has a cap of {default}.")
    if not summary["datasets"]:
        print("Nothing has been drawn under this ledger.")
    for name, dataset in summary["datasets"].items():
        print_block(Section(name, (composed_sentence(dataset), draws_table(dataset))))
        draws = [draw for drawn in dataset["products"].values() for draw in drawn["draws"]]
        for draw in {draw["run_id"]: draw for draw in draws}.values():
            folder = draw["folder"] or "a folder that an older version did not enter"
            print(f"run {draw['run_id']}, charged {draw['charged_at']}: {folder}")
