"""The plan of a run, recomputed from its settings, its census and the spines' files.

One changed record leaves a cell and enters another. It moves the answers to any query by at most 2
in the L1 norm and in the squared L2 norm, reached where the record moves to another area. One
person's change may affect several records of a table, up to the numbers that the census declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..plan import GAUSSIAN, LAPLACE, REPORT_DELTA, Guarantee, Measure, Plan, check_plan, read_plan
from ..run_files import parse_fraction, read_table
from .declaration import TOTAL, Declaration, wrap_in_list

ACCOUNTING = "privacy_accounting"
ANSWERS_MOVED = 2
"""Answers to one query of a geolevel that change by 1 as a record moves to another area: one of the
area that it leaves, and one of the area that it joins. A record that stays changes no more."""


def check_privacy(root: Path, failures: Failures) -> None:
    """Check, before noise is drawn, that the plan follows from settings, census and spines.

    Raises UnusableRunFile for a plan of another form, or files that cannot be read.
    """
    declaration, plan = Declaration.read(root), read_plan(root)
    for universe in declaration.universes:
        own, budget = declaration.settings["budget"][universe], declaration.budget(universe)
        shares_by_name = {"geolevels": own["geolevels"], **budget.queries}
        for name, shares in shares_by_name.items():
            if shares and sum(map(Fraction, shares.values())) != 1:
                failures.add(f"the shares of {name} of {universe} do not add to 1")
    guarantees = tuple(_guarantees(declaration, plan, failures))
    expected = Plan(
        "topdown",
        tuple(_measures(declaration)),
        guarantees,
        guarantees,
        tuple(exact_subjects(declaration)),
        frozenset(_deciding_files(declaration)),
        tuple(f"confidential/histograms/{n}.parquet" for n in declaration.universes),
    )
    check_plan(root, expected, declaration.settings, failures)


def _deciding_files(declaration: Declaration) -> Iterator[str]:
    """Names of the public files that decide the draws."""
    yield from ("settings.toml", "spine/geography.parquet", "spine/invariants.parquet")
    yield "spine/state_totals.json"
    for name in declaration.universes:
        for file in ("geounits.parquet", "blocks.parquet", "spine.arrow", "shards.parquet"):
            yield f"spine/{name}/{file}"
    held = [own for name in declaration.universes for own in declaration.declared(name, "held_to")]
    if any("release" in own for own in held):
        yield "spine/held.parquet"


def _measures(declaration: Declaration) -> Iterator[Measure]:
    """Every query of every geolevel, once for each distinct budget share of the geounits."""
    for universe in declaration.universes:
        cells, budget = declaration.cells(universe), declaration.budget(universe)
        file = declaration.root / "spine" / universe / "geounits.parquet"
        table = read_table(file, ["geolevel", "plb_share"])
        for level in budget.levels:
            own = table.filter(pc.equal(table["geolevel"], level))
            counts = pc.value_counts(own["plb_share"].cast(pa.string())).to_pylist()
            for query, query_share in budget.queries[level].items():
                n_rows = cells.n_rows(query)
                for row in counts:
                    share = parse_fraction(row["values"]) * query_share
                    if share:
                        yield Measure(
                            universe,
                            level,
                            query,
                            areas=row["counts"],
                            answers=n_rows * row["counts"],
                            share=share,
                            loss=None if budget.total is None else budget.total * share,
                            moved=ANSWERS_MOVED,
                            mechanism=LAPLACE if budget.is_pure else GAUSSIAN,
                            part=f"{level}/{query}",
                        )


def _guarantees(declaration: Declaration, plan: Plan, failures: Failures) -> Iterator[Guarantee]:
    """Compute the guarantee of each universe with the plan's factors for several records.

    The factors must equal those of `least_factors`, or be at least as large where other
    declarations may add to these.
    """
    planned = {own.universe: own for own in plan.guarantees}
    for universe in declaration.universes:
        budget, own = declaration.budget(universe), planned.get(universe)
        if budget.total is None or own is None:
            continue
        guarantee = Guarantee(
            universe,
            own.change,
            budget.total,
            LAPLACE if budget.is_pure else GAUSSIAN,
            bounded_factor=own.bounded_factor,
            stated_factor=own.stated_factor,
            epsilon_delta=REPORT_DELTA if budget.delta is None else budget.delta,
        )
        factors = guarantee.charged_rho / guarantee.rho, guarantee.stated_rho / guarantee.rho
        least, is_exact = least_factors(declaration, universe, is_pure=budget.is_pure)
        if factors != least and (is_exact or factors[0] < least[0] or factors[1] < least[1]):
            failures.add(f"the guarantee of {universe} does not cover exactly one declared change")
        yield guarantee


def least_factors(
    declaration: Declaration, universe: str, *, is_pure: bool
) -> tuple[tuple[Fraction, Fraction], bool]:
    """Least factors for several records, from a universe's declaration of its own tables.

    Returns:
        Rho of the largest charged change and of the largest change, each over the rho of one
        record; and True if no other declaration may add to them.
    """
    own, census = declaration.universe(universe), declaration.census
    persons = census.get("contributions", {})
    most = own.get("largest_count", 1)
    if own["table"] in persons:
        most = persons[own["table"]]["records_per_person"]
    numbers = [(most, False, True)]
    occupants, steps = own.get("occupants", {}).values(), wrap_in_list(own.get("through") or [])
    numbers += [
        (2 * one.get("records_per_key", 1), False, True)
        for one in occupants
        if (one["table"], one["column"]) != (own["table"], one["key"])
    ]
    records: int | None = 1
    for step in steps:
        further = step.get("records_per_row")
        records = None if records is None or further is None else records * further
        numbers += [] if records is None else [(records, False, True)]
    computed = own.get("computed_from", {})
    for one in computed.values():
        if not steps and not occupants:
            is_charged = one.get("charged", True)
            numbers.append((one["records"], one.get("opposite", False), is_charged))

    def factor(number: int, opposite: bool) -> int:
        half = number // 2 if opposite and not is_pure else 0
        return half**2 + (number - half) ** 2

    charged = max(factor(number, opposite) for number, opposite, is_own in numbers if is_own)
    stated = max(factor(number, opposite) for number, opposite, _ in numbers)
    other_universes = [one for name, one in census["universes"].items() if name != universe]
    may_add = persons or census.get("members") or occupants or (computed and steps)
    may_add = may_add or any("records_per_row" in step for step in steps)
    may_add = may_add or any(
        one.get("computed_from") and (steps or one["table"] == own["table"])
        for one in other_universes
    )
    return (Fraction(charged), Fraction(stated)), not may_add


def exact_subjects(declaration: Declaration) -> Iterator[str]:
    """Subjects of everything published without noise: sentences of the census, and every fact that
    no sentence states."""
    stated: set[str] = set()
    for sentence in declaration.census.get("certificate", ()):
        if sentence["about"] == "exact" and sentence["universe"] in declaration.universes:
            available = {*declaration.cells(sentence["universe"]).labels}
            available |= _held_invariants(declaration, sentence["universe"])
            if available.issuperset(sentence.get("holds", ())):
                if available.isdisjoint(sentence.get("lacks", ())):
                    stated |= {*sentence.get("tells", ())}
                    yield sentence.get("name", "")
    answers: dict[str, str] = {}
    for key, subject in _exact_answers(declaration):
        answers.setdefault(key, subject)
    facts = [*answers.items(), *_further_facts(declaration), ("areas", "areas")]
    yield from (subject for key, subject in facts if key not in stated)


def _held_invariants(declaration: Declaration, universe: str) -> set[str]:
    last, levels = declaration.geolevels[-1], declaration.budget(universe).levels
    return {
        _name(own, f"{own.get('query', TOTAL)} at {own['geolevel']}")
        for own in declaration.declared(universe, "invariants")
        if own["geolevel"] == last
        or (not declaration.areas_alone and ("above" not in own or own["geolevel"] in levels))
    }


def _exact_answers(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Answers about records published exactly, as `total of persons at State`, and subjects."""
    last, census = declaration.geolevels[-1], declaration.census["universes"]
    for universe in declaration.universes:
        for own in declaration.declared(universe, "invariants"):
            query, geolevel = own.get("query", TOTAL), own["geolevel"]
            if geolevel == last or not declaration.areas_alone:
                name = _name(own, f"{query} at {geolevel}")
                yield f"{query} of {universe} at {geolevel}", f"{universe}: {name}"
    # Spines need the addresses, for every choice of universes.
    for universe in census if declaration.has_digits else declaration.universes:
        for own in declaration.declared(universe, "bounds"):
            key = f"{own.get('by', TOTAL)} of {own['per']} at {last}"
            yield key, f"{universe}: {key}"
        further = census[universe].get("microdata", {}).get("further")
        if further is not None and universe in declaration.universes:
            key = f"{TOTAL} of {further['universe']} at {last}"
            yield key, f"{universe}: {key}"


def _further_facts(declaration: Declaration) -> Iterator[tuple[str, str]]:
    """Facts about every accepted input: a key, empty if no sentence states it, and a subject."""
    for universe in declaration.universes:
        for own in declaration.declared(universe, "bounds"):
            name = _name(own, f"{own.get('query', TOTAL)} per {own['per']}")
            yield f"bound {name} of {universe} per {own['per']}", f"{universe}: {name}"
        names = [
            _name(own, f"{own.get('query', TOTAL)} of {own.get('release', own.get('universe'))}")
            for own in declaration.declared(universe, "held_to")
        ]
        names += [own["name"] for own in declaration.declared(universe, "relations")]
        if declaration.settings["run"]["coherent"]:
            agree = declaration.declared(universe, "agree")
            names += [own["name"] for own in agree if own.get("kind", "presence") != "presence"]
        yield from (("", f"{universe}: {name}") for name in [*names, *declaration.zeros(universe)])


def _name(own: Mapping[str, Any], otherwise: str) -> str:
    return own.get("name", otherwise)
