"""All checks of a finished run, from its public files alone.

Nothing here uses the code that built the spine, drew the noise, estimated or wrote microdata, and
nothing here opens `confidential/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from spineflow.validation.outcome import Failures, Outcome
from spineflow.validation.run_files import UnusableRunFile, unusable_files_fail
from spineflow.validation.topdown.conservation import (
    LevelEstimates,
    check_children_add_to_parents,
    no_estimates,
    read_estimates,
)
from spineflow.validation.topdown.constraints import (
    ConstraintFailures,
    check_constraints,
    facilities_by_block,
)
from spineflow.validation.topdown.demanded import check_demanded
from spineflow.validation.topdown.measured_noise import check_measured_noise
from spineflow.validation.topdown.microdata import ReleaseFile, check_microdata
from spineflow.validation.topdown.privacy_loss import (
    CodedSums,
    check_measurements,
    check_paths,
    check_shares,
)
from spineflow.validation.topdown.run_files import (
    ExpectedUniverse,
    RunSpine,
    SpineLevel,
    count_unknown,
    read_spine,
)
from spineflow.validation.topdown.spine_parts import BLOCKS_PER_PART, cut_depth, spine_parts
from spineflow.validation.topdown.spine_structure import check_spine

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
    "microdata_tabulate_to_estimates": "Parquet and text rows agree and give the block estimates",
}
"""Each check's name, and what it found when it passed."""


def run_checks(
    run_directory: Path,
    expected: Mapping[str, ExpectedUniverse],
    *,
    release_directory: Path | None = None,
    facilities: pa.Table | None = None,
    is_private: bool = True,
    blocks_per_part: int = BLOCKS_PER_PART,
) -> tuple[Outcome, ...]:
    """Check every universe of a run, and return the outcome of each of `CHECKS` for each.

    `expected` maps universes to what the settings promise. Microdata is looked for in
    `release_directory`, by default `release/` of the run. `facilities` (block_geocode,
    facilities) holds the public number of group-quarters facilities in each block; by default it
    is read from the constraints of a universe with a bounded attribute. `is_private` tells whether
    the microdata must be without the stamp of a run that is not. Large spines are checked in parts
    of about `blocks_per_part` blocks, so that memory is bounded but for some hundred bytes a
    geounit.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that
    a run passes only if everything was seen to be right.
    """
    release_directory = release_directory or run_directory / "release"
    if facilities is None:
        facilities = _facilities(run_directory, expected)
    outcomes: list[Outcome] = []
    for universe, promise in expected.items():
        failures = {name: Failures() for name in CHECKS}
        with unusable_files_fail(*failures.values()):
            spine = read_spine(run_directory, universe, promise.geolevels)
            release = ReleaseFile.of(release_directory, universe, is_private)
            check_spine(spine, failures["spine_is_a_tree"])
            check_shares(spine, failures["shares_add_to_one"])
            _check_geounits(run_directory, promise, spine, blocks_per_part, failures)
            with unusable_files_fail(failures["microdata_tabulate_to_estimates"]):
                _check_microdata(
                    run_directory,
                    promise,
                    spine,
                    release,
                    facilities,
                    blocks_per_part,
                    failures["microdata_tabulate_to_estimates"],
                )
        outcomes += [failures[name].outcome(name, universe, CHECKS[name]) for name in CHECKS]
    return tuple(outcomes)


def _facilities(run_directory: Path, expected: Mapping[str, ExpectedUniverse]) -> pa.Table | None:
    """Facilities of each block by the constraints on a universe, None if none tell them."""
    for universe, promise in expected.items():
        if promise.bounded_attribute is not None:
            with unusable_files_fail():
                spine = read_spine(run_directory, universe, promise.geolevels)
                attribute = promise.bounded_attribute
                return facilities_by_block(run_directory, spine, promise.cells, attribute)
    return None


def _check_geounits(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    blocks_per_part: int,
    failures: Mapping[str, Failures],
) -> None:
    """Check estimates, constraints and measurements, part by part of the spine."""
    losses: list[list[tuple[np.ndarray, CodedSums]]] = [[] for _ in spine.levels]
    at_cut = no_estimates(expected.cells.n)
    for part in spine_parts(spine, blocks_per_part):
        above: SpineLevel | None = None
        estimates_above = at_cut
        for depth, (level, geounits) in enumerate(
            zip(part.levels, part.geounits, strict=True), start=part.depth
        ):
            if part.depth and above is None:
                above, estimates_above = level, at_cut.part(geounits)
                continue
            estimates, loss = _check_level(run_directory, expected, spine, level, failures)
            if expected.on_demand:
                _check_demanded(
                    run_directory,
                    expected,
                    level,
                    None if above is None else estimates_above,
                    failures["measurements_are_complete"],
                )
            if above is not None:
                check_children_add_to_parents(
                    above, estimates_above, level, estimates, failures["children_add_to_parents"]
                )
            losses[depth].append((geounits, loss))
            above, estimates_above = level, estimates
        if not part.depth:
            at_cut = estimates_above
    depth = cut_depth(spine, blocks_per_part)
    for level in spine.levels[depth + 1 :] if depth else ():
        _check_geocodes(run_directory, expected, level, failures)
    if expected.total is not None:
        placed = [
            CodedSums.placed(level.n, parts)
            for level, parts in zip(spine.levels, losses, strict=True)
        ]
        check_paths(spine, placed, expected.total, failures["measured_loss_is_the_budget"])


def _check_demanded(
    run_directory: Path,
    expected: ExpectedUniverse,
    level: SpineLevel,
    above: LevelEstimates | None,
    failures: Failures,
) -> None:
    possible = np.ones(expected.cells.n, dtype=bool)
    for conditions in expected.structural_zeros.values():
        possible &= ~expected.cells.where(conditions)
    with unusable_files_fail(failures):
        check_demanded(run_directory, expected, level, above, possible, failures)


def _check_level(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    level: SpineLevel,
    failures: Mapping[str, Failures],
) -> tuple[LevelEstimates, CodedSums]:
    """Check the files of a geolevel, or of a part of one; its estimates and its privacy losses."""
    universe, n_cells = expected.cells.universe, expected.cells.n
    constraint_failures = ConstraintFailures(
        completeness=failures["constraints_are_complete"],
        equalities=failures["equality_constraints_hold"],
        bounds=failures["bounds_hold"],
        structural_zeros=failures["structural_zeros_hold"],
    )
    completeness = failures["measurements_are_complete"]
    loss_failures = failures["measured_loss_is_the_budget"]
    estimates, loss = no_estimates(n_cells), CodedSums.zeros(level.n)
    with unusable_files_fail(failures["estimates_are_counts"]):
        estimates = read_estimates(
            run_directory, universe, level, n_cells, failures["estimates_are_counts"]
        )
    with unusable_files_fail(constraint_failures.completeness):
        check_constraints(run_directory, expected, spine, level, estimates, constraint_failures)
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
        ("constraints", measured / "constraints", "constraints_are_complete"),
        ("measurements", measured / expected.measurements, "measurements_are_complete"),
    ):
        with unusable_files_fail(failures[name]):
            n_unknown = count_unknown(folder, level)
            if n_unknown:
                failures[name].add(
                    f"{what} of {level.name} have a geocode outside the spine", n_unknown
                )


def _check_microdata(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    release: ReleaseFile,
    facilities: pa.Table | None,
    blocks_per_part: int,
    failures: Failures,
) -> None:
    cells = expected.cells

    def estimates_of(blocks: SpineLevel) -> LevelEstimates:
        # What is wrong with the estimates themselves has been recorded before.
        with unusable_files_fail():
            return read_estimates(run_directory, cells.universe, blocks, cells.n, Failures())
        return no_estimates(cells.n)

    if expected.layout is None:
        raise UnusableRunFile(f"the layout of the microdata of {cells.universe} is not known")
    check_microdata(
        release,
        expected.layout,
        cells,
        spine,
        estimates_of,
        failures,
        facilities=facilities,
        blocks_per_part=blocks_per_part,
    )
