"""All checks of a finished run, from its public files alone.

Nothing here uses the code that built the spine, drew the noise, estimated or wrote microdata, and
nothing here opens `confidential/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from validation.conservation import check_children_add_to_parents, no_estimates, read_estimates
from validation.constraints import (
    FACILITY_LOWER_BOUND,
    ConstraintFailures,
    check_constraints,
    facilities_by_block,
)
from validation.microdata import ReleaseFile, check_persons, check_units
from validation.outcome import Failures, Outcome
from validation.privacy_loss import CodedSums, check_measurements, check_paths, check_shares
from validation.run_files import ExpectedUniverse, RunSpine, UnusableRunFile, read_spine
from validation.spine_structure import check_spine

PERSONS = "persons"
UNITS = "units"

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
) -> tuple[Outcome, ...]:
    """Check every universe of a run, and return the outcome of each of `CHECKS` for each.

    `expected` maps `persons` or `units` to what the settings promise. Microdata is looked for in
    `release_directory`, by default `release/` of the run. `facilities` (block_geocode,
    facilities) holds the public number of group-quarters facilities in each block; by default it
    is read from the constraints of the persons universe. `is_private` tells whether the microdata
    must be without the stamp of a run that is not.

    A file that is missing, unreadable or of another layout fails the checks that need it, so that
    a run passes only if everything was seen to be right.
    """
    release_directory = release_directory or run_directory / "release"
    if facilities is None and PERSONS in expected:
        facilities = _facilities(run_directory, expected[PERSONS])
    outcomes: list[Outcome] = []
    for universe, promise in expected.items():
        failures = {name: Failures() for name in CHECKS}
        with unusable_files_fail(*failures.values()):
            spine = read_spine(run_directory, universe, promise.geolevels)
            release = ReleaseFile.of(release_directory, universe, is_private)
            _check_universe(run_directory, promise, spine, release, facilities, failures)
        outcomes += [failures[name].outcome(name, universe, CHECKS[name]) for name in CHECKS]
    return tuple(outcomes)


def _facilities(run_directory: Path, persons: ExpectedUniverse) -> pa.Table | None:
    """Facilities of each block by the constraints on persons, None if they do not tell them."""
    if FACILITY_LOWER_BOUND not in persons.constraints:
        return None
    with unusable_files_fail():
        spine = read_spine(run_directory, PERSONS, persons.geolevels)
        return facilities_by_block(run_directory, spine, persons.schema)
    return None


def _check_universe(
    run_directory: Path,
    expected: ExpectedUniverse,
    spine: RunSpine,
    release: ReleaseFile,
    facilities: pa.Table | None,
    failures: Mapping[str, Failures],
) -> None:
    universe, n_cells = expected.schema.universe, expected.schema.n_cells
    constraint_failures = ConstraintFailures(
        completeness=failures["constraints_are_complete"],
        equalities=failures["equality_constraints_hold"],
        bounds=failures["bounds_hold"],
        structural_zeros=failures["structural_zeros_hold"],
    )
    completeness = failures["measurements_are_complete"]
    loss_failures = failures["measured_loss_is_the_budget"]

    check_spine(spine, failures["spine_is_a_tree"])
    check_shares(spine, failures["shares_add_to_one"])
    losses = []
    above = estimates_above = None
    for level in spine.levels:
        estimates = no_estimates(n_cells)
        with unusable_files_fail(failures["estimates_are_counts"]):
            estimates = read_estimates(
                run_directory, universe, level, n_cells, failures["estimates_are_counts"]
            )
        if above is not None:
            check_children_add_to_parents(
                above, estimates_above, level, estimates, failures["children_add_to_parents"]
            )
        with unusable_files_fail(constraint_failures.completeness):
            check_constraints(run_directory, expected, spine, level, estimates, constraint_failures)
        loss = CodedSums.zeros(level.n)
        with unusable_files_fail(completeness, loss_failures):
            loss = check_measurements(run_directory, expected, level, completeness, loss_failures)
        losses.append(loss)
        above, estimates_above = level, estimates
    if expected.total is not None:
        check_paths(spine, losses, expected.total, loss_failures)

    microdata = failures["microdata_tabulate_to_estimates"]
    with unusable_files_fail(microdata):
        if universe == UNITS:
            if facilities is None:
                raise UnusableRunFile("the number of facilities of each block is not known")
            check_units(release, expected.schema, spine, estimates, facilities, microdata)
        else:
            check_persons(release, expected.schema, spine, estimates, microdata)


@contextmanager
def unusable_files_fail(*checks: Failures) -> Iterator[None]:
    """Record a file that cannot be used as a failure of these checks.

    Arrow's and the system's own messages stay unsaid: they may quote contents and paths.
    """
    try:
        yield
    except UnusableRunFile as error:
        for failures in checks:
            failures.add(str(error))
    except (pa.ArrowException, OSError) as error:
        for failures in checks:
            failures.add(f"a file cannot be read ({type(error).__name__})")
