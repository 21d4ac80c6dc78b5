"""The TopDown flow: from census-like tables to privacy-protected microdata.

    ingest -> spine -> ledger -> constraints, measure -> estimate, geolevel by geolevel
           -> microdata, tables and margins side by side -> checks, accuracy -> release -> report

With measurement on demand, a geolevel is measured after the geolevel above it has been estimated.
The estimator `full_information` combines measurements from the blocks up before it estimates.
Background tasks run in parallel with the estimation: they summarise the spines, compute what the
noise guarantees exactly, predict the errors of a large run, compute the best linear unbiased
estimates for margins, and write the margins of tables.

Universes run in parallel. Tasks exchange all data through the run directory, and pass each other
names and digests only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from prefect import Task

from ..tasks.products.steps import check_release, release_run, report_run
from ..tasks.runs.directory import RunDirectory
from ..tasks.topdown.checks.accuracy.compared import universes_in_pieces
from ..tasks.topdown.checks.accuracy.steps import compare_piece, compare_with_truth, predict_errors
from ..tasks.topdown.estimation.steps import COMBINE, ESTIMATE, combine, estimate, estimation_order
from ..tasks.topdown.ingest.steps import (
    check_records,
    count_records,
    ingest,
    n_shares,
    read_referred,
    recognise_people,
)
from ..tasks.topdown.product import TOPDOWN
from ..tasks.topdown.release.microdata import n_parts
from ..tasks.topdown.release.tabulations.run import RunTables, has_margins, margin_pieces
from ..tasks.topdown.settings import TopdownSettings, universe_waves
from ..tasks.topdown.spine.files import RunUniverse, n_tasks, shards_by_geolevel
from ..tasks.topdown.steps import (
    build_spine,
    check_share,
    compute_exact_losses,
    constrain,
    keep_margin_estimates,
    measure,
    summarise_spine,
    write_formats,
    write_margin_piece,
    write_microdata,
    write_microdata_part,
    write_redistricting_tables,
    write_release_margins,
    write_table_piece,
)
from .running import CHARGED_FIRST, flow_of_product
from .stages import Future, charge, finish, stage

Futures = Mapping[str, Sequence[Future]]
"""The futures of universes."""


@dataclass(frozen=True)
class TopdownStages:
    """Common stages of a run from own and from published measurements.

    A stage in the background is begun where a worker may be free, and waited for by a later one.
    """

    run: RunDirectory
    settings: TopdownSettings

    @property
    def root(self) -> str:
        """The folder of the run."""
        return str(self.run.root)

    def predict_accuracy(self, spines: Mapping[str, Future]) -> dict[str, Future]:
        """Submit the errors implied by a large run's budget, by universe, in the background."""
        predicted: dict[str, Future] = {}
        for universe in universes_in_pieces(self.run, self.settings):
            with stage("prediction", f"{universe} prediction", background=True):
                after = [spines[universe]]
                predicted[universe] = predict_errors.submit(self.root, universe, wait_for=after)
        return predicted

    def describe_spines(self, spines: Mapping[str, Future]) -> list[Future]:
        """Submit what certificate and report say of the spines, in the background: their summaries,
        and what the noise of a private run guarantees exactly."""
        described = []
        if self.settings.is_private:
            with stage("exact losses", background=True):
                described.append(compute_exact_losses.submit(self.root, wait_for=spines.values()))
        for universe, spine in spines.items():
            with stage("spine summary", f"{universe} spine summary", background=True):
                described.append(summarise_spine.submit(self.root, universe, wait_for=[spine]))
        return described

    def begin_margins(self, measured: Iterable[Future]) -> list[Future]:
        """Submit the margins of a large run's tables, and the estimates behind them, in
        the background."""
        root, of = self.root, margin_pieces(self.run, self.settings)
        if of < 2:
            return []
        with stage("margins", "margins posterior", background=True):
            kept = keep_margin_estimates.submit(root, wait_for=measured)
        with stage("margins", background=True):
            pieces = [write_margin_piece.submit(root, n, of, wait_for=[kept]) for n in range(of)]
            return [kept, *pieces]

    def estimate_universes(
        self,
        universes: Sequence[str],
        measured: Mapping[tuple[str, str], Sequence[Future]],
        constrained: Mapping[str, Future],
    ) -> dict[str, list[Future]]:
        """Submit the estimates of universes, geolevel by geolevel in the estimator's order;
        measurements on demand come just before. Returns each universe's last futures."""
        root, steps = self.root, {COMBINE: combine, ESTIMATE: estimate}
        shards = {universe: shards_by_geolevel(self.run, universe) for universe in universes}
        orders = {name: estimation_order(self.settings, list(own)) for name, own in shards.items()}
        last: dict[str, list[Future]] = {universe: [] for universe in universes}
        for place in range(max(map(len, orders.values()))):
            for universe in (name for name, own in orders.items() if place < len(own)):
                kind, geolevel = orders[universe][place]
                names = [shard.name for shard in shards[universe][geolevel]]
                before = [*measured.get((universe, geolevel), ()), constrained[universe]]
                before += last[universe]
                if self.settings.is_on_demand(universe):
                    with stage("measure", f"{universe} measure {geolevel}"):
                        before = [
                            measure.submit(root, universe, geolevel, name, wait_for=before)
                            for name in names
                        ]
                with stage(kind, f"{universe} {kind} {geolevel}"):
                    last[universe] = [
                        steps[kind].submit(root, universe, geolevel, name, wait_for=before)
                        for name in names
                    ]
            finish()  # A task that waits for another holds a thread.
        return last

    def compare_with_input(
        self, predicted: Mapping[str, Future], estimated: Futures
    ) -> list[Future]:
        """Submit the comparison of estimates with the truth, in the background."""
        root, pieces = self.root, []
        with stage("accuracy", background=True):
            for universe, of in universes_in_pieces(self.run, self.settings).items():
                after = [predicted[universe], *estimated[universe]]
                pieces += [
                    compare_piece.submit(root, universe, number, of, wait_for=after)
                    for number in range(of)
                ]
            after = [*pieces, *chain(*estimated.values())]
            return [*pieces, compare_with_truth.submit(root, wait_for=after)]

    def write_release(self, estimated: Futures, margins: Sequence[Future]) -> list[Future]:
        """Submit microdata, tables, margins and SDMX."""
        root, every = self.root, list(chain(*estimated.values()))
        written = list(chain(*(self.write_universe(name, estimated) for name in estimated)))
        tables = RunTables(self.run, self.settings)
        if tables.universes or tables.declared:
            with stage("tables"):
                steps = write_table_piece, write_redistricting_tables
                written += in_pieces(*steps, root, of=tables.n_pieces, after=every)
        if has_margins(self.settings):
            with stage("margins"):
                written.append(write_release_margins.submit(root, wait_for=[*margins, *every]))
        formats = self.settings.release
        if formats.sdmx is not None or formats.csvw or formats.geoparquet:
            with stage("formats"):
                written.append(write_formats.submit(root, wait_for=written))
        return written

    def write_universe(self, universe: str, estimated: Futures) -> list[Future]:
        """Submit the microdata of a universe, which another may describe."""
        described = self.settings.compiled_census.universes[universe].described_by
        after = [*estimated[universe], *estimated.get(described or "", ())]
        steps = write_microdata_part, write_microdata
        of = n_parts(RunUniverse(self.run, self.settings, universe))
        with stage("microdata", f"{universe} microdata"):
            return in_pieces(*steps, self.root, universe, of=of, after=after)

    def check_and_release(self, written: Sequence[Future], background: Sequence[Future]) -> None:
        """Check the run's files, release them, and report on the run; background tasks go on during
        the checks."""
        root = self.root
        with stage("checks"):
            checked = in_pieces(
                check_share, check_release, root, of=n_tasks(self.run), after=written
            )
        finish([*background, *checked])
        with stage("release"):
            released = release_run.submit(root, wait_for=checked)
        finish()  # The report has the seconds of all stages before it.
        with stage("report"):
            report_run.submit(root, wait_for=[released])


def in_pieces(
    piece: Task[..., Any], whole: Task[..., Any], *keys: str, of: int, after: Sequence[Future]
) -> list[Future]:
    """Submit the pieces of a step, which workers make side by side, and the step that puts them
    together; that step alone where there is one piece."""
    numbers = range(of if of > 1 else 0)
    pieces = [piece.submit(*keys, number, of, wait_for=after) for number in numbers]
    return [*pieces, whole.submit(*keys, wait_for=[*after, *pieces])]


def stages(run: RunDirectory, settings: TopdownSettings) -> None:
    """Submit the stages of a run, for all universes in parallel."""
    common, universes = TopdownStages(run, settings), settings.run.universes
    root = common.root
    ingested = read_input(run, settings)
    finish()
    spines: dict[str, Future] = {}
    for universe in universes:
        with stage("spine", f"{universe} spine"):
            spines[universe] = build_spine.submit(root, universe, wait_for=[ingested])
    finish()  # The shards to measure are in the spines.
    charged = charge(root, wait_for=spines.values())

    # The universes of a wave may need the released counts of universes in earlier waves.
    waves = universe_waves(settings)
    constrained: dict[str, Future] = {}
    for universe in waves[0]:
        with stage("constraints", f"{universe} constraints"):
            constrained[universe] = constrain.submit(root, universe, wait_for=[spines[universe]])
    measured: dict[tuple[str, str], list[Future]] = {}
    for universe in (one for one in universes if not settings.is_on_demand(one)):
        for geolevel, shards in shards_by_geolevel(run, universe).items():
            with stage("measure", f"{universe} measure {geolevel}"):
                measured[universe, geolevel] = [
                    measure.submit(root, universe, geolevel, shard.name, wait_for=[charged])
                    for shard in shards
                ]
    finish()

    described = common.describe_spines(spines)
    predicted = common.predict_accuracy(spines)
    margins = list[Future]()
    estimated: dict[str, list[Future]] = {}
    for wave in waves:
        for universe in (one for one in wave if one not in constrained):
            with stage("constraints", f"{universe} constraints"):
                constrained[universe] = constrain.submit(
                    root, universe, wait_for=[spines[universe]]
                )
        finish()
        if len(constrained) == len(universes):
            # The estimates for margins need the constraints of every universe.
            margins = common.begin_margins([*constrained.values(), *chain(*measured.values())])
        estimated |= common.estimate_universes(wave, measured, constrained)

    written = common.write_release(estimated, margins)
    compared = common.compare_with_input(predicted, estimated)
    finish([*written, *margins, *predicted.values()])
    common.check_and_release(written, [*described, *compared])


def read_input(run: RunDirectory, settings: TopdownSettings) -> Future:
    """Submit the tasks that read the input. Several tasks read a large input in parallel: each
    counts a share of the records, and then compares the digests of a share of the people."""
    root, n_tasks = str(run.root), n_shares(run, settings)
    numbers = range(n_tasks)
    with stage("ingest"):
        if n_tasks == 1:
            return ingest.submit(root)
        referred = read_referred.submit(root)
        counted = [count_records.submit(root, n, n_tasks, wait_for=[referred]) for n in numbers]
        checked = check_records.submit(root, n_tasks, wait_for=counted)
        known = [recognise_people.submit(root, n, n_tasks, wait_for=[checked]) for n in numbers]
        return ingest.submit(root, wait_for=known)


topdown = flow_of_product(
    TOPDOWN,
    stages,
    "Releases microdata of persons and housing units, and redistricting tables, by the TopDown "
    f"Algorithm. {CHARGED_FIRST}",
)
