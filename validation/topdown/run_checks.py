"""All checks of a finished run, from `plan/plan.json`, its settings and its public files alone.

Nothing here uses the code that built the spine, drew the noise, estimated or wrote microdata, and
nothing here opens `confidential/`. The checks come in pieces, which can run concurrently. Of a
universe, pieces are the top of its spine, shares of the rest, the text of its microdata, and shares
of their rows; of tables, whole files and shares of the states. `outcomes` combines the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy import sparse

from ..outcome import Failures, Outcome
from ..run_files import UnusableRunFile, check_text, make_checks, unusable_files_fail
from . import measurements, microdata, spine, tables
from .conditions import AGREE, BOUNDS, COMPLETE, EXACT, HELD, RELATIONS, ZEROS, HeldLevels
from .declaration import Budget, Cells, Declaration, PublicAreas, no_counts
from .legacy import check_legacy
from .privacy import ACCOUNTING, check_privacy
from .spine import RunSpine, SpineLevel, SpinePart

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
    measurements.MEASURED: "every geounit with a share has each query exactly once",
    measurements.NOISE: "the variance of every measurement, and its values",
    measurements.LOSS: "each measurement's is the total times the shares of its geounit and query",
    microdata.MICRODATA: "Parquet and text rows agree and give the estimates of areas",
    HELD: "with those of the earlier releases, in every geounit",
    RELATIONS: "linear relations are met by every geounit",
    **dict.fromkeys(AGREE.values(), "records of both are possible together in every geounit"),
    AGREE["accompanied"]: "no area has records without those that must accompany them",
}
"""Each check of a universe by its name, and its detail where it passed."""

OF_RELEASE: Mapping[str, str] = {
    ACCOUNTING: "the plan is what settings, census and spines promise",
    tables.COUNT: "every variable of every entity of every level",
    tables.REPEAT: "the four files of each state, record by record",
    tables.MARGINS: "an interval for every cell of every table",
}
"""Checks of the release as a whole."""
RELEASE = "release"

TOP, BELOW, TEXT, ROWS = "top", "below", "text", "rows"
PLAN, TABLES, FILES, STATES, NAMED = "plan", "tables", "files", "states", "named"
OF_MEASUREMENTS = (measurements.MEASURED, measurements.NOISE, measurements.LOSS)
OPTIONAL = {EXACT, BOUNDS, ZEROS, HELD, RELATIONS, *AGREE.values()}
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

    failures : of each check that applied.
    unusable : why no check could be made, so that all of them fail.
    """

    failures: dict[str, Failures] = field(default_factory=dict)
    unusable: Failures = field(default_factory=Failures)

    @classmethod
    def made_by(cls, *checks: tuple[str, Callable[[Failures], None]]) -> Findings:
        """Those of some checks, which a function each records; an unusable file is one of them."""
        found = cls({name: Failures() for name, _ in checks})
        make_checks(found.failures, *checks)
        return found

    def add(self, further: Findings, *, is_repeated: bool) -> None:
        """Add the findings of the next piece. With `is_repeated`, failures that begin like known
        ones are left out: several pieces report one unusable file of tables."""
        for name, found in further.failures.items():
            own = self.failures.setdefault(name, Failures())
            if not (is_repeated and found.texts == own.texts[: len(found.texts)]):
                own.extend(found)
        if not self.unusable.count:
            self.unusable = further.unusable

    def outcomes(self, subject: str, details: Mapping[str, str]) -> Iterator[Outcome]:
        """The outcome of each check that was made, in order."""
        for name, detail in details.items():
            if name in self.failures:
                self.failures[name].extend(self.unusable)
                yield self.failures[name].outcome(name, subject, detail)


@dataclass(frozen=True)
class CheckedRun:
    """A run with its release in a folder.

    Large spines are checked in parts of about `blocks_per_part` blocks, so that memory is bounded
    but for some hundred bytes a geounit.
    """

    root: Path
    release: Path
    blocks_per_part: int = spine.BLOCKS_PER_PART

    @cached_property
    def declaration(self) -> Declaration:
        """The settings and the census; raises UnusableRunFile."""
        return Declaration.read(self.root)

    @cached_property
    def tables(self) -> tables.LevelTables:
        """The tables of summary levels."""
        return tables.LevelTables(self.declaration, self.release)

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
            every.append(Piece(TEXT, universe))
            every += [Piece(ROWS, universe, number, n) for number in range(n)]
        n = 1
        if self.tables.names:
            n = min(n_of(self.root / "spine" / "geography.parquet"), self.tables.n_states)
            every.append(Piece(FILES, TABLES))
            every += [Piece(STATES, TABLES, number, n) for number in range(n)]
        if tables.named_tables(self.declaration):
            every.append(Piece(NAMED, TABLES))
        if self.declaration.settings["release"].get("margins"):
            every += [Piece(tables.MARGINS, TABLES, number, n) for number in range(n)]
        return every

    def check(self, piece: Piece) -> Findings:
        """Return the findings of a piece."""
        share, declaration, release = (piece.number, piece.of), self.declaration, self.release
        if piece.subject in declaration.universes:
            checked = CheckedUniverse(self, piece.subject)
            if piece.kind == TOP:
                return checked.check_top()
            if piece.kind == TEXT:
                return checked.check_text()
            return (checked.check_rows if piece.kind == ROWS else checked.check_below)(share)
        if piece.kind == PLAN:
            return Findings.made_by((ACCOUNTING, partial(check_privacy, self.root)))
        if piece.kind == tables.MARGINS:
            if not any((release / "tables").glob(f"*{tables.SUFFIX}.*")):
                return Findings()
            groups = tables.margin_groups(declaration, self.tables)
            own = partial(tables.check_margins, release, groups, share=share)
            return Findings.made_by((tables.MARGINS, own))
        if piece.kind == NAMED:
            check_named = partial(tables.check_named_tables, declaration, release)
            return Findings.made_by((tables.COUNT, check_named))
        if piece.kind == FILES:
            return Findings.made_by((tables.COUNT, partial(tables.check_files, self.tables)))
        states = self.tables.share(*share)
        checks = [(tables.COUNT, partial(tables.check_states, self.tables, states))]
        if self.tables.has_legacy:
            checks.append((tables.REPEAT, partial(check_legacy, self.tables, states)))
        return Findings.made_by(*checks)

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
        self.run, self.universe, self.declaration = run, universe, run.declaration
        self.failures = {name: Failures() for name in CHECKS if name not in OPTIONAL}
        self.found = Findings(self.failures)
        self._spines: dict[str, RunSpine] = {}

    @cached_property
    def cells(self) -> Cells:
        """Its cells."""
        return self.declaration.cells(self.universe)

    @cached_property
    def budget(self) -> Budget:
        """Its budget."""
        return self.declaration.budget(self.universe)

    @cached_property
    def spine(self) -> RunSpine:
        """Its spine."""
        return spine.read_spine(self.run.root, self.universe, self.budget.levels)

    @cached_property
    def areas(self) -> PublicAreas:
        """Public facts about its areas."""
        return PublicAreas(self.declaration, self.spine)

    @cached_property
    def layout(self) -> microdata.Layout:
        """The layout of its microdata."""
        return microdata.layout_of(self.declaration, self.universe, self.areas)

    @cached_property
    def held(self) -> HeldLevels:
        """The constraints on its measurements."""
        held = HeldLevels(self.declaration, self.universe, self.spine, self._counts)
        for name in held.checks:
            self.failures.setdefault(name, Failures())
        return held

    def check_top(self) -> Findings:
        """Check the spine and its upper geounits, which are all if the spine is one part."""
        size = self.run.blocks_per_part
        with unusable_files_fail(self.found.unusable):
            has_digits = self.declaration.has_digits
            spine.check_spine(self.spine, self.failures[TREE], with_digits=has_digits)
            spine.check_shares(self.spine, self.failures[SHARES])
            self._check_part(next(spine.spine_parts(self.spine, size)), None)
            depth = spine.cut_depth(self.spine, size)
            for number in range(depth + 1, len(self.spine.levels)) if depth else ():
                self._check_strays(number)
        return self.found

    def check_below(self, share: tuple[int, int]) -> Findings:
        """Check the geounits of a share of the spine's other parts."""
        size = self.run.blocks_per_part
        with unusable_files_fail(self.found.unusable):
            if spine.count_blocks(self.run.root, self.universe) > size:
                if depth := spine.cut_depth(self.spine, size):
                    at_cut = self._estimates(self.spine.levels[depth])
                    for part in spine.spine_parts(self.spine, size, share=share):
                        if part.depth:
                            self._check_part(part, at_cut)
        return self.found

    def check_text(self) -> Findings:
        """Check that the text of the microdata has the rows of its Parquet file."""
        failures, is_private = self.failures[microdata.MICRODATA], self.declaration.is_private
        with unusable_files_fail(self.found.unusable, failures):
            check_text(
                self.run.release / f"mdf_{self.universe}",
                failures,
                is_private=is_private,
                has_quotes=self.layout.has_quotes,
                delimiter="|",
                names=self.layout.names,
            )
        return self.found

    def check_rows(self, share: tuple[int, int]) -> Findings:
        """Check the microdata of a share of areas, row by row, against the estimates."""
        failures, declaration = self.failures[microdata.MICRODATA], self.declaration
        with unusable_files_fail(self.found.unusable, failures):
            accompanied, alone = declaration.accompanied(self.universe), Failures()
            if accompanied:
                self.failures[AGREE["accompanied"]] = alone
            layout, path = self.layout, self.run.release / f"mdf_{self.universe}.parquet"
            level = layout.area_level(self.areas, self.spine)
            facilities = self.areas.facilities() if layout.further else None
            for rows in microdata.rows_by_areas(
                *(path, layout, self.cells, level, failures),
                areas_per_part=self.run.blocks_per_part,
                share=share,
            ):
                leaves = self.spine.leaves(rows.areas)
                microdata.check_counts(rows, self._estimates(leaves), leaves, failures)
                if facilities is not None:
                    failures.add_each(
                        rows.further != facilities[rows.areas],
                        "a block does not have its number of facility rows",
                    )
                for own in accompanied:
                    microdata.check_company(own, rows, self.cells, alone)
                if layout.described is not None:
                    other = layout.described.universe
                    counts = self._counts(other, np.arange(rows.areas.start, rows.areas.stop))
                    cells = declaration.cells(other)
                    microdata.check_description(layout.described, rows, cells, counts, failures)
        return self.found

    def _estimates(self, level: SpineLevel, failures: Failures | None = None) -> sparse.csr_array:
        """The estimates of a part of a geolevel, none where they cannot be read; without failures
        their errors are recorded elsewhere."""
        own = Failures() if failures is None else failures
        with unusable_files_fail(own):
            return measurements.read_estimates(
                self.run.root, self.universe, level, self.cells.n, own
            )
        return no_counts(level.n, self.cells.n)

    def _counts(self, universe: str, areas: np.ndarray) -> sparse.csr_array:
        """Counts `(n_areas, n_cells)` of another universe in some areas of this one's spine."""
        root, n_cells = self.run.root, self.declaration.cells(universe).n
        if universe not in self._spines:
            levels = self.declaration.budget(universe).levels
            self._spines[universe] = spine.read_spine(root, universe, levels)
            if not self._spines[universe].area_geocode.equals(self.spine.area_geocode):
                raise UnusableRunFile(f"{universe} has other areas than {self.universe}")
        level = self._spines[universe].leaves(areas)
        return measurements.read_estimates(root, universe, level, n_cells, Failures())

    def _check_part(self, part: SpinePart, at_cut: sparse.csr_array | None) -> None:
        """Check estimates, constraints and measurements of a part of the spine; `at_cut` are the
        estimates of the geolevel of the cut, None for the part with the cut and everything above.
        """
        failures, made = self.failures, (self.run.root, self.cells, self.budget)
        due: Sequence[Sequence[sparse.csr_array]] = ()
        with unusable_files_fail(failures[COMPLETE]):
            due = self.held.due(part)
        above: tuple[SpineLevel, sparse.csr_array] | None = None
        for i, level in enumerate(part.levels):
            if at_cut is not None and above is None:
                above = level, at_cut[part.geounits[0]]
                continue
            own = self._estimates(level, failures[ESTIMATES])
            with unusable_files_fail(failures[COMPLETE]):
                if due:
                    self.held.check_level(part, i, due[i], own, failures)
            with unusable_files_fail(*(failures[name] for name in OF_MEASUREMENTS)):
                measurements.check_measurements(*made, level, failures)
                if self.budget.on_demand:
                    known = self._possible if above is None else above[1]
                    wrong = failures[measurements.MEASURED]
                    measurements.check_demanded(*made, level, known, wrong)
            if above is not None:
                measurements.check_children_add_to_parents(*above, level, own, failures[CHILDREN])
            above = level, own

    @property
    def _possible(self) -> sparse.csr_array:
        """Ones (1, n_cells) in the cells that are no structural zeros."""
        zeros = self.declaration.zeros(self.universe).values()
        is_zero = np.any([np.zeros(self.cells.n, dtype=bool), *zeros], axis=0)
        return sparse.csr_array(~is_zero[None, :] * 1)

    def _check_strays(self, number: int) -> None:
        """Check that no file of a geolevel read in parts has rows of geounits outside all parts."""
        level, failures, root = self.spine.levels[number], self.failures, self.run.root
        measured = Path("measurements") / self.universe / level.name / self.budget.measurements
        for what, folder, name in (
            ("estimates", Path("estimates") / self.universe / level.name, ESTIMATES),
            ("measurements", measured, measurements.MEASURED),
        ):
            with unusable_files_fail(failures[name]):
                if n_unknown := measurements.count_unknown(root / folder, level):
                    text = f"{what} of {level.name} have a geocode outside the spine"
                    failures[name].add(text, n_unknown)
        with unusable_files_fail(failures[COMPLETE]):
            self.held.check_strays(number, failures)
