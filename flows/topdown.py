"""The TopDown flow: from census-like tables to privacy-protected microdata.

    ingest -> spine -> charge -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata, tables, margins and accuracy side by side -> checks -> release -> report

On demand, a geolevel is measured when the one above it has been estimated. With full information,
measurements are combined from the blocks up before they are estimated. At the side, while estimates
are made, the spine is summarised for the report, and the errors of a large run are predicted.

A large input in several files is ingested in parts: the addresses, then persons file by file.
Persons and housing units run side by side. All data travel through the run directory; what the
tasks hand to each other are names and digests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from prefect import flow
from pyarrow import parquet
from rich.table import Table

from ..tasks.census.declared_input import DeclaredInput
from ..tasks.census.queries import normalize_query_name
from ..tasks.noise.mechanisms import noise_deviation
from ..tasks.pages.numbers import shown_delta, shown_epsilon
from ..tasks.products.gate import compared
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import InputRefused
from ..tasks.topdown.checks.accuracy.pieces import universes_in_pieces
from ..tasks.topdown.checks.accuracy.queries import read_accuracy, records_by_block
from ..tasks.topdown.checks.accuracy.run import (
    accuracy_report,
    write_comparison,
    write_run_accuracy,
)
from ..tasks.topdown.checks.accuracy.steps import (
    compare_piece,
    compare_with_truth,
    predict_errors,
)
from ..tasks.topdown.checks.pieces import pieces_apart, sizes_of_pieces
from ..tasks.topdown.checks.steps import (
    check_piece,
    check_release,
    release_run,
    report_run,
)
from ..tasks.topdown.estimation.estimators import (
    COMBINE,
    ESTIMATE,
    estimation_order,
    refuse_settings,
)
from ..tasks.topdown.estimation.steps import combine, estimate
from ..tasks.topdown.ingest.earlier import held_answers
from ..tasks.topdown.ingest.ingest import (
    check_input_of,
    largest_universe,
    refuse_large_deltas,
)
from ..tasks.topdown.ingest.parts import n_parts
from ..tasks.topdown.ingest.steps import count_persons, ingest, read_addresses
from ..tasks.topdown.measurement.constrain_declared import check_declared_spines
from ..tasks.topdown.measurement.steps import charge_ledger, constrain, measure
from ..tasks.topdown.paths import spine_folder
from ..tasks.topdown.release.certificate import facts_of
from ..tasks.topdown.release.margins import has_margins
from ..tasks.topdown.release.report import write_report
from ..tasks.topdown.release.steps import write_microdata, write_release_margins
from ..tasks.topdown.release.tabulations.run import has_tables, table_pieces
from ..tasks.topdown.release.tabulations.steps import write_redistricting_tables
from ..tasks.topdown.settings import TopdownSettings, universe_waves
from ..tasks.topdown.spine.build import universe_spine
from ..tasks.topdown.spine.redundant import (
    redundant_spending,
    redundant_spending_of_geography,
    redundant_spending_of_run,
)
from ..tasks.topdown.spine.shards import shards_by_geolevel
from ..tasks.topdown.spine.steps import build_spine, summarise_spine
from ..tasks.topdown.spine.summary import has_summary, write_summary
from ..tasks.topdown.workload.costs import costs
from ..tasks.topdown.workload.margins import total_for_margin
from .console import decimal, page, print_finished, print_notes, print_rules
from .entry import settings_flow
from .form import TopdownForm
from .order import Aside, Call, Order, Wave, announced, call, submitted
from .product import Product
from .public_tables import (
    errors_by_level,
    show_accuracy,
    show_budgets,
    show_geounits,
    show_notes,
    show_solves,
)
from .results import show_outcome
from .running import entered, stages_run_name, tracker_of

topdown = settings_flow(
    __name__,
    "topdown",
    lambda: PRODUCT,
    TopdownForm(),
    (
        "Releases microdata of persons and housing units, and redistricting tables, "
        "by the TopDown Algorithm. Every draw of noise is charged to the dataset's "
        "ledger first; the release appears once every check has passed."
    ),
)


@flow(name="topdown-stages", flow_run_name=stages_run_name, persist_result=False)
def topdown_stages(run_directory: str) -> str:
    """All stages of a prepared run; finished artifacts are reused. Returns the release's folder."""
    with entered(run_directory, TopdownSettings) as (run, settings):
        show_budgets(settings)
        redundant = cache(partial(redundant_spending_of_run, run, settings))
        waves = announced(run, settings, order(run, settings), redundant)
        for wave in submitted(run, waves, tracker_of(run, settings, order, sizes_of_pieces)):
            if any(stage.endswith(" spine") for stage in wave):
                show_notes(
                    redundant(),
                    key="redundant-spending",
                    description="What is about to be measured and discarded",
                )
            if isinstance(wave, Aside):
                show_geounits(run, settings)
            if any(stage.endswith("microdata") for stage in wave):
                show_solves(run)
        show_accuracy(run, settings)
        show_outcome(run, settings)
    return str(run.release)


def order(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps of a run; the universes go side by side."""
    universes = settings.run.universes
    reading = ingest_of(run, settings)
    yield reading
    ingested = reading["ingest"][0]
    spines = {universe: call(build_spine, universe, after=[ingested]) for universe in universes}
    yield {f"{universe} spine": [spine] for universe, spine in spines.items()}
    charged = call(charge_ledger, after=spines.values())
    yield {"ledger": [charged]}
    # What a universe is held to may be the release of others, which then come first.
    first, *later = universe_waves(settings)
    constrained = {u: call(constrain, u, after=[spines[u]]) for u in first}
    shards = {
        universe: shards_by_geolevel(spine_folder(run, universe))
        for universe in universes
        if not settings.is_on_demand(universe)
    }
    measured = {
        (universe, geolevel): [
            call(measure, universe, geolevel, shard.name, after=[charged]) for shard in of_geolevel
        ]
        for universe, own in shards.items()
        for geolevel, of_geolevel in own.items()
    }
    yield {f"{universe} constraints": [made] for universe, made in constrained.items()} | {
        f"{universe} measure {geolevel}": made for (universe, geolevel), made in measured.items()
    }
    in_pieces = universes_in_pieces(run, settings)
    predicted = {u: call(predict_errors, u, after=[spines[u]]) for u in in_pieces}
    predictions = {f"{universe} prediction": [made] for universe, made in predicted.items()}
    summaries = {
        f"{universe} spine summary": [call(summarise_spine, universe, after=[spine])]
        for universe, spine in spines.items()
    }
    yield Aside(summaries | predictions)
    constraints = {universe: [made] for universe, made in constrained.items()}
    estimated = yield from estimates(run, settings, measured, constraints, first)
    for wave in later:
        yield {f"{universe} constraints": [call(constrain, universe)] for universe in wave}
        estimated |= yield from estimates(run, settings, measured, {}, wave)
    pieces = [
        call(compare_piece, universe, number, of, after=[predicted[universe], *estimated[universe]])
        for universe, of in in_pieces.items()
        for number in range(of)
    ]
    compared = call(compare_with_truth, after=[*pieces, *chain(*estimated.values())])
    beside = predictions | {"accuracy": [*pieces, compared]}
    released = yield from release_of(run, settings, estimated, beside)
    yield summaries
    yield {"report": [call(report_run, after=[released])]}


def ingest_of(run: RunDirectory, settings: TopdownSettings) -> Wave:
    """The steps that read the input; persons in many large files are counted side by side."""
    parts = range(n_parts(run, settings))
    if not parts:
        return {"ingest": [call(ingest)]}
    addresses = call(read_addresses)
    counted = [call(count_persons, part, after=[addresses]) for part in parts]
    return {
        "ingest addresses": [addresses],
        "ingest persons": counted,
        "ingest": [call(ingest, after=counted)],
    }


def estimates(
    run: RunDirectory,
    settings: TopdownSettings,
    measured: Mapping[tuple[str, str], Sequence[Call]],
    constrained: Mapping[str, Sequence[Call]],
    universes: Sequence[str] | None = None,
) -> Generator[Wave, None, dict[str, list[Call]]]:
    """The steps that estimate universes, by default all, geolevel by geolevel as the estimator has
    them; what is measured on demand is measured just before.

    `measured` are the calls that a universe's geolevel waits for, `constrained` those that a
    universe does, besides those of the geolevel before. Returns each universe's last calls.
    """
    steps = {COMBINE: combine, ESTIMATE: estimate}
    shards = {
        universe: shards_by_geolevel(spine_folder(run, universe))
        for universe in (settings.run.universes if universes is None else universes)
    }
    orders = {name: estimation_order(settings, list(own)) for name, own in shards.items()}
    last: dict[str, list[Call]] = {universe: [] for universe in shards}
    for place in range(max(map(len, orders.values()))):
        wave = {}
        for universe in (name for name, own in orders.items() if place < len(own)):
            stage, geolevel = orders[universe][place]
            after = [*constrained.get(universe, ()), *last[universe]]
            own = shards[universe][geolevel]
            if settings.is_on_demand(universe):
                after = wave[f"{universe} measure {geolevel}"] = [
                    call(measure, universe, geolevel, shard.name, after=after) for shard in own
                ]
            after = [*measured.get((universe, geolevel), ()), *after]
            last[universe] = wave[f"{universe} {stage} {geolevel}"] = [
                call(steps[stage], universe, geolevel, shard.name, after=after) for shard in own
            ]
        yield wave
    return last


def release_of(
    run: RunDirectory,
    settings: TopdownSettings,
    estimated: Mapping[str, Sequence[Call]],
    beside: Wave = MappingProxyType({}),
) -> Generator[Wave, None, Call]:
    """Microdata and tables, the checks of them and of everything before, and the release.

    `beside` are stages that go side by side with the former, and are begun before them.
    """
    written = {u: call(write_microdata, u, after=last) for u, last in estimated.items()}
    wave: dict[str, Sequence[Call]] = {
        f"{universe} microdata": [made] for universe, made in written.items()
    }
    if has_margins(settings):
        # They take longest: before the tables in the queue of the workers.
        wave["margins"] = [call(write_release_margins, after=chain(*estimated.values()))]
    if has_tables(settings):
        wave["tables"] = [
            call(write_redistricting_tables, piece, after=chain(*estimated.values()))
            for piece in table_pieces(run, settings)
        ]
    made = [one for calls in wave.values() for one in calls]
    yield {**beside, **wave}
    pieces = [
        call(check_piece, piece.kind, piece.subject, piece.number, piece.of, after=made)
        for piece in pieces_apart(run, settings)
    ]
    checked = call(check_release, after=[*made, *pieces])
    yield {"checks": [*pieces, checked]}
    released = call(release_run, after=[checked])
    yield {"release": [released]}
    return released


def check(settings: TopdownSettings) -> None:
    """Check the tables against every rule and build the spines from them; draw no noise."""
    found = check_input_of(settings)
    with_counts = not settings.input.confidential
    print_rules(found, with_counts=with_counts)
    accepted = found.accepted(with_counts=with_counts)
    refuse_large_deltas(settings, largest_universe(accepted))
    if isinstance(accepted, DeclaredInput):
        if not settings.input.awaited:
            held_answers(settings, accepted)
        check_declared_spines(settings, accepted.areas.frame)
        return
    for universe in settings.run.universes:
        spine = universe_spine(settings, universe, accepted.geography, accepted.invariants)
        print_notes(redundant_spending(settings, universe, spine))


def print_costs(settings: TopdownSettings) -> None:
    """The same as tables, with what an attacker learns about an attribute."""
    console = page()
    for universe, report in costs(settings).items():
        console.print(
            f"\n[bold]{universe}[/bold]: {report['mechanism'].replace('_', ' ')}, "
            f"rho {report['rho']} ({decimal(report['rho'])}), "
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
    print_notes(redundant_spending_of_geography(settings))


def finished(run: RunDirectory, settings: TopdownSettings) -> None:
    """The summary at the end of a run: what is in the release, what it cost, where it is."""
    rows = {
        universe: parquet.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows
        for universe in settings.run.universes
    }
    lines = [f"Released: {' and '.join(f'{n:,} rows of {name}' for name, n in rows.items())}."]
    print_finished(run, settings, lines, facts_of(settings).statement)
    if accuracy_report(run).exists():
        kind = "accuracy, confidential" if settings.input.confidential else "accuracy"
        print(f"{kind}: {accuracy_report(run)}")


def needed(settings: TopdownSettings, target: str, margin: int) -> str:
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


def report(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Write the report again, with the spine's summary if it is missing."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    compared(run, settings, lambda: write_run_accuracy(run, settings))
    is_public = not settings.input.confidential
    accuracy = read_accuracy(run) if is_public else None
    truth = records_by_block(run, settings) if is_public else None
    return write_report(run, settings, accuracy, truth)


PRODUCT: Product = Product(
    settings=TopdownSettings,
    flow=topdown,
    stages=topdown_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    facts=lambda run, settings: facts_of(settings),
    accuracy=errors_by_level,
    order=order,
    compare=write_comparison,
    needed=needed,
    refuse=refuse_settings,
    sizes=sizes_of_pieces,
)
