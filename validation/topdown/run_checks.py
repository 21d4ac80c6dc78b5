"""All checks of a finished run, from its public files alone.

Nothing here uses the code that built the spine, drew the noise, estimated or wrote microdata, and
nothing here opens `confidential/`. The checks of a universe come in pieces, which can be made side
by side: the top of the spine, shares of what is below, and the microdata.
`universe_outcomes` puts together what they have found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from scipy import sparse

from ..outcome import Failures, Outcome
from ..run_files import UnusableRunFile, unusable_files_fail
from .cells import Cells
from .conservation import (
    LevelEstimates,
    check_children_add_to_parents,
    no_estimates,
    read_estimates,
)
from .constraints import COMPLETE, check_constraint_files, check_constraints, check_zeros
from .declarations import HELD, ON_ROWS, RELATIONS
from .declared import DeclaredSums
from .demanded import check_demanded
from .descriptions import check_description
from .measured_noise import check_measured_noise
from .microdata import Microdata, check_microdata, counted, last_level
from .path_losses import LossesOnPaths, losses_of_part
from .privacy_loss import CodedSums, check_measurements, check_shares
from .run_files import (
    ExpectedUniverse,
    RunSpine,
    SpineLevel,
    count_blocks,
    count_unknown,
    read_spine,
)
from .spine_parts import (
    BLOCKS_PER_PART,
    SpinePart,
    cut_depth,
    spine_parts,
)
from .spine_structure import check_spine

MICRODATA = "microdata_tabulate_to_estimates"
CHECKS: Mapping[str, str] = {
    "spine_is_a_tree": "both spine files describe one tree of all blocks",
    "estimates_are_counts": "positive integers in cells of the schema and geounits of the spine",
    "children_add_to_parents": "in every cell of every geounit",
    "constraints_are_complete": "every geounit carries each constraint of its geolevel once",
    "equality_constraints_hold": "invariants are met exactly",
    "bounds_hold": "lower and upper bounds are met by every geounit",
    "structural_zeros_hold": "impossible cells are empty",
    "shares_add_to_one": "on the path from the root to every block",
    "measurements_are_complete": "every geounit with a share has each query exactly once",
    "noise_is_what_its_loss_pays_for": "the variance of every measurement, and its values",
    "measured_loss_is_the_budget": "each measurement's, and their sum on the path to every block",
    MICRODATA: "Parquet and text rows agree and give the block estimates",
}
"""Each check's name, and what it found when it passed."""

OF_DECLARATIONS: Mapping[str, str] = {
    HELD: "with those of the earlier releases, in every area",
    RELATIONS: "linear relations are met by every area",
}
"""Further checks of what a census declares."""


def checks_of(expected: ExpectedUniverse) -> Mapping[str, str]:
    """The checks that a universe has, as `CHECKS`; of one that is held to declarations, those that
    have something to check.
    """
    if expected.declared is None:
        return CHECKS
    is_made = expected.declared.checked | {"structural_zeros_hold": bool(expected.structural_zeros)}
    every = {**CHECKS, **OF_DECLARATIONS}
    return {
        name: text.replace("block", "area")
        for name, text in every.items()
        if is_made.get(name, True)
    }


@dataclass
class Findings:
    """What pieces of the checks of a universe have found.

    failures : by check. unusable : of what no check could be made, and so fails all. losses : what
    the measurements cost, summed along parts of paths. All are small.
    """

    failures: dict[str, Failures] = field(
        default_factory=lambda: {name: Failures() for name in (*CHECKS, *OF_DECLARATIONS)}
    )
    unusable: Failures = field(default_factory=Failures)
    losses: LossesOnPaths = field(default_factory=LossesOnPaths)

    def add(self, further: Findings) -> None:
        """Take in what the piece that follows has found."""
        for name, found in further.failures.items():
            self.failures[name].extend(found)
        for text in further.unusable.texts:
            if text not in self.unusable.texts:
                self.unusable.add(text)
        self.losses.add(further.losses)


@dataclass(frozen=True)
class CheckedRun:
    """A run's files, and what is promised of them.

    `expected` maps universes to what the settings promise: those that are checked, and those that
    they must agree with. `areas` holds what is public of each area and not in the spine; see
    `check_microdata`. Large spines are checked in parts of about `blocks_per_part` blocks, so that
    memory is bounded but for some hundred bytes a geounit. `is_private` tells whether the microdata
    must be without the stamp of a run that is not.
    """

    directory: Path
    expected: Mapping[str, ExpectedUniverse]
    release: Path
    areas: pa.Table | None = None
    is_private: bool = True
    blocks_per_part: int = BLOCKS_PER_PART

    def spine(self, universe: str) -> RunSpine:
        """The spine of a universe."""
        return read_spine(self.directory, universe, self.expected[universe].geolevels)


def check_top(run: CheckedRun, universe: str) -> Findings:
    """Check a spine, and its upper geounits: all of them, where the spine is one part."""
    found, expected = Findings(), run.expected[universe]
    with unusable_files_fail(found.unusable):
        spine = run.spine(universe)
        check_spine(spine, found.failures["spine_is_a_tree"], with_digits=expected.has_digits)
        check_shares(spine, found.failures["shares_add_to_one"])
        if expected.declared is not None:
            with unusable_files_fail(found.failures[COMPLETE]):
                check_constraint_files(
                    run.directory, universe, spine, expected.declared.constraints, found.failures
                )
        part = next(spine_parts(spine, run.blocks_per_part))
        losses = _check_part(run, expected, spine, part, None, found.failures)
        depth = cut_depth(spine, run.blocks_per_part)
        for level in spine.levels[depth + 1 :] if depth else ():
            _check_geocodes(run.directory, expected, level, found.failures)
        if expected.total is not None:
            found.losses = losses_of_part(spine, part, losses)
    return found


def check_below(run: CheckedRun, universe: str, number: int, n_pieces: int) -> Findings:
    """Check the geounits of the spine's other parts, of which the piece has its share."""
    found, expected = Findings(), run.expected[universe]
    with unusable_files_fail(found.unusable):
        if count_blocks(run.directory, universe) <= run.blocks_per_part:
            return found
        spine = run.spine(universe)
        depth = cut_depth(spine, run.blocks_per_part)
        if not depth:
            return found
        at_cut = _estimates(run, expected.cells, spine.levels[depth])
        for part in spine_parts(spine, run.blocks_per_part, share=(number, n_pieces)):
            if part.depth:
                losses = _check_part(run, expected, spine, part, at_cut, found.failures)
                if expected.total is not None:
                    found.losses.add(losses_of_part(spine, part, losses))
    return found


def check_rows(run: CheckedRun, universe: str) -> Findings:
    """Check the microdata, row by row, and hold them to what is declared.

    What another universe must agree with is asked of its estimates, to which its own rows are held.
    """
    found, expected = Findings(), run.expected[universe]
    failures = found.failures
    with unusable_files_fail(found.unusable):
        spine = run.spine(universe)
        on_rows = () if expected.declared is None else ON_ROWS
        with unusable_files_fail(*(failures[name] for name in (MICRODATA, *on_rows))):
            _check_rows(run, expected, spine, failures)
    return found


def _check_rows(
    run: CheckedRun,
    expected: ExpectedUniverse,
    spine: RunSpine,
    failures: Mapping[str, Failures],
) -> None:
    cells, layout = expected.cells, expected.layout
    if layout is None:
        raise UnusableRunFile(f"the layout of the microdata of {cells.universe} is not known")
    files = Microdata(run.release / f"mdf_{cells.universe}", layout, cells, run.is_private)
    others, declared = _Others(run, spine), expected.declared
    sums = None if declared is None else DeclaredSums(declared, cells, failures)
    for rows in check_microdata(
        files,
        spine,
        partial(_estimates, run, cells),
        failures[MICRODATA],
        areas=run.areas,
        areas_per_part=run.blocks_per_part,
    ):
        counts_of = partial(others.counts, areas=rows.areas)
        if sums is not None:
            sums.add(rows, spine.ascending_geocode[rows.areas], counts_of)
        if layout.described is not None:
            other = layout.described.universe
            check_description(
                layout.described,
                rows,
                run.expected[other].cells,
                counts_of(other),
                failures[MICRODATA],
            )
    if sums is not None:
        sums.finish()


class _Others:
    """Estimates of other universes that one must agree with, in the areas that it has."""

    def __init__(self, run: CheckedRun, spine: RunSpine) -> None:
        self._run, self._spine, self._spines = run, spine, dict[str, RunSpine]()

    def counts(self, universe: str, areas: slice) -> sparse.csr_array:
        """Counts `(n_areas, n_cells)` of some areas."""
        if universe not in self._spines:
            self._spines[universe] = self._run.spine(universe)
        spine, cells = self._spines[universe], self._run.expected[universe].cells
        if not spine.ascending_geocode[areas].equals(self._spine.ascending_geocode[areas]):
            raise UnusableRunFile(f"the areas of {universe} are not those of the other universes")
        level = last_level(spine, spine.by_geocode[areas])
        estimates = _estimates(self._run, cells, level)
        return counted(estimates.key, estimates.count, (level.n, cells.n))


def _estimates(run: CheckedRun, cells: Cells, level: SpineLevel) -> LevelEstimates:
    """The estimates of a part of a geolevel; what is wrong with them is recorded elsewhere."""
    with unusable_files_fail():
        return read_estimates(run.directory, cells.universe, level, cells.n, Failures())
    return no_estimates(cells.n)


def universe_outcomes(run: CheckedRun, universe: str, findings: Findings) -> tuple[Outcome, ...]:
    """The outcome of each check of a universe in their order, from what all pieces have found."""
    failures = settled_failures(run, universe, findings)
    return tuple(
        failures[name].outcome(name, universe, passed)
        for name, passed in checks_of(run.expected[universe]).items()
    )


def settled_failures(run: CheckedRun, universe: str, findings: Findings) -> dict[str, Failures]:
    """What all pieces have found of a universe by check, with the losses on whole paths."""
    expected, failures = run.expected[universe], findings.failures
    for text in findings.unusable.texts:
        for found in failures.values():
            found.add(text)
    if expected.total is not None and not findings.unusable.count:
        with unusable_files_fail(failures["measured_loss_is_the_budget"]):
            findings.losses.check(expected.total, failures["measured_loss_is_the_budget"])
    return failures


def _check_part(
    run: CheckedRun,
    expected: ExpectedUniverse,
    spine: RunSpine,
    part: SpinePart,
    at_cut: LevelEstimates | None,
    failures: Mapping[str, Failures],
) -> list[CodedSums]:
    """Check estimates, constraints and measurements of a part of the spine.

    `at_cut` are the estimates of the geolevel of the cut, None for the part that has it and what is
    above. Returns the privacy losses of the geounits that were checked, geolevel by geolevel.
    """
    losses = []
    above: SpineLevel | None = None
    estimates_above = no_estimates(expected.cells.n)
    for level, geounits in zip(part.levels, part.geounits, strict=True):
        if at_cut is not None and above is None:
            above, estimates_above = level, at_cut.part(geounits)
            continue
        estimates, loss = _check_level(run.directory, expected, spine, level, failures)
        if expected.on_demand:
            completeness = failures["measurements_are_complete"]
            with unusable_files_fail(completeness):
                known = None if above is None else estimates_above
                check_demanded(run.directory, expected, level, known, completeness)
        if above is not None:
            check_children_add_to_parents(
                above, estimates_above, level, estimates, failures["children_add_to_parents"]
            )
        losses.append(loss)
        above, estimates_above = level, estimates
    return losses


def _check_level(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    level: SpineLevel,
    failures: Mapping[str, Failures],
) -> tuple[LevelEstimates, CodedSums]:
    """Check the files of a geolevel, or of a part of one; its estimates and its privacy losses."""
    universe, n_cells = expected.cells.universe, expected.cells.n
    completeness = failures["measurements_are_complete"]
    loss_failures = failures["measured_loss_is_the_budget"]
    estimates, loss = no_estimates(n_cells), CodedSums.zeros(level.n)
    with unusable_files_fail(failures["estimates_are_counts"]):
        estimates = read_estimates(
            run_directory, universe, level, n_cells, failures["estimates_are_counts"]
        )
    check_zeros(expected, level, estimates, failures["structural_zeros_hold"])
    if expected.constraints is not None:
        with unusable_files_fail(failures["constraints_are_complete"]):
            check_constraints(run_directory, expected, spine, level, estimates, failures)
    with unusable_files_fail(completeness, loss_failures):
        loss = check_measurements(run_directory, expected, level, completeness, loss_failures)
    with unusable_files_fail(failures["noise_is_what_its_loss_pays_for"]):
        check_measured_noise(
            run_directory, expected, level, failures["noise_is_what_its_loss_pays_for"]
        )
    return estimates, loss


def _check_geocodes(
    run_directory: Path,
    expected: ExpectedUniverse,
    level: SpineLevel,
    failures: Mapping[str, Failures],
) -> None:
    """No file of a geolevel that was read in parts has rows of geounits that are in no part."""
    universe = expected.cells.universe
    measured = run_directory / "measurements" / universe / level.name
    for what, folder, name in (
        ("estimates", run_directory / "estimates" / universe / level.name, "estimates_are_counts"),
        ("measurements", measured / expected.measurements, "measurements_are_complete"),
        ("constraints", measured / "constraints", "constraints_are_complete"),
    )[: 2 if expected.constraints is None else 3]:
        with unusable_files_fail(failures[name]):
            n_unknown = count_unknown(folder, level)
            if n_unknown:
                failures[name].add(
                    f"{what} of {level.name} have a geocode outside the spine", n_unknown
                )
