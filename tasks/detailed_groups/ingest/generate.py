"""Fictional input in the production layout, for tests and benchmarks: specification and persons.

Everything is drawn from a seeded generator; no real person is in it. The specification has the
shape of a real one: major groups that are not tabulated, regional groups of many codes, detailed
groups of a few, each alone and in any combination, some of them for the nation and states only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....geography.hierarchy import digits
from ....validation.rules import NO_CODE
from ...tables.layouts import delimited_text
from ..workload.parameters import CONFIG_FILE, thresholds_key
from ..workload.regions import OUTSIDE, PUERTO_RICO, REGION_TYPES
from ..workload.specification import CODES_FILE, ETHNICITY_FILE, LEVELS, MAPPING_FILE, RACE_FILE
from ..workload.tabulations import HOUSEHOLD_TABULATIONS, SEX_BY_AGE, Tabulation
from .inputs import GEOGRAPHY_FILE, PERSONS_FILE

BLANK_CODE = "    "
"""Value of QRACE2 to QRACE8 in the census tables where a person has fewer codes."""

PERSONS_AT_A_TIME = 1 << 18
BLOCKS_PER_TRACT = 8
_TRACTS_PER_COUNTY = 60
_SHARES_OF_N_CODES = (0.86, 0.10, 0.03, 0.005, 0.002, 0.001, 0.001, 0.001)
_IN_PLACE, _IN_AIANNH = 0.6, 0.04
_ETHNICITY_SHARE = 0.2
_DETAILED_ONLY = 5
"""Number of detailed groups among which one is detailed-only, and another only alone."""


def generate_specification(
    folder: Path,
    *,
    regional: int = 6,
    detailed: int = 40,
    ethnicities: int = 5,
    states: Sequence[str] = ("44",),
    run_pr: bool = False,
    households: bool = False,
) -> None:
    """Write the four specification files and `config.json` into a folder.

    Args:
        regional: number of regional race groups, each within one of two major groups.
        detailed: number of detailed race groups, each of two codes and within a regional group.
        ethnicities: number of detailed ethnicity groups, of one code each.
        states: states of the United States pass.
        run_pr: whether Puerto Rico is tabulated too.
        households: whether the configuration has the keys of households too.
    """
    codes: list[tuple[str, str]] = []
    races: list[tuple[str, ...]] = []
    pairs: list[tuple[str, str]] = []
    own_codes = _group_codes(codes, regional, detailed)

    def add(name: str, level: int, members: Sequence[str], only: Sequence[str]) -> None:
        """A group alone and in any combination; `only` names the detailed-only ones."""
        for kind, alone, title in (
            ("alone", "True", f"{name} alone"),
            ("combination", "False", f"{name} alone or in any combination"),
        ):
            iteration = f"{1001 + len(races)}"
            flags = ("Null", "Null") if level == 0 else (str(kind in only), "False")
            races.append((iteration, title, str(level), alone, *flags))
            pairs.extend((iteration, code) for code in members)

    majors = [[own for group in own_codes[half::2] for own in sum(group, [])] for half in (0, 1)]
    for number, members in enumerate(majors):
        add(f"Major group {number}", 0, members, ())
    only: tuple[str, ...]
    for number, group in enumerate(own_codes):
        only = ("alone", "combination") if number == regional - 1 and regional > 2 else ()
        add(f"Region {number}", 1, sum(group, []), only)
    which = (group for groups in own_codes for group in groups[1:])
    for number, members in enumerate(which):
        place = number % _DETAILED_ONLY
        only = ("alone", "combination") if place == 1 else ("alone",) if place == 3 else ()
        add(f"Group {number}", 2, members, only)

    hispanic = [f"{9000 + i}" for i in range(ethnicities)]
    groups, of_groups = _ethnicity_groups(1001 + len(races), [code for code, _ in codes], hispanic)
    codes += [(code, f"Ethnicity code {code}") for code in hispanic]
    pairs += of_groups
    folder.mkdir(parents=True, exist_ok=True)
    _write_rows(folder / CODES_FILE, ("RACE_ETH_CODE", "RACE_ETH_NAME"), codes)
    header = ("ITERATION_CODE", "ITERATION_NAME", "LEVEL", "ALONE", "DETAILED_ONLY", "COARSE_ONLY")
    _write_rows(folder / RACE_FILE, header, races)
    _write_rows(folder / ETHNICITY_FILE, (*header[:3], *header[4:]), groups)
    _write_rows(folder / MAPPING_FILE, ("ITERATION_CODE", "RACE_ETH_CODE"), pairs)
    config = _config(states=states, run_pr=run_pr)
    for keys in HOUSEHOLD_TABULATIONS.values() if households else ():
        config |= {**_budgets(keys), keys.thresholds: _thresholds(keys)}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2), encoding="utf-8")


def _ethnicity_groups(
    first: int, race_codes: Sequence[str], hispanic: Sequence[str]
) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """The rows of the ethnicity groups, numbered from `first`, and the codes of each."""
    groups: list[tuple[str, ...]] = [
        (str(first), "Not Hispanic", "0", "Null", "Null"),
        (str(first + 1), "Latin American", "1", "False", "False"),
    ]
    pairs = [(str(first), code) for code in race_codes]
    pairs += [(str(first + 1), code) for code in hispanic]
    for number, code in enumerate(hispanic):
        iteration = str(first + 2 + number)
        groups.append((iteration, f"Ethnicity {number}", "2", str(number == 1), "False"))
        pairs.append((iteration, code))
    return groups, pairs


def generate_persons(
    folder: Path,
    codes: Sequence[str],
    *,
    persons: int,
    tracts: int,
    states: Sequence[str] = ("44",),
    seed: int = 1,
) -> None:
    """Write `person-records.txt` and `GRF-C.txt` into a folder, some persons at a time.

    `codes` are the race and ethnicity codes; low positions are far more frequent. Tracts are shared
    by the states in turn, each with `BLOCKS_PER_TRACT` blocks; some blocks are outside every place,
    most outside every AIANNH area, and one place and one area cross tracts.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = _blocks(tracts, states)
    (folder / GEOGRAPHY_FILE).write_bytes(delimited_text(blocks))
    names = pa.array([*codes, NO_CODE])
    with (folder / PERSONS_FILE).open("wb") as file:
        for start in range(0, persons, PERSONS_AT_A_TIME):
            columns = _persons(random, min(PERSONS_AT_A_TIME, persons - start), blocks, names)
            text = delimited_text(columns)
            file.write(text if start == 0 else text.split(b"\n", 1)[1])


def _group_codes(
    codes: list[tuple[str, str]], regional: int, detailed: int
) -> list[list[list[str]]]:
    """Codes of each regional group: one of its own, then two for each of its detailed groups."""
    groups: list[list[list[str]]] = [[] for _ in range(regional)]
    number = 1000
    for position in range(regional + detailed):
        size = 1 if position < regional else 2
        own = [str(number + i) for i in range(size)]
        number += size
        codes.extend((code, f"Race code {code}") for code in own)
        groups[position % regional].append(own)
    return groups


def _config(*, states: Sequence[str], run_pr: bool) -> dict[str, object]:
    return {
        "max_race_codes": 8,
        **_budgets(SEX_BY_AGE),
        "privacy_budget_p_stage_1_fraction": 0.1,
        SEX_BY_AGE.thresholds: _thresholds(SEX_BY_AGE),
        "zero_suppression_chance": 0.99,
        "allow_negative_counts": True,
        "run_us": True,
        "run_pr": run_pr,
        "reader": "csv",
        "state_filter_us": [state for state in states if state != PUERTO_RICO],
        "privacy_defn": "zcdp",
    }


_LEVELS = [(name, level) for name in REGION_TYPES for level in LEVELS]


def _budgets(keys: Tabulation) -> dict[str, float]:
    return {keys.budget(*level): 0 if level == ("AIANNH", 1) else level[1] / 4 for level in _LEVELS}


def _thresholds(keys: Tabulation) -> dict[str, list[int]]:
    return {thresholds_key(*level): [50, 200, 1000][: keys.n_thresholds] for level in _LEVELS}


def give_detailed_codes(persons: Path, codes: Sequence[str], *, seed: int = 1) -> None:
    """Replace the race and ethnicity codes in a Parquet table of persons by a specification's;
    persons' groups are drawn anew, as in `generate_persons`.
    """
    table, random = pq.read_table(persons), np.random.default_rng(seed)
    drawn = _code_columns(random, table.num_rows, pa.array([*codes, BLANK_CODE]))
    for name, column in drawn.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, persons)


def _blocks(tracts: int, states: Sequence[str]) -> dict[str, pa.Array]:
    tract = np.repeat(np.arange(tracts), BLOCKS_PER_TRACT)
    within = np.tile(np.arange(BLOCKS_PER_TRACT), tracts)
    number = tract // len(states)
    position = np.arange(tract.size) / tract.size * 7 % 1
    place = 10000 + tract // 3
    return {
        "TABBLKST": pa.array(np.array(states)[tract % len(states)]),
        "TABBLKCOU": digits(1 + 2 * (number // _TRACTS_PER_COUNTY), 3),
        "TABTRACTCE": digits(100 * (1 + number % _TRACTS_PER_COUNTY), 6),
        "TABBLK": digits(1000 + within, 4),
        "PLACEFP": digits(np.where(position < _IN_PLACE, place, int(OUTSIDE["PLACE"])), 5),
        "AIANNHCE": digits(
            np.where(position > 1 - _IN_AIANNH, 10 + tract // 9, int(OUTSIDE["AIANNH"])), 4
        ),
    }


def _persons(
    random: np.random.Generator, n: int, blocks: dict[str, pa.Array], names: pa.Array
) -> dict[str, pa.Array]:
    block = random.integers(len(blocks["TABBLK"]), size=n)
    codes = _code_columns(random, n, names)
    in_block = {
        name: blocks[name].take(pa.array(block))
        for name in ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")
    }
    return {
        "QAGE": digits(np.minimum(random.gamma(2.2, 18, n).astype(np.int64), 115), 3),
        "QSEX": digits(random.integers(1, 3, n), 1),
        "HOUSEHOLDER": pa.array(["False", "True"]).take(pa.array(random.integers(2, size=n))),
        **in_block,
        "CENRACE": digits(random.integers(1, 64, n), 2),
        **codes,
    }


def _code_columns(random: np.random.Generator, n: int, names: pa.Array) -> dict[str, pa.Array]:
    """QRACE1 to QRACE8 and QSPAN of n persons; the last of `names` denotes no code."""
    n_names = len(names) - 1
    n_codes = random.choice(8, n, p=_SHARES_OF_N_CODES) + 1
    races = np.minimum((n_names ** random.random((n, 8))).astype(np.int64) - 1, n_names - 1)
    races[np.arange(8) >= n_codes[:, None]] = n_names
    ethnicity = np.where(
        random.random(n) < _ETHNICITY_SHARE,
        n_names - 1 - random.integers(min(n_names, 8), size=n),
        0,
    )
    columns = {f"QRACE{i + 1}": names.take(pa.array(races[:, i])) for i in range(8)}
    return {**columns, "QSPAN": names.take(pa.array(ethnicity))}


def _write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = ["|".join(row) for row in (header, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
