"""Conditions on the counts of every geounit: invariants, bounds, structural zeros, relations,
answers of other releases, agreements of universes.

They follow from the declaration of the census and from public files: `spine/invariants.parquet`,
`state_totals.json`, `geography.parquet`, `held.parquet`, and the estimates of earlier universes.
The files of constraints must say the same, and the estimates of every geolevel obey.

An invariant holds in units, the geounits of a declared geolevel, which a spine may divide. A
geounit that is made up of whole units is in files under its own geocode; for a unit divided among
siblings, the unit's path appears once, at the first geolevel where none of its parts reaches beyond
it. A unit that is `listed` appears at its own geolevel alone, under its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ..outcome import Failures
from ..run_files import UnusableRunFile, positions, read_json
from .declaration import TOTAL, Cells, Declaration, PublicAreas, incidence, no_counts, wrap_in_list
from .measurements import batches_of_level, count_unknown, lengths_of_lists
from .spine import RunSpine, SpineLevel, SpinePart

COMPLETE = "constraints_are_complete"
EXACT, BOUNDS, ZEROS = "equality_constraints_hold", "bounds_hold", "structural_zeros_hold"
HELD, RELATIONS = "held_answers_agree", "relations_hold"
AGREE: Mapping[str, str] = {
    "presence": "released_universes_agree",
    "householders": "householders_agree",
    "sizes": "sizes_agree",
    "accompanied": "nobody_is_unaccompanied",
}
"""Checks of agreements, by their kinds."""
AREAS_AT_ONCE = 1 << 14

CountsOf = Callable[[str, np.ndarray], sparse.csr_array]
"""Counts `(n, n_cells)` of a universe in some of the areas of the spine, by their numbers."""


@dataclass(frozen=True, eq=False)
class Units:
    """Where an exact answer holds: `number` (n_areas,) of each area's unit, and the paths of all.

    above : of units that are listed at their own geolevel, that geolevel and the name of the sums
        above it; None where a spine decides.
    """

    number: np.ndarray
    path: pa.StringArray
    answers: sparse.csr_array
    above: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition on the answers that `counted` (n_cells, n_rows) gives in every geounit.

    name, sign : in files.
    check : the check that estimates fail which break it.
    limits : limits of some areas, by their numbers, `(n, n_rows)`, whose sums apply to a geounit.
    """

    name: str
    check: str
    sign: str
    counted: sparse.csr_array
    limits: Callable[[np.ndarray], sparse.csr_array]
    units: Units | None = None

    def breaks(self, answers: sparse.csr_array, due: sparse.csr_array) -> np.ndarray:
        """Mask `(n,)` of the rows that break it."""
        off = sparse.csr_array(answers - due)
        wrong = {"=": off.data != 0, ">=": off.data < 0, "<=": off.data > 0}[self.sign]
        row = np.repeat(np.arange(off.shape[0]), np.diff(off.indptr))
        return np.bincount(row[wrong], minlength=off.shape[0]) > 0


def conditions_of(
    declaration: Declaration, universe: str, spine: RunSpine, counts_of: CountsOf
) -> list[Condition]:
    """Conditions on the estimates of a universe; `counts_of` has the estimates of earlier
    universes."""
    made = _Conditions(declaration, universe, spine, counts_of)
    every = (made.bounds, made.invariants, made.relations, made.held, made.agreements, made.zeros)
    return [condition for some in every for condition in some()]


@dataclass(frozen=True)
class _Conditions:
    """Makes the conditions of a universe, kind by kind."""

    declaration: Declaration
    universe: str
    spine: RunSpine
    counts_of: CountsOf

    @cached_property
    def cells(self) -> Cells:
        return self.declaration.cells(self.universe)

    @cached_property
    def areas(self) -> PublicAreas:
        return PublicAreas(self.declaration, self.spine)

    def declared(self, key: str) -> list[Mapping[str, Any]]:
        return self.declaration.declared(self.universe, key)

    def zeros(self) -> Iterator[Condition]:
        for name, mask in self.declaration.zeros(self.universe).items():
            column = sparse.csr_array(mask[:, None].astype(np.int64))
            yield Condition(f"{name}_con", ZEROS, "=", column, lambda at: no_counts(at.size, 1))

    def invariants(self) -> Iterator[Condition]:
        last = self.declaration.geolevels[-1]
        totals = read_json(self.declaration.root, Path("spine/state_totals.json"))
        for own in self.declared("invariants"):
            query, geolevel = own.get("query", TOTAL), own["geolevel"]
            name, n_rows = own.get("name", f"{query} at {geolevel}"), self.cells.n_rows(query)
            counted = self.cells.counted(query)
            if self.declaration.has_digits and geolevel == last:
                exact = sparse.csr_array(self.areas.numbers(["housing_units"]))
                yield Condition(f"{name}_con", EXACT, "=", counted, exact.__getitem__)
                continue
            if self.declaration.has_digits:
                is_there = geolevel in [level.name for level in self.spine.levels]
                if self.declaration.areas_alone or not totals or not is_there:
                    continue
                answers = {path: [total] for path, total in totals.items()}
            else:
                answers = totals[self.universe][name]
            number, path = self.areas.units(geolevel)
            due = np.array([answers[text] for text in path.to_pylist()], dtype=np.int64)
            units = Units(number, path, sparse.csr_array(due.reshape(-1, n_rows)))
            if "above" in own:
                above = geolevel, f"{own['above']}_con"
                units = Units(units.number, units.path, units.answers, above)
            first = np.full(self.spine.n_areas, -1)
            first[np.unique(number, return_index=True)[1]] = np.unique(number)
            at_first = sparse.csr_array(incidence(first, len(path)) @ units.answers)
            yield Condition(f"{name}_con", EXACT, "=", counted, at_first.__getitem__, units)

    def bounds(self) -> Iterator[Condition]:
        declared = self.declared("bounds")
        names = [own.get("name") for own in declared]
        together: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            stem = name if name is not None and names.count(name) > 1 else f"bound_{number}"
            together.setdefault(stem, []).append(number)
        for stem, numbers in together.items():
            bounds = {number: declared[number] for number in numbers}
            query = bounds[numbers[0]].get("query", TOTAL)
            is_told = query in (TOTAL, "detailed") or all(map(self.cells.tells, query.split(" * ")))
            inside = np.zeros(self.cells.n, dtype=bool)
            for own in bounds.values():
                inside |= self.cells.where(own.get("where", {})) if is_told else True
            counted = self.cells.counted(query if is_told else TOTAL, inside)
            multiples = {
                number: self._multiples(number, own, is_told) for number, own in bounds.items()
            }
            for side, ending, sign in (("at_least", "lb", ">="), ("at_most", "ub", "<=")):
                if side in bounds[numbers[0]]:
                    limits = sparse.csr_array(
                        sum(own[side] * multiples[number] for number, own in bounds.items())
                    )
                    name = f"{stem if is_told else TOTAL}_{ending}_con"
                    yield Condition(name, BOUNDS, sign, counted, limits.__getitem__)

    def _multiples(self, number: int, own: Mapping[str, Any], is_told: bool) -> sparse.csr_array:
        """Records (n_areas, n_rows) that a bound multiplies, of the answers that it is on."""
        found = self.areas.multiples(self.universe, number)
        if not self.declaration.has_digits:
            return found
        levels = self.declaration.all_cells(self.universe).grouping(own["query"])
        is_on = sparse.csr_array(levels.chosen(own["where"][own["query"]])[None, :] * 1)
        found = found @ is_on if found.shape[1] == 1 else found.multiply(is_on)
        return found if is_told else sparse.csr_array(found.sum(axis=1)[:, None])

    def relations(self) -> Iterator[Condition]:
        for own in self.declared("relations"):
            weights: dict[str, np.ndarray] = {}
            for sign, terms in ((1, own["left"]), (-1, own.get("right", ()))):
                for term in terms:
                    name = term.get("universe", self.universe)
                    inside = self.declaration.cells(name).where(term.get("where", {}))
                    weights[name] = weights.get(name, 0) + sign * term.get("times", 1) * inside
            counted = sparse.csr_array(weights.pop(self.universe)[:, None])
            yield Condition(
                f"{own['name']}_con", RELATIONS, own["sign"], counted, self._others(weights, -1)
            )

    def _others(
        self, matrices: Mapping[str, np.ndarray | sparse.csr_array], sign: int = 1
    ) -> Callable[[np.ndarray], sparse.csr_array]:
        """Sums over other universes of their counts times a matrix (n_cells, n_rows) or weights."""
        found = {
            name: sparse.csr_array(one if one.ndim == 2 else one[:, None])
            for name, one in matrices.items()
        }

        def limits(areas: np.ndarray) -> sparse.csr_array:
            sums = no_counts(areas.size, next(iter(found.values())).shape[1] if found else 1)
            for name, matrix in found.items():
                sums = sums + sign * (self.counts_of(name, areas) @ matrix)
            return sparse.csr_array(sums)

        return limits

    def held(self) -> Iterator[Condition]:
        for own in self.declared("held_to"):
            query, where = own.get("query", TOTAL), own.get("where", {})
            name = own.get("name", f"{query} of {own.get('release', own.get('universe'))}")
            inside, n_rows = self.cells.where(where), self.cells.n_rows(query)
            counted = self.cells.counted(query, inside)
            if "release" in own:
                limits = self.areas.held(self.universe, name, n_rows).__getitem__
            else:
                other = self.declaration.cells(own["universe"])
                row = self.cells.counted_of(other, query, own.get("of", where), {})
                limits = self._others({own["universe"]: incidence(row, n_rows)})
            yield Condition(f"{name}_con", HELD, "=", counted, limits)

    def agreements(self) -> Iterator[Condition]:
        declared = self.declared("agree") if self.declaration.settings["run"]["coherent"] else []
        kinds = {own.get("kind", "presence"): own for own in declared}
        by_row: Callable[[np.ndarray], sparse.csr_array] | None = None
        if "householders" in kinds:
            own = kinds["householders"]
            query = own.get("query", TOTAL)
            row = self.cells.counted_of(
                self.declaration.cells(own["universe"]),
                query,
                own.get("of", {}),
                own.get("called", {}),
            )
            by_row = self._others({own["universe"]: incidence(row, self.cells.n_rows(query))})
            yield from self._agreement(own, by_row, by_row)
        if "sizes" in kinds:
            own = kinds["sizes"]
            other = self.declaration.cells(own["universe"])
            size = other.grouping(own["size"])
            people = [wrap_in_list(own["people"].get(label, 0)) for label in size.labels]
            ends = np.array([(numbers[0], numbers[-1]) for numbers in people])
            level = np.array(size.groups)[other.levels(size.attribute)]
            of_cell = ends[level] * other.where(own.get("of", {}))[:, None]
            least, most = (self._others({own["universe"]: of_cell[:, i]}) for i in (0, 1))

            def low(areas: np.ndarray) -> sparse.csr_array:
                found = least(areas)
                if by_row is None:
                    return found
                return found.maximum(sparse.csr_array(by_row(areas).sum(axis=1)[:, None]))

            yield from self._agreement(own, low, most)
        for own in declared:
            if own.get("kind", "presence") == "presence":
                yield from self._presence(own)

    def _agreement(
        self,
        own: Mapping[str, Any],
        low: Callable[[np.ndarray], sparse.csr_array],
        high: Callable[[np.ndarray], sparse.csr_array],
    ) -> Iterator[Condition]:
        """An agreement between limits, which follow from earlier universes."""
        query, check = own.get("query", TOTAL), AGREE[own.get("kind", "presence")]
        counted = self.cells.counted(query, self.cells.where(own.get("where", {})))
        yield Condition(f"{own['name']}_lb_con", check, ">=", counted, low)
        yield Condition(f"{own['name']}_ub_con", check, "<=", counted, high)

    def _presence(self, own: Mapping[str, Any]) -> Iterator[Condition]:
        """At most one for each of the others, none without; the others of the query are free below
        the exact total of the area.
        """
        query = own.get("query", TOTAL)
        rows = self.cells.rows(query)[self.cells.where(own.get("where", {}))]
        agrees = np.isin(np.arange(self.cells.n_rows(query)), rows)
        others = self._others(
            {own["universe"]: self.declaration.cells(own["universe"]).where(own.get("of", {})) * 1}
        )
        total = next(one.limits for one in self.invariants())

        def low(areas: np.ndarray) -> sparse.csr_array:
            least = -(-others(areas).toarray() // own["at_most"])
            return sparse.csr_array(least * agrees)

        def high(areas: np.ndarray) -> sparse.csr_array:
            every = total(areas).toarray()
            return sparse.csr_array(
                np.where(agrees, np.minimum(others(areas).toarray(), every), every)
            )

        yield from self._agreement({**own, "where": {}}, low, high)


@dataclass(frozen=True, eq=False)
class LevelUnits:
    """Position of a condition's units at a geolevel: mask `is_whole` (n,) of the geounits that are
    made up of whole ones, the unit (n,) of each other one, and those whose parts appear `here`.
    """

    name: str
    is_whole: np.ndarray
    unit: np.ndarray
    here: np.ndarray


def units_of_levels(spine: RunSpine, condition: Condition) -> list[LevelUnits]:
    """Positions of a condition's units at every geolevel of a spine."""
    units, found = condition.units, []
    if units is None or units.above is not None:
        names = [level.name for level in spine.levels]
        at, above = (None, "") if units is None or units.above is None else units.above
        place = len(names) if at is None else names.index(at)
        for depth, level in enumerate(spine.levels):
            unit = np.full(level.n, -1)
            if units is not None and depth == place:
                unit[spine.ancestors[depth]] = units.number
            name, is_whole = above if above and depth < place else condition.name, depth < place
            here = np.unique(unit[unit >= 0])
            found.append(LevelUnits(name, np.full(level.n, is_whole), unit, here))
        return found
    n_units, n_areas = len(units.path), np.bincount(units.number)
    is_resolved = np.zeros(n_units, dtype=bool)
    for level, ancestor in zip(spine.levels, spine.ancestors, strict=True):
        lowest, highest = np.full(level.n, n_units), np.full(level.n, -1)
        np.minimum.at(lowest, ancestor, units.number)
        np.maximum.at(highest, ancestor, units.number)
        is_within = lowest == highest
        own = np.where(is_within, lowest, 0)
        is_part = is_within & (np.bincount(ancestor, minlength=level.n) < n_areas[own])
        outside = units.number[~is_within[ancestor]]
        is_here = ~is_resolved & (np.bincount(outside, minlength=n_units) == 0)
        unit = np.where(is_part & is_here[own], own, -1)
        found.append(LevelUnits(condition.name, ~is_part, unit, np.unique(unit[unit >= 0])))
        is_resolved |= is_here
    return found


class HeldLevels:
    """Holds the files of constraints and the estimates of a universe to its conditions."""

    def __init__(
        self, declaration: Declaration, universe: str, spine: RunSpine, counts_of: CountsOf
    ):
        self._folder = declaration.root / "measurements" / universe
        self._spine = spine
        self._conditions = [
            (one, units_of_levels(spine, one))
            for one in conditions_of(declaration, universe, spine, counts_of)
        ]

    @property
    def checks(self) -> set[str]:
        """The checks that have something to check."""
        return {COMPLETE, *(one.check for one, _ in self._conditions)}

    def due(self, part: SpinePart) -> list[list[sparse.csr_array]]:
        """By geolevel of a part, the limits of its geounits under every condition, `(n, n_rows)`;
        nothing for the geolevel of the cut, where that is above the part.
        """
        first = 1 if part.depth else 0
        place = [part.geounit_of_area(self._spine, i) for i in range(first, len(part.levels))]
        levels = part.levels[first:]
        due = [[no_counts(x.n, c.counted.shape[1]) for c, _ in self._conditions] for x in levels]
        for start in range(0, part.areas.size, AREAS_AT_ONCE):
            here = slice(start, start + AREAS_AT_ONCE)
            for number, (condition, _) in enumerate(self._conditions):
                limits = condition.limits(part.areas[here])
                for level, geounit, own in zip(levels, place, due, strict=True):
                    own[number] = own[number] + incidence(geounit[here], level.n).T @ limits
        return [[], *due] if part.depth else due

    def check_level(
        self,
        part: SpinePart,
        i: int,
        due: Sequence[sparse.csr_array],
        counts: sparse.csr_array,
        failures: Mapping[str, Failures],
    ) -> None:
        """Hold a geolevel of a part, with estimates `(n, n_cells)`, to the conditions; raises
        UnusableRunFile for a file of another form."""
        level, dues = part.levels[i], []
        for (condition, of_levels), limits in zip(self._conditions, due, strict=True):
            units = of_levels[part.depth + i]
            is_whole, unit = (own[part.geounits[i]] for own in (units.is_whole, units.unit))
            answers = counts @ condition.counted
            failures[condition.check].add_each(
                condition.breaks(answers, limits) & is_whole,
                _name_geounit(level.geocode, f"of {level.name} breaks {condition.name}"),
            )
            codes, values = level.geocode.filter(pa.array(is_whole)), limits[is_whole]
            here = np.unique(unit[unit >= 0])
            if here.size and condition.units is not None:
                exact = condition.units.answers[here]
                place = np.where(unit >= 0, np.searchsorted(here, unit), -1)
                sums = incidence(place, here.size).T @ answers
                paths_here = condition.units.path.take(pa.array(here))
                failures[condition.check].add_each(
                    condition.breaks(sums, exact),
                    _name_geounit(paths_here, f"breaks {condition.name}"),
                )
                if not level.is_part:
                    codes = pa.concat_arrays([codes, paths_here])
                    values = sparse.csr_array(sparse.vstack([values, exact]))
            if len(codes):
                dues.append(_Due(units.name, condition.sign, codes, values))
        _check_files(self._folder / level.name / "constraints", level, dues, failures[COMPLETE])

    def check_strays(self, depth: int, failures: Mapping[str, Failures]) -> None:
        """For a geolevel that is checked in parts, check rows of geounits outside all parts: the
        paths of units alone."""
        level, dues = self._spine.levels[depth], []
        for condition, of_levels in self._conditions:
            own = of_levels[depth]
            if own.here.size and condition.units is not None:
                codes = condition.units.path.take(pa.array(own.here))
                exact = condition.units.answers[own.here]
                dues.append(_Due(own.name, condition.sign, codes, exact))
        folder = self._folder / level.name / "constraints"
        if dues:
            _check_files(folder, level, dues, failures[COMPLETE], strays=True)
        elif n_unknown := count_unknown(folder, level):
            text = f"constraints of {level.name} have a geocode outside the spine"
            failures[COMPLETE].add(text, n_unknown)


class _Due:
    """A constraint that is due once under each of some codes, with values `(n, n_rows)`."""

    def __init__(self, name: str, sign: str, codes: pa.Array, values: sparse.csr_array) -> None:
        self.name, self.sign, self.codes, self.values = name, sign, codes, values
        self.times = np.zeros(len(codes), dtype=np.int32)

    def check_rows(self, rows: pa.RecordBatch, failures: Failures) -> None:
        """Check rows that all have this constraint's name."""
        place = positions(rows.column("geocode"), self.codes)
        failures.add_each(place < 0, f"{self.name} has a geocode that is not due")
        failures.add_each(
            pc.not_equal(rows.column("sign").cast(pa.string()), self.sign),
            f"{self.name} has another sign than {self.sign}",
        )
        values, width = rows.column("value"), self.values.shape[1]
        lengths = lengths_of_lists(values, f"the values of constraint {self.name}")
        if (lengths != width).any():
            raise UnusableRunFile(
                f"a value of constraint {self.name} does not have {width} entries"
            )
        shown = values.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
        is_due = place >= 0
        np.add.at(self.times, place[is_due], 1)
        differs = (shown[is_due] != self.values[place[is_due]].toarray()).any(axis=1)
        failures.add_each(differs, f"{self.name} has other values than declared")


def _check_files(
    folder: Path,
    level: SpineLevel,
    dues: Sequence[_Due],
    failures: Failures,
    *,
    strays: bool = False,
) -> None:
    """Check that every due constraint appears once under each of its codes, without others; for
    `strays`, rows of codes that are no geounits' are read alone.

    Raises UnusableRunFile for values of another form than lists of so many integers.
    """
    by_name = {one.name: one for one in dues}
    columns = ("geocode", "query_name", "sign", "value")
    texts = ["query_name", "sign"]
    for batch in batches_of_level(folder, columns, level, texts, AREAS_AT_ONCE):
        if strays:
            batch = batch.filter(pa.array(level.positions(batch.column("geocode")) < 0))
        names = batch.column("query_name")
        for name in pc.unique(names).to_pylist():
            rows = batch.filter(pc.equal(names, name))
            if name in by_name:
                by_name[name].check_rows(rows, failures)
            else:
                failures.add(f"{name} is not expected at geolevel {level.name}", rows.num_rows)
    for one in dues:
        failures.add_each(
            one.times != 1,
            _name_geounit(one.codes, f"of {level.name} does not have constraint {one.name} once"),
        )


def _name_geounit(codes: pa.Array, text: str) -> Callable[[int], str]:
    """Words on one of the geounits with these codes."""
    return lambda i: f"{codes[i]} {text}"
