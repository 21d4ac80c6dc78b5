"""The order of the steps of topdown and estimate runs.

    ingest -> spine -> charge -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata, tables and margins side by side -> checks, accuracy -> release -> report

On demand, a geolevel is measured when the one above it has been estimated. With full information,
measurements are combined from the blocks up before they are estimated. At the side, while estimates
are made, the errors of a large run are predicted, the estimates behind its margins are worked out
and the margins of its tables written, and so is what the noise guarantees exactly. The spine is
summarised for the report beside the release.

A large input in several files is ingested in parts: the addresses, then persons file by file.
Persons and housing units run side by side. All data travel through the run directory; what the
tasks hand to each other are names and digests.

An estimate run reads what somebody has published in place of ingest, charge and measurement:

    geography -> geounits -> invariants -> constraints, measurements -> estimate -> ...
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ..products.order import Aside, Call, Order, Wave, call
from ..products.release.steps import check_release, release_run, report_run
from ..products.steps import charge_ledger
from ..runs.directory import RunDirectory
from .checks.accuracy.pieces import universes_in_pieces
from .checks.accuracy.steps import compare_piece, compare_with_truth, predict_errors
from .checks.pieces import pieces_apart
from .checks.steps import check_piece
from .estimation.estimators import COMBINE, ESTIMATE, estimation_order
from .estimation.steps import combine, estimate
from .ingest.parts import n_counting_tasks
from .ingest.steps import count_persons, ingest, read_addresses
from .measurement.steps import constrain, measure
from .published.steps import (
    read_geography_file,
    read_geounits,
    read_measurements,
    read_told_invariants,
)
from .release.margins import FIGURES, FILES, has_margins
from .release.margins import pieces_apart as margin_pieces
from .release.steps import (
    keep_estimates,
    work_out_loss,
    write_margin_piece,
    write_microdata,
    write_redistricting_tables,
    write_release_margins,
)
from .release.tabulations.run import has_tables, tables_of_run
from .settings import TopdownSettings, universe_waves
from .spine.shards import shards_by_geolevel
from .spine.sizes import is_small
from .spine.steps import build_spine, summarise_spine

POSTERIOR = "margins posterior"
"""The stage that works out the estimates behind the margins of a large run, beside its own."""
MARGINS = "margins"
"""The stage that writes the margins; those beside the tables are begun beside the estimates."""


def order(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps of a run; the universes go side by side."""
    universes = settings.run.universes
    reading = ingest_of(run, settings)
    yield reading
    ingested = reading["ingest"][0]
    spines = {universe: call(build_spine, universe, after=[ingested]) for universe in universes}
    yield {f"{universe} spine": [spine] for universe, spine in spines.items()}
    loss, losses = losses_of(settings, spines)
    yield Aside(loss)  # The charge and what it waits for leave a worker free.
    charged = call(charge_ledger, after=spines.values())
    yield {"ledger": [charged]}
    # What a universe is held to may be the release of others, which then come first.
    first, *later = universe_waves(settings)
    constrained = {u: call(constrain, u, after=[spines[u]]) for u in first}
    shards = {
        universe: shards_by_geolevel(run, universe)
        for universe in universes
        if not settings.is_on_demand(universe)
    }
    measured = {
        (universe, geolevel): [
            call(
                measure,
                universe,
                geolevel,
                shard.name,
                after=[charged],
                is_small=is_small(settings, measure.name, universe, own, shard),
            )
            for shard in of_geolevel
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
    yield Aside(predictions)
    posterior: dict[str, Sequence[Call]] = {}
    estimated: dict[str, list[Call]] = {}
    for wave in (first, *later):
        if wave is not first:
            constrained |= {universe: call(constrain, universe) for universe in wave}
            yield {f"{universe} constraints": [constrained[universe]] for universe in wave}
        if len(constrained) == len(universes):
            # Estimates behind the margins read what every universe is held to.
            facts = [*constrained.values(), *chain(*measured.values())]
            posterior = posterior_of(run, settings, facts)
            yield Aside(posterior)
        constraints = {universe: [constrained[universe]] for universe in wave}
        estimated |= yield from estimates(run, settings, measured, constraints, wave)
    pieces = [
        call(compare_piece, universe, number, of, after=[predicted[universe], *estimated[universe]])
        for universe, of in in_pieces.items()
        for number in range(of)
    ]
    compared = call(compare_with_truth, after=[*pieces, *chain(*estimated.values())])
    beside = predictions | loss | posterior
    accuracy = {"accuracy": [*pieces, compared]}
    yield from release_of(run, settings, estimated, beside, accuracy, losses, summaries)


def up_to_measurements(order: Iterable[Wave]) -> Iterator[Wave]:
    """The waves of an order up to the one that measures, or reads what was measured, without what
    goes beside them. Where a universe is measured on demand, that is the wave of the others."""
    for wave in order:
        if not isinstance(wave, Aside):
            yield wave
        if {one.step for calls in wave.values() for one in calls} & {measure, read_measurements}:
            return


def ingest_of(run: RunDirectory, settings: TopdownSettings) -> Wave:
    """The steps that read the input; persons in several files are counted side by side."""
    tasks = range(n_counting_tasks(run, settings))
    if not tasks:
        return {"ingest": [call(ingest)]}
    addresses = call(read_addresses)
    counted = [call(count_persons, number, after=[addresses]) for number in tasks]
    return {
        "ingest addresses": [addresses],
        "ingest persons": counted,
        "ingest": [call(ingest, after=counted)],
    }


def losses_of(
    settings: TopdownSettings, spines: Mapping[str, Call]
) -> tuple[dict[str, Sequence[Call]], dict[str, Sequence[Call]]]:
    """The stages that work out what the noise guarantees exactly, if it protects: one that is begun
    beside the charge, and those that end the checks.

    Only the certificate waits for them. Two at once would hold up what others wait for.
    """
    stages: list[tuple[str, Sequence[Call]]] = [
        (f"{universe} exact loss", [call(work_out_loss, universe, after=[spine])])
        for universe, spine in spines.items()
        if settings.is_private
    ]
    return dict(stages[:1]), dict(stages[1:])


def posterior_of(
    run: RunDirectory, settings: TopdownSettings, measured: Iterable[Call]
) -> dict[str, Sequence[Call]]:
    """The stages that work out what pieces of the margins need, if there are any, and write those
    that need no estimates of the run's own."""
    pieces = margin_pieces(run, settings)
    if not pieces:
        return {}
    kept = call(keep_estimates, after=measured)
    files: list[Call] = []
    for piece in pieces:
        if piece.kind == FILES:
            # One after the other, so that estimates find a worker free.
            after = [kept, *files[-1:]]
            files.append(call(write_margin_piece, piece.kind, piece.subject, after=after))
    return {POSTERIOR: [kept], MARGINS: files}


def estimates(
    run: RunDirectory,
    settings: TopdownSettings,
    measured: Mapping[tuple[str, str], Sequence[Call]],
    constrained: Mapping[str, Sequence[Call]],
    universes: Sequence[str],
) -> Generator[Wave, None, dict[str, list[Call]]]:
    """The steps that estimate universes, geolevel by geolevel as the estimator has them; what is
    measured on demand is measured just before.

    `measured` are the calls that a universe's geolevel waits for, `constrained` those that a
    universe does, besides those of the geolevel before. Returns each universe's last calls.
    """
    steps = {COMBINE: combine, ESTIMATE: estimate}
    shards = {universe: shards_by_geolevel(run, universe) for universe in universes}
    orders = {name: estimation_order(settings, list(own)) for name, own in shards.items()}
    last: dict[str, list[Call]] = {universe: [] for universe in shards}
    small: dict[str, Sequence[Call]] = {}
    for place in range(max(map(len, orders.values()))):
        wave: dict[str, Sequence[Call]] = {}
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
                call(
                    steps[stage],
                    universe,
                    geolevel,
                    shard.name,
                    after=after,
                    is_small=not settings.is_on_demand(universe)
                    and is_small(settings, stage, universe, shards[universe], shard),
                )
                for shard in own
            ]
        # Of what is small, one task is enough for several geolevels.
        if all(one.is_small for calls in wave.values() for one in calls):
            small |= wave
            continue
        if small:
            yield small
        yield wave
        small = {}
    if small:
        yield small
    return last


def release_of(
    run: RunDirectory,
    settings: TopdownSettings,
    estimated: Mapping[str, Sequence[Call]],
    beside: Wave,
    until_checked: Wave,
    until_released: Wave,
    until_reported: Wave,
) -> Order:
    """Microdata and tables, the checks of them and of everything before, the release, the report.

    `beside` are stages that go side by side with the first two, and are begun before them;
    `until_checked` are begun after them and go side by side with the checks, `until_released` after
    the pieces of the checks, and `until_reported` with the release: so both workers have some to
    the end.
    """
    described = {u: settings.compiled_census.universes[u].described_by for u in estimated}
    written = {
        u: call(write_microdata, u, after=[*last, *estimated.get(described[u] or "", ())])
        for u, last in estimated.items()
    }
    # Others take less than the first, and fill up what is left beside the tables.
    first, *others = written
    wave: dict[str, Sequence[Call]] = {f"{first} microdata": [written[first]]}
    if has_tables(settings):
        wave["tables"] = [
            call(write_redistricting_tables, piece, after=chain(*estimated.values()))
            for piece in tables_of_run(run, settings).pieces()
        ]
    wave |= {f"{universe} microdata": [written[universe]] for universe in others}
    if has_margins(settings):
        after = [*beside.get(POSTERIOR, ()), *chain(*estimated.values())]
        apart = [
            *beside.get(MARGINS, ()),
            *(
                call(write_margin_piece, piece.kind, piece.subject, after=after)
                for piece in margin_pieces(run, settings)
                if piece.kind == FIGURES
            ),
        ]
        # The last one waits for the others: no task that could go on stands behind it.
        wave[MARGINS] = [*apart, call(write_release_margins, after=[*after, *apart])]
    made = [one for calls in wave.values() for one in calls]
    wave = {**beside, **wave}
    # What goes beside the checks stands behind it, and is begun before all of it has ended.
    yield Aside(wave)
    yield Aside(until_checked)
    yield wave
    pieces = [
        call(check_piece, piece.kind, piece.subject, piece.number, piece.of, after=made)
        for piece in pieces_apart(run, settings)
    ]
    checked = call(check_release, after=[*made, *pieces])
    checks = {"checks": [*pieces, checked]}
    yield Aside(checks)
    yield Aside(until_released)
    yield {**until_checked, **checks, **until_released}
    released = call(release_run, after=[checked])
    yield {"release": [released], **until_reported}
    # The report tells the seconds of all stages before it.
    yield {"report": [call(report_run, after=[released])]}


def order_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps from measurements that are published already; the universes go side by side."""
    universes = settings.run.universes
    geography = call(read_geography_file)
    yield {"geography": [geography]}
    spines = {universe: call(read_geounits, universe, after=[geography]) for universe in universes}
    yield {f"{universe} geounits": [spine] for universe, spine in spines.items()}
    invariants = call(read_told_invariants, after=spines.values())
    yield {"invariants": [invariants]}
    constrained = {
        universe: call(constrain, universe, after=[invariants]) for universe in universes
    }
    measured = {
        (universe, geolevel): [call(read_measurements, universe, geolevel, after=[invariants])]
        for universe in universes
        for geolevel in shards_by_geolevel(run, universe)
    }
    yield {f"{universe} constraints": [made] for universe, made in constrained.items()} | {
        f"{universe} measurements {geolevel}": made
        for (universe, geolevel), made in measured.items()
    }
    summaries = {
        f"{universe} spine summary": [call(summarise_spine, universe, after=[invariants])]
        for universe in universes
    }
    posterior = posterior_of(run, settings, chain(*measured.values()))
    loss, losses = losses_of(settings, spines)
    beside = loss | posterior
    yield Aside(beside)
    constraints = {universe: [made] for universe, made in constrained.items()}
    estimated = yield from estimates(run, settings, measured, constraints, universes)
    yield from release_of(run, settings, estimated, beside, {}, losses, summaries)
