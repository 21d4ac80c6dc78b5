"""All checks of a finished run, from `plan/plan.json`, its settings and its public files alone.

Nothing here uses the code that built the spine, drew the noise, estimated or wrote microdata, and
nothing here opens `confidential/`. The checks come in pieces, which can run concurrently. Of a
universe, pieces are the top of its spine, shares of the rest, and shares of its microdata; of
tables, whole files and shares of the states. `outcomes` combines the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy import sparse

from ..outcome import Failures, Outcome
from ..run_files import UnusableRunFile, unusable_files_fail
from .conditions import AGREE, BOUNDS, COMPLETE, EXACT, HELD, RELATIONS, ZEROS, HeldLevels
from .declaration import Budget, Cells, Declaration, PublicAreas
from .estimates import (
    LevelEstimates,
    check_children_add_to_parents,
    count_unknown,
    no_estimates,
    read_estimates,
)
from .layout import layout_of
from .legacy import check_legacy, check_legacy_states
from .measurements import LOSS, MEASURED, NOISE, check_demanded, check_measurements
from .microdata import MICRODATA, Microdata, check_company, check_description, check_microdata
from .privacy import ACCOUNTING, check_privacy
from .spine import (
    BLOCKS_PER_PART,
    RunSpine,
    SpineLevel,
    SpinePart,
    check_shares,
    check_spine,
    count_blocks,
    cut_depth,
    read_spine,
    spine_parts,
)
from .tables import (
    COUNT,
    MARGINS,
    REPEAT,
    SUFFIX,
    LevelTables,
    check_files,
    check_margins,
    check_named_table,
    check_states,
    margin_groups,
    named_tables,
)

ESTIMATES, CHILDREN = "estimates_are_counts", "children_add_to_parents"
TREE, SHARES = "spine_is_a_tree", "shares_add_to_one"
CHECKS: Mapping[str, str] = {
    TREE: "both spine files describe one tree of all areas",
    ESTIMATES: "positive integers in cells of the schema and geounits of the spine",
    CHILDREN: "in every cell of every geounit",
    COMPLETE: "every geounit carries each constraint of its geolevel once, with declared values",
    EXACT: "invariants are met exactly",
    BOUNDS: "lower and upper bounds are met by every geounit",
    ZEROS: "impossible cells are empty",
    SHARES: "on the path from the root to every area",
    MEASURED: "every geounit with a share has each query exactly once",
    NOISE: "the variance of every measurement, and its values",
    LOSS: "each measurement's is the total times the shares of its geounit and query",
    MICRODATA: "Parquet and text rows agree and give the estimates of areas",
    HELD: "with those of the earlier releases, in every geounit",
    RELATIONS: "linear relations are met by every geounit",
    **dict.fromkeys(AGREE.values(), "records of both are possible together in every geounit"),
    AGREE["accompanied"]: "no area has records without those that must accompany them",
}
"""Each check of a universe by its name, and its detail where it passed."""

OF_RELEASE: Mapping[str, str] = {
    ACCOUNTING: "the plan is what settings, census and spines promise",
    COUNT: "every variable of every entity of every level",
    REPEAT: "the four files of each state, record by record",
    MARGINS: "an interval for every cell of every table",
}
"""Checks of the release as a whole."""
RELEASE = "release"

TOP, BELOW, ROWS, FILES, STATES, NAMED = "top", "below", "rows", "files", "states", "named"
PLAN, TABLES = "plan", "tables"
OPTIONAL = {COMPLETE, EXACT, BOUNDS, ZEROS, HELD, RELATIONS, *AGREE.values()}
"""Checks that apply only to universes with the declarations that they check."""


@dataclass(frozen=True)
class Piece:
    """A share of a kind of checks, `number` of `of`; of a universe, the tables or the release."""

    kind: str
    subject: str
    number: int = 0
    of: int = 1

    @property
    def name(self) -> str:
        """Its name among the pieces of a run."""
        return f"{self.subject}-{self.kind}-{self.number}-of-{self.of}"


@dataclass
class Findings:
    """Findings of some pieces of the checks.

    made : the checks that applied.
    failures : by check.
    unusable : why no check could be made, so that all of them fail.
    """

    made: list[str] = field(default_factory=list)
    failures: dict[str, Failures] = field(default_factory=dict)
    unusable: Failures = field(default_factory=Failures)

    @classmethod
    def of(cls, *checks: str) -> Findings:
        """None yet, of some checks."""
        return cls(list(checks), {name: Failures() for name in checks})

    @classmethod
    def made_by(cls, check: str, make: Callable[[Failures], None]) -> Findings:
        """Those of one check, which `make` records; an unusable file is one of them."""
        found = cls.of(check)
        with unusable_files_fail(found.failures[check]):
            make(found.failures[check])
        return found

    def add(self, further: Findings, *, is_repeated: bool = False) -> None:
        """Add the findings of the next piece. With `is_repeated`, failures that begin like known
        ones are left out: several pieces report one unusable file of tables."""
        self.made = list(dict.fromkeys([*self.made, *further.made]))
        for name, found in further.failures.items():
            own = self.failures.setdefault(name, Failures())
            if not (is_repeated and found.texts == own.texts[: len(found.texts)]):
                own.extend(found)
        if further.unusable.count and not self.unusable.count:
            self.unusable = further.unusable

    def outcomes(self, subject: str, details: Mapping[str, str]) -> list[Outcome]:
        """The outcome of each check that was made, in order."""
        found = []
        for name, detail in details.items():
            failures = self.failures.get(name, Failures())
            if name in self.made or failures.count:
                failures.extend(self.unusable)
                found.append(failures.outcome(name, subject, detail))
        return found


@dataclass(frozen=True)
class CheckedRun:
    """A run with its release in a folder.

    Large spines are checked in parts of about `blocks_per_part` blocks, so that memory is bounded
    but for some hundred bytes a geounit.
    """

    root: Path
    release: Path
    blocks_per_part: int = BLOCKS_PER_PART

    @cached_property
    def declaration(self) -> Declaration:
        """The settings and the census; raises UnusableRunFile."""
        return Declaration.read(self.root)

    @cached_property
    def tables(self) -> LevelTables:
        """The tables of summary levels."""
        return LevelTables(self.declaration, self.release)

    def pieces(self, pieces_of: Callable[[Path], int]) -> list[Piece]:
        """All pieces of the checks, in the order in which their findings are combined; `pieces_of`
        is the number of pieces for a file with a row for every block.
        """

        def n_of(path: Path) -> int:
            with unusable_files_fail():
                return pieces_of(path)
            return 1

        draws_noise = "measured" not in self.declaration.settings
        every = [Piece(PLAN, RELEASE)] if draws_noise else []
        for universe in self.declaration.universes:
            n = n_of(self.root / "spine" / universe / "blocks.parquet")
            every.append(Piece(TOP, universe))
            every += [Piece(BELOW, universe, number, n) for number in range(n)]
            every += [Piece(ROWS, universe, number, n) for number in range(n)]
        n = 1
        if self.tables.names:
            n = min(n_of(self.root / "spine" / "geography.parquet"), self.tables.n_states)
            every.append(Piece(FILES, TABLES))
            every += [Piece(STATES, TABLES, number, n) for number in range(n)]
        if named_tables(self.declaration):
            every.append(Piece(NAMED, TABLES))
        if self.declaration.settings["release"].get("margins"):
            every += [Piece(MARGINS, TABLES, number, n) for number in range(n)]
        return every

    def check(self, piece: Piece) -> Findings:
        """Return the findings of a piece."""
        if piece.subject in self.declaration.universes:
            checked = CheckedUniverse(self, piece.subject)
            if piece.kind == TOP:
                return checked.check_top()
            return checked.check_rows(piece) if piece.kind == ROWS else checked.check_below(piece)
        if piece.kind == PLAN:
            return Findings.made_by(ACCOUNTING, partial(check_privacy, self.root))
        if piece.kind == MARGINS and not any((self.release / "tables").glob(f"*{SUFFIX}.*")):
            return Findings()
        if piece.kind == MARGINS:
            return Findings.made_by(MARGINS, partial(self._check_margins, piece))
        found = Findings()
        if piece.kind == NAMED:
            for table in named_tables(self.declaration):
                check_table = partial(check_named_table, self.declaration, table, self.release)
                found.add(Findings.made_by(COUNT, check_table))
            return found
        for name in (COUNT, *([REPEAT] if self.tables.has_legacy else [])):
            found.add(Findings.made_by(name, partial(self._check_tables, name, piece)))
        return found

    def _check_margins(self, piece: Piece, failures: Failures) -> None:
        groups = margin_groups(self.declaration, self.tables)
        check_margins(self.release, groups, failures, (piece.number, piece.of))

    def _check_tables(self, check: str, piece: Piece, failures: Failures) -> None:
        if piece.kind == FILES:
            (check_files if check == COUNT else check_legacy_states)(self.tables, failures)
        else:
            states = self.tables.share(piece.number, piece.of)
            (check_states if check == COUNT else check_legacy)(self.tables, states, failures)

    def outcomes(self, findings: Sequence[tuple[Piece, Findings]]) -> list[Outcome]:
        """Return the outcomes of all checks, from the findings of all pieces."""
        together = {name: Findings() for name in (*self.declaration.universes, RELEASE)}
        for piece, found in findings:
            subject = piece.subject if piece.subject in together else RELEASE
            together[subject].add(found, is_repeated=subject == RELEASE)
        return [
            outcome
            for name, found in together.items()
            for outcome in found.outcomes(name, OF_RELEASE if name == RELEASE else CHECKS)
        ]


class CheckedUniverse:
    """The checks of a universe of a run."""

    def __init__(self, run: CheckedRun, universe: str) -> None:
        self.run, self.universe = run, universe
        self.found = Findings.of(*(name for name in CHECKS if name not in OPTIONAL))
        self._failures = self.found.failures | {name: Failures() for name in OPTIONAL}
        self.found.failures = self._failures
        self._spines: dict[str, RunSpine] = {}

    @cached_property
    def cells(self) -> Cells:
        """Its cells."""
        return self.run.declaration.cells(self.universe)

    @cached_property
    def budget(self) -> Budget:
        """Its budget."""
        return self.run.declaration.budget(self.universe)

    @cached_property
    def spine(self) -> RunSpine:
        """Its spine."""
        return read_spine(self.run.root, self.universe, self.budget.levels)

    @cached_property
    def held(self) -> HeldLevels:
        """The constraints on its estimates."""
        held = HeldLevels(self.run.declaration, self.universe, self.spine, self._counts)
        self.found.made += [name for name in CHECKS if name in held.checks]
        return held

    def check_top(self) -> Findings:
        """Check the spine and its upper geounits, which are all if the spine is one part."""
        failures, size = self._failures, self.run.blocks_per_part
        with unusable_files_fail(self.found.unusable):
            spine, has_digits = self.spine, self.run.declaration.has_digits
            check_spine(spine, failures[TREE], with_digits=has_digits)
            check_shares(spine, failures[SHARES])
            self._check_part(next(spine_parts(spine, size)), None)
            depth = cut_depth(spine, size)
            for number in range(depth + 1, len(spine.levels)) if depth else ():
                self._check_strays(number)
        return self.found

    def check_below(self, piece: Piece) -> Findings:
        """Check the geounits of the piece's share of the spine's other parts."""
        size = self.run.blocks_per_part
        with unusable_files_fail(self.found.unusable):
            if count_blocks(self.run.root, self.universe) <= size:
                return self.found
            depth = cut_depth(self.spine, size)
            if not depth:
                return self.found
            at_cut = self._estimates(self.spine.levels[depth])
            for part in spine_parts(self.spine, size, share=(piece.number, piece.of)):
                if part.depth:
                    self._check_part(part, at_cut)
        return self.found

    def check_rows(self, piece: Piece) -> Findings:
        """Check the microdata of the piece's share of areas, row by row, against the estimates."""
        failures, company = self._failures[MICRODATA], AGREE["accompanied"]
        with unusable_files_fail(self.found.unusable):
            spine, declaration = self.spine, self.run.declaration
            accompanied = declaration.accompanied(self.universe)
            self.found.made += [company] * bool(accompanied)
            with unusable_files_fail(failures):
                areas = PublicAreas(declaration, spine)
                layout = layout_of(declaration, self.universe, areas)
                stem = self.run.release / f"mdf_{self.universe}"
                for rows in check_microdata(
                    Microdata(stem, layout, self.cells, declaration.is_private),
                    spine,
                    layout.area_level(areas, spine),
                    self._estimates,
                    failures,
                    facilities=areas.facilities() if layout.further else None,
                    areas_per_part=self.run.blocks_per_part,
                    share=(piece.number, piece.of),
                ):
                    for own in accompanied:
                        check_company(own, rows, self.cells, self._failures[company])
                    if layout.described is not None:
                        other = layout.described.universe
                        counts = self._counts(other, np.arange(rows.areas.start, rows.areas.stop))
                        cells = declaration.cells(other)
                        check_description(layout.described, rows, cells, counts, failures)
        return self.found

    def _estimates(self, level: SpineLevel) -> LevelEstimates:
        """The estimates of a part of a geolevel; their errors are recorded elsewhere."""
        with unusable_files_fail():
            return read_estimates(self.run.root, self.universe, level, self.cells.n, Failures())
        return no_estimates(self.cells.n)

    def _counts(self, universe: str, areas: np.ndarray) -> sparse.csr_array:
        """Counts `(n_areas, n_cells)` of another universe in some areas of this one's spine."""
        declaration, cells = self.run.declaration, self.run.declaration.cells(universe)
        if universe not in self._spines:
            levels = declaration.budget(universe).levels
            self._spines[universe] = read_spine(self.run.root, universe, levels)
            if not self._spines[universe].area_geocode.equals(self.spine.area_geocode):
                raise UnusableRunFile(f"{universe} has other areas than {self.universe}")
        level = self._spines[universe].leaves(areas)
        own = read_estimates(self.run.root, universe, level, cells.n, Failures())
        return own.counts(level.n)

    def _check_part(self, part: SpinePart, at_cut: LevelEstimates | None) -> None:
        """Check estimates, constraints and measurements of a part of the spine; `at_cut` are the
        estimates of the geolevel of the cut, None for the part with the cut and everything above.
        """
        failures, root = self._failures, self.run.root
        due: Sequence[Sequence[sparse.csr_array]] = ()
        with unusable_files_fail(failures[COMPLETE], *(failures[name] for name in OPTIONAL)):
            due = self.held.due(part)
        above: tuple[SpineLevel, LevelEstimates] | None = None
        for i, level in enumerate(part.levels):
            if at_cut is not None and above is None:
                above = level, at_cut.part(part.geounits[0])
                continue
            estimates = no_estimates(self.cells.n)
            with unusable_files_fail(failures[ESTIMATES]):
                estimates = read_estimates(
                    root, self.universe, level, self.cells.n, failures[ESTIMATES]
                )
            with unusable_files_fail(failures[COMPLETE]):
                if due:
                    self.held.check_level(part, i, due[i], estimates, failures)
            with unusable_files_fail(failures[MEASURED], failures[LOSS], failures[NOISE]):
                check_measurements(root, self.cells, self.budget, level, failures)
            if self.budget.on_demand:
                with unusable_files_fail(failures[MEASURED]):
                    known = self._possible if above is None else above[1]
                    check_demanded(root, self.cells, self.budget, level, known, failures[MEASURED])
            if above is not None:
                check_children_add_to_parents(*above, level, estimates, failures[CHILDREN])
            above = level, estimates

    @property
    def _possible(self) -> np.ndarray:
        """Mask (n_cells,) of the cells that are no structural zeros."""
        zeros = self.run.declaration.zeros(self.universe).values()
        return ~np.any([np.zeros(self.cells.n, dtype=bool), *zeros], axis=0)

    def _check_strays(self, number: int) -> None:
        """Check that no file of a geolevel read in parts has rows of geounits outside all parts."""
        level, failures, root = self.spine.levels[number], self._failures, self.run.root
        measured = root / "measurements" / self.universe / level.name / self.budget.measurements
        for what, folder, name in (
            ("estimates", root / "estimates" / self.universe / level.name, ESTIMATES),
            ("measurements", measured, MEASURED),
        ):
            with unusable_files_fail(failures[name]):
                if n_unknown := count_unknown(folder, level):
                    text = f"{what} of {level.name} have a geocode outside the spine"
                    failures[name].add(text, n_unknown)
        with unusable_files_fail(failures[COMPLETE]):
            self.held.check_strays(number, failures)
