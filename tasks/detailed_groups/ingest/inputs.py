"""The input of a run: persons and geography, in one of two layouts, checked and summed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ....validation.expectations import readable
from ...ledger.recognition import RecordColumn
from ...tables.findings import Finding, InputCheck, UnreadableInput
from ...tables.value_tallies import ValueTally
from ..workload.parameters import MechanismParameters
from ..workload.regions import areas_of
from ..workload.specification import Specification, code_positions
from .census_tables import CensusReader, HouseholdReader
from .counts import CountedPersons, GroupsReader, Identity, PersonTally
from .production_files import ProductionReader


@dataclass(frozen=True)
class AcceptedGroups:
    """The input of a run.

    `blocks` has block_geocode, TABBLKST, TABBLKCOU, TABTRACTCE, PLACEFP and AIANNHCE of the blocks
    of the states that are tabulated; `invariants`, row by row, their housing units and facilities
    where the layout has them. `persons`, `identity` and `raw`, the raw columns that were read by
    block, are confidential.
    """

    blocks: pd.DataFrame
    invariants: pd.DataFrame | None
    persons: CountedPersons
    identity: Identity
    raw: Sequence[RecordColumn]


def check_groups_input(
    tables: Mapping[str, str],
    specification: Specification,
    parameters: MechanismParameters,
    scratch: Path | None = None,
    *,
    of_households: bool = False,
) -> InputCheck[AcceptedGroups]:
    """Read the tables, evaluate every rule and sum the persons, or the householders.

    `tables` maps `data` to a folder in the production layout, or `persons`, `units` and
    `geography` to the census tables. The rules are counted by vectorised code and, as a public
    pass or fail, evaluated by Great Expectations; the input is accepted only if both find nothing.
    `scratch` is the folder for temporary files of confidential rows of census tables. Householders
    are counted `of_households` by their household's cell, which only census tables have.
    """
    evidence = ValueTally()
    reader = HouseholdReader if of_households else _reader_of(tables)
    read = reader(tables, _states(parameters), code_positions(specification), evidence, scratch)
    try:
        blocks, invariants = read.geography()
        missing = _missing_passes(read, "geography", set(blocks["TABBLKST"]), parameters)
        if missing:
            return _with_findings(_judged(read, lambda: None), missing)
        area_of_block, _ = areas_of(blocks)
        tally = PersonTally(area_of_block, parameters.max_race_codes)
        states_seen: set[str] = set()
        state_of_block = blocks["TABBLKST"].to_numpy()
        for batch in read.persons():
            if batch.block.size:
                tally.add(batch)
                states_seen |= set(state_of_block[batch.block])
    except UnreadableInput as error:
        files = evidence.files.listed
        return InputCheck((readable("files", False),), (error.finding,), None, files)
    evidence.files.add_formats(file for files in read.files.values() for file in files)
    missing = read.findings or _missing_passes(read, "persons", states_seen, parameters)
    if missing:
        check = _with_findings(_judged(read, lambda: None), missing)
    else:
        check = _judged(
            read, lambda: AcceptedGroups(blocks, invariants, *tally.finish(), read.raw())
        )
    return replace(check, outcomes=(readable("files", True), *check.outcomes))


def read_blocks(
    tables: Mapping[str, str], parameters: MechanismParameters
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The blocks of the states that are tabulated, and their invariants where units are given.

    For `tables` see `check_groups_input`; no rule is evaluated. Raises UnreadableInput for a
    file that cannot be read.
    """
    return _reader_of(tables)(tables, _states(parameters), {}, ValueTally()).geography()


def _reader_of(tables: Mapping[str, str]) -> type[ProductionReader | CensusReader]:
    return ProductionReader if "data" in tables else CensusReader


def _judged(
    read: ProductionReader | CensusReader, build: Callable[[], AcceptedGroups | None]
) -> InputCheck[AcceptedGroups]:
    """The check of tables that have been read, by the rules that there is evidence for."""
    suites = read.evidence.suites
    rules = [r for r in read.rules() if suites.get(r.suite, {}).get(r.evidence)]
    return read.evidence.checked(rules, read.files, (), build)


def _with_findings(
    check: InputCheck[AcceptedGroups], further: tuple[Finding, ...]
) -> InputCheck[AcceptedGroups]:
    """A check without a result, whose findings are the further ones unless a rule is broken."""
    return replace(check, findings=check.findings or further)


def _states(parameters: MechanismParameters) -> set[str]:
    return {state for name in parameters.passes for state in parameters.states_of(name)}


def _missing_passes(
    read: GroupsReader, table: str, present: set[str], parameters: MechanismParameters
) -> tuple[Finding, ...]:
    """A finding for each pass without a state in a table."""
    return tuple(
        Finding(
            read.files[table][0].name,
            "TABBLKST",
            f"no row is in the states of the pass run_{name}",
            f"set run_{name} to false, or give the rows of its states",
        )
        for name in parameters.passes
        if not present & set(parameters.states_of(name))
    )
