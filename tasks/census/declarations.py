"""The language in which a census is declared: tables, attributes, universes, constraints, tables.

A declaration maps columns to labels that people read. It is data: settings files have it under
`[census]`, and `tasks.census.census` compiles it into the records of all other modules.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..runs.names import FileName, Label
from .attribute_declarations import (
    AgreeDeclaration,
    AttributeDeclaration,
    CoarseningDeclaration,
    Codes,
    FilesDeclaration,
    Part,
    Where,
)


class Step(Part):
    """From a table to another: `column` here has the value of `key` there."""

    column: str
    """Column of the table at the start of the step."""
    table: FileName
    """Table at the end of the step."""
    key: str
    """Column that identifies its rows."""
    records_per_row: int | None = Field(default=None, ge=1)
    """Most records that may refer to one row there. The input must obey it, and a change of such
    a row is charged as one of that many records. Left out, the guarantee covers the other tables
    and assumes the values taken from this one as fixed."""


class OccupantDeclaration(Part):
    """Rows of another table that refer to the records of a universe, as persons to their household.

    Attributes read their columns as `<name>.column`, if no record has more than one row, and the
    number of rows as `<name>.number`. The columns of a record without rows are blank.
    """

    table: FileName
    """Table of the rows."""
    column: str
    """Column of that table that says which record a row belongs to."""
    key: str
    """Column of the universe's table that has the same value."""
    where: dict[str, Codes] = {}
    """Rows that count, such as householders; by default all."""
    records_per_key: int = Field(default=1, ge=1)
    """Most rows of the universe's table that may have one value of `key`. A rule holds the input
    to it. A change of an occupant is charged for so many in its old place, and in its new."""


class ComputedFromDeclaration(Part):
    """A table from whose records columns of a universe were computed before the input was read,
    as the size of a dwelling from its persons."""

    records: int = Field(ge=1)
    """Most records of the universe, or rows of a table that `through` leads to, that a change of
    one record there changes in these columns: two, where a person moves from one dwelling to
    another."""
    columns: tuple[str, ...] | None = None
    """The columns, as attributes, conditions and `count` name them; if omitted, all that the
    universe reads of its own table and by `through`. Other universes that read the same columns are
    charged, too."""
    opposite: bool = False
    """Whether as many of these records change from a cell to another as back, as when one dwelling
    becomes vacant and another occupied. In an area of both their changes cancel."""
    is_charged: bool = Field(default=True, alias="charged")
    """Whether the ledger counts it; if not, the certificate states the losses of a record of the
    universe and of a record there."""


class StructuralZeroDeclaration(Part):
    """Cells that are zero by definition: all whose attributes take the given levels."""

    name: Label | None = None
    """Name in files, reports and messages."""
    where: Where = Field(min_length=1)
    """Levels of attributes or coarsenings whose combination is empty."""


class InvariantDeclaration(Part):
    """The answers to a query that are released exactly in every geounit of a geolevel."""

    name: Label | None = None
    """Name in files, reports and messages."""
    query: str = "total"
    """Query whose answers are exact."""
    geolevel: str
    """Geolevel of the census, whatever the spine."""
    above: Label | None = None
    """Name in files of the sums of several geounits. With it, files have the single answers at
    `geolevel` alone, under its codes, even if a spine divides its geounits."""


class BoundDeclaration(Part):
    """Bounds on the answers to a query: so many for each record of another universe."""

    name: Label | None = None
    """Name in files, reports and messages. Bounds on different answers to one query may share a
    name."""
    query: str = "total"
    """Query whose answers are bounded."""
    where: Where = {}
    """The cells that the bounds are on; by default all."""
    per: str
    """Universe whose records in an area multiply the bounds; their number becomes public."""
    by: str | None = None
    """Query on that universe, whose rows are matched with the rows of this query."""
    at_least: int | None = Field(default=None, ge=0)
    """Fewest records for each record of the other universe."""
    at_most: int | None = Field(default=None, ge=0)
    """Most records for each record of the other universe."""

    def _refuse_misfits(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise ValueError("needs at_least, at_most or both")


class Term(Part):
    """Records of a universe with some levels, several times."""

    where: Where = {}
    """Levels of the records that are counted; by default all."""
    times: int = Field(default=1, ge=1)
    """Whole number that the count is multiplied by."""
    universe: str | None = None
    """An earlier universe of run.universes; its released counts are used unchanged."""


class RelationDeclaration(Part):
    """A linear equality or inequality that every geounit meets: left, sign, right."""

    name: Label
    """Name in files, reports and messages."""
    left: tuple[Term, ...] = Field(min_length=1)
    """Counts that are added up; at least one of the universe itself."""
    sign: Literal["=", "<=", ">="]
    """`=`, `<=` or `>=`."""
    right: tuple[Term, ...] = ()
    """An empty list is 0."""


class HeldToDeclaration(Part):
    """Answers of every geounit that equal the answers of an earlier release, or of an earlier
    universe of the same run. These are public, so the equality is not charged."""

    name: Label | None = None
    """Name in files, reports and messages."""
    release: FileName | None = None
    """Name under `[input]` of the directory of a finished run, or of a file of its microdata;
    left out, `universe` is a universe of this run, declared before."""
    layout: str | None = None
    """Census whose microdata layout a file has, such as `cef_2020`; a run has its own."""
    universe: FileName | None = None
    """Universe of the earlier release, by default the one of the same name; or of this run."""
    query: str = "total"
    """Query whose answers are fixed; the other universe must have its attributes and coarsenings
    under the same names, with the same levels among the counted records."""
    where: Where = {}
    """The records whose answers are held; by default all."""
    of: Where | None = None
    """Counted records of the other universe; by default as in `where`."""

    def _refuse_misfits(self) -> None:
        if self.release is None and (self.universe is None or self.layout is not None):
            raise ValueError("needs release, or the universe of this run and no layout")


class MicrodataColumn(Part):
    """A column of released microdata in a layout of its own, and its source. A column of an
    attribute that the schema lacks is left out."""

    name: str
    """Name of the column."""
    constant: str | None = None
    """The same text in every row."""
    digits: tuple[int, int] | None = None
    """First character of the area's code, and the one after the last."""
    number: bool = False
    """Whether it numbers the rows from 0."""
    attribute: str | None = None
    """Attribute or coarsening of the column; in `described_by` also several, joined by `*` in the
    order of the universe's attributes, whose combinations have the codes."""
    first: int | None = None
    """Code of the first level; those after it count on."""
    width: int = Field(default=1, ge=1)
    """Digits of the codes, with leading zeros."""
    codes: tuple[str, ...] | None = None
    """Codes of the levels one by one, in place of `first`."""

    def _refuse_misfits(self) -> None:
        given = [self.constant is not None, self.digits is not None, self.number]
        if sum([*given, self.attribute is not None]) != 1:
            raise ValueError("needs one of constant, digits, number and attribute")
        if self.attribute is not None and (self.first is None) == (self.codes is None):
            raise ValueError("needs first or codes in addition to its attribute")


class FurtherRecords(Part):
    """Rows of microdata for the records of another universe; their numbers are public."""

    universe: str
    """The other universe, which is the `per` of bounds."""
    values: dict[str, str]
    """Their values in the columns of attributes."""


class DescribedByDeclaration(Part):
    """Further columns for the records of this universe from a later one that is held to it, as
    from households for occupied units. In every area, records with the same answer are matched,
    both in the order of their cells."""

    universe: FileName
    """The later universe, whose first `held_to` without `release` names this one."""
    columns: tuple[MicrodataColumn, ...] = Field(min_length=1)
    """Its columns, after the others: attributes of the later universe."""
    otherwise: dict[str, str]
    """Codes of these columns in rows of records that are matched with none."""

    def _refuse_misfits(self) -> None:
        names = [column.name for column in self.columns]
        if sorted(names) != sorted(self.otherwise):
            raise ValueError("needs a code of every column, and of no other, under otherwise")
        if any(column.attribute is None for column in self.columns):
            raise ValueError("has a column without an attribute")


class MicrodataDeclaration(Part):
    """The layout of a universe's microdata; without one there are labels of areas and levels."""

    columns: tuple[MicrodataColumn, ...] = Field(min_length=1)
    """In the order of the file."""
    described_by: DescribedByDeclaration | None = None
    """A later universe with further columns for the records."""
    further: FurtherRecords | None = None
    """Rows after the records of each area."""


class CountedDeclaration(Part):
    """A universe's count in maps and predicted deviations: its total or, where that is exact, a
    part of it."""

    text: Label
    """Its name, such as `population`."""
    where: Where = {}
    """The records of the part."""


class UniverseDeclaration(Part):
    """A kind of record: its table, its attributes, its exact facts."""

    table: FileName
    """Name of its table under `[input]`."""
    where: dict[str, Codes] = {}
    """Rows of the table that belong to the universe; by default all."""
    attributes: tuple[str, ...] = Field(min_length=1)
    """Attributes that number its cells, in this order."""
    further_attributes: tuple[str, ...] = ()
    """Further attributes that a settings file may choose."""
    area: str | tuple[str, ...] | None = None
    """Column with the area's code of the last geolevel, or columns with the codes of the last
    geolevels in their order, which must identify areas; of the table of `through`, if there is
    one."""
    through: Step | tuple[Step, ...] = ()
    """Tables on the way to the area."""
    occupants: dict[FileName, OccupantDeclaration] = {}
    """Rows of other tables from which attributes of the records follow, by names for them."""
    computed_from: dict[str, ComputedFromDeclaration] = {}
    """Tables from whose records columns were computed beforehand, by their names."""
    count: str | None = None
    """Column with the number of records of a row; by default one. The guarantee covers one of
    these records."""
    largest_count: int | None = Field(default=None, ge=1)
    """Most records of a row. The input must obey it, and the guarantee is charged for a whole
    row."""
    structural_zeros: tuple[StructuralZeroDeclaration, ...] = ()
    """Cells that are empty."""
    invariants: tuple[InvariantDeclaration, ...] = ()
    """Answers that are released exactly."""
    bounds: tuple[BoundDeclaration, ...] = ()
    """Bounds per record of another universe."""
    relations: tuple[RelationDeclaration, ...] = ()
    """Linear equalities and inequalities."""
    agree: tuple[AgreeDeclaration, ...] = ()
    """Ties to released records of earlier universes, followed with `run.coherent`."""
    held_to: tuple[HeldToDeclaration, ...] = ()
    """Answers of earlier releases."""
    identity: tuple[str, ...] = ()
    """Attributes by whose columns, before recoding, the ledger recognises the records again; if
    omitted, all columns that are read."""
    microdata: MicrodataDeclaration | None = None
    """Layout of its microdata."""
    public: bool = False
    """Whether the numbers of its records by its attributes are public, as of addresses. Bounds may
    then publish them, even if another universe protects records of the same table."""
    counted: CountedDeclaration | None = None
    """Count shown in maps and predicted deviations; left out, the number of its records."""

    @property
    def area_columns(self) -> tuple[str, ...]:
        """Columns with the codes that identify a record's area."""
        return (self.area,) if isinstance(self.area, str) else self.area or ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The tables on the way to the area, in order."""
        return (self.through,) if isinstance(self.through, Step) else self.through


class ContributionDeclaration(Part):
    """How many records a person may have in a table, such as jobs or visits. A rule holds the input
    to it, and all of a person's records are charged together."""

    person: str
    """Column of the table that identifies persons."""
    records_per_person: int = Field(ge=1)
    """Most records of one person."""


class MembersDeclaration(Part):
    """Persons from whom columns of their units follow, as in the Census Edited File: type of
    household, couple, children, numbers of young and old. With a table of persons, columns that
    units lack are computed, and existing ones must agree."""

    table: FileName
    """Table of the persons, which the input may leave out."""
    key: str
    """Column of both tables that identifies a unit."""


class CategoryDeclaration(Part):
    """Off-spine entities that optimised spines bring closer, from a column of the areas."""

    column: str
    """Column of the table of areas."""
    within: str | None = None
    """Geolevel within which the codes are unique; by default everywhere."""
    outside: tuple[str, ...] = ("",)
    """Codes of areas outside all entities."""


class BranchDeclaration(Part):
    """Areas that form a branch of their own below the root: the rows with one of these codes."""

    column: str
    """Column of the table of areas."""
    codes: Codes = Field(min_length=1)
    """Codes of the areas of the branch."""


class EntityColumns(Part):
    """Columns of the table of areas with names and points of the entities of a level. Every area
    of an entity repeats them, and tables of the level have them after its codes."""

    name: str | None = None
    """Column with the name."""
    latitude: str | None = None
    """Column with the latitude of a point inside, in degrees."""
    longitude: str | None = None
    """Column with its longitude."""

    def _refuse_misfits(self) -> None:
        if self.name is None and self.latitude is None:
            raise ValueError("needs a name, or a latitude and a longitude")
        if (self.latitude is None) != (self.longitude is None):
            raise ValueError("needs latitude and longitude, or neither")


class CensusGeography(Part):
    """The table of areas, and the geolevels that its columns make."""

    table: FileName = "geography"
    """Table of areas under `[input]`."""
    geolevels: tuple[FileName, ...] = Field(min_length=2)
    """Root first. The root is all of the table; every other is a column, whose codes need only be
    unique within the geolevel above. The last is one row of the table."""
    area_word: Label | None = None
    """Word for an area of the last geolevel, such as `block`; left out, an area, and in tables
    the geolevel's name."""
    columns: dict[str, str] = {}
    """Columns of geolevels that have another name than these."""
    rules: Literal["blocks"] | None = None
    """Rules of spines: the blocks of 2020; left out, the declared ones. Geocodes of blocks
    contain all geolevels, blocks without an address are in no spine, and AIAN areas form the
    branch."""
    skipped: tuple[str, ...] | None = None
    """Geolevels that some areas lack, such as a city that is a region and a district in one.
    Where their column is blank, the geounit above replaces theirs, under its own code."""
    categories: dict[FileName, CategoryDeclaration] = {}
    """Off-spine entities by name."""
    branch: BranchDeclaration | None = None
    """Areas that form a branch of their own."""
    entities: dict[Label, EntityColumns] = {}
    """Names and points of entities, by the geolevel, or another column that tables have as a
    level."""

    def _refuse_misfits(self) -> None:
        for name in self.skipped or ():
            if name not in self.geolevels[2:]:
                raise ValueError(
                    f"skips {name!r}, which is no geolevel below the first two; higher geolevels "
                    "cannot be skipped, since no geounit could take their place"
                )


class TableRows(Part):
    """Variables of a table: one that counts some records, or one for each level of an attribute."""

    where: Where = {}
    """The records that are counted; by default all."""
    each: str | None = None
    """Attribute or coarsening with a variable for each level that occurs among them."""


class TableDeclaration(Part):
    """A released table: answers to a query, or variables, for every entity of some levels."""

    name: FileName
    """Name of the files."""
    universe: str
    """Universe that is counted."""
    query: str = "total"
    """Query whose answers the table has."""
    rows: tuple[TableRows, ...] = ()
    """Its variables, numbered from 1, in place of a query."""
    where: Where = {}
    """The records that the table counts; by default all."""
    levels: tuple[str, ...] = ()
    """Geolevels or other columns of the table of areas; if omitted, the declared summary levels."""

    def _refuse_misfits(self) -> None:
        if self.rows and self.query != "total":
            raise ValueError("needs a query or rows, not both")


class CodePart(Part):
    """A part of the geocodes of summary levels."""

    digits: tuple[int, int] | None = None
    """First character of the area's code, and the one after the last."""
    column: str | None = None
    """Column of the table of areas."""
    outside: str | None = None
    """Code of the areas that are in no entity."""

    def _refuse_misfits(self) -> None:
        if (self.digits is None) == (self.column is None):
            raise ValueError("needs digits or a column")


class SummaryLevelDeclaration(Part):
    """A level of entities whose geocodes consist of parts."""

    code: str
    """Its code in files."""
    name: FileName
    """Its name in reports and file names."""
    parts: tuple[str, ...] = Field(min_length=1)
    """Parts of a geocode, by their names in `code_parts`."""

    @property
    def stem(self) -> str:
        """Name of its files, without ending.

        >>> SummaryLevelDeclaration(code="280", name="AIAN area", parts=("AIANHH",)).stem
        '280_aian_area'
        """
        return f"{self.code}_{self.name.replace(' ', '_').lower()}"


class QuantityDeclaration(Part):
    """Counts that reports of accuracy and criteria speak of together."""

    name: Label
    """Name in reports and criteria."""
    universe: str
    """Universe that is counted."""
    where: Where = {}
    """The records that are counted; by default all."""
    by: tuple[str, ...] = ()
    """Attributes or coarsenings with a count for each combination of levels; of one that `where`
    names, the levels given there, in their order."""
    label: str = "all records"
    """Label of the count, where there is one only."""
    meaning: str = ""
    """A sentence for reports."""


class GroupDeclaration(Part):
    """Groups that belong to a partition of a population: one, or one for each level."""

    where: Where = {}
    """The records of the group or groups; by default all."""
    each: str | None = None
    """Attribute or coarsening with a group for each level."""
    label: str = ""
    """Label, where there is one group."""


class LargestGroupDeclaration(Part):
    """The criterion on the share of the largest group of a population."""

    universe: str
    """Universe whose records are grouped."""
    populations: dict[Label, Where]
    """The populations by name: whom each counts."""
    groups: tuple[GroupDeclaration, ...] = Field(min_length=1)
    """Groups that partition a population."""
    title: Label | None = None
    """Title of the criterion in reports; left out, the share of the largest group."""
    group: Label | None = None
    """The group, in words."""


class SentenceDeclaration(Part):
    """Words of the certificate, in addition to the words that follow from the other
    declarations."""

    about: Literal["exact", "plain", "protected", "change"]
    """Their subject: an exact fact, the same for every reader; the protected records; or the
    change of one record that the guarantee compares."""
    universe: str
    """Universe that must be run for it."""
    name: str = ""
    """Name of an exact fact."""
    text: str
    """`{attributes}` becomes the attributes of the schema, `{at_most}` the largest bound."""
    holds: tuple[str, ...] = ()
    """Invariants that must be held, and attributes that the schema must have."""
    lacks: tuple[str, ...] = ()
    """Invariants and attributes of which there must be none."""
    tells: tuple[str, ...] = ()
    """Facts that an exact one words differently: `total of dwellings at section` for answers,
    `bound NAME of UNIVERSE per UNIVERSE`, or `areas`."""


class CensusDeclaration(Part):
    """A census: its areas, attributes, universes and tables."""

    layout: Literal["declared", "cef"] = "declared"
    """Particulars of the tables besides the declaration: none, or joins, group quarters, vacancy
    and rules between tables of the Census Edited File."""
    geography: CensusGeography
    """Areas and geolevels."""
    attributes: dict[FileName, AttributeDeclaration] = Field(min_length=1)
    """Attributes by name."""
    coarsenings: dict[FileName, CoarseningDeclaration] = {}
    """Coarsenings by name."""
    universes: dict[FileName, UniverseDeclaration] = Field(min_length=1)
    """Universes by name; earlier ones are released first."""
    files: dict[FileName, FilesDeclaration] | None = None
    """How the files of tables are written, by their names, or `other`."""
    contributions: dict[str, ContributionDeclaration] = {}
    """Tables in which a person may have several records, by their names; by default one."""
    members: dict[FileName, MembersDeclaration] = {}
    """Persons from whom columns of a table of units follow, by its name."""
    tables: tuple[TableDeclaration, ...] = ()
    """Tables to release."""
    code_parts: dict[str, CodePart] = {}
    """Parts of the geocodes of summary levels by name."""
    summary_levels: tuple[SummaryLevelDeclaration, ...] = ()
    """Levels of entities with geocodes of parts, in the order of the files."""
    quantities: tuple[QuantityDeclaration, ...] = ()
    """Quantities of accuracy reports; left out, the total and every measured query of few
    answers."""
    redistricting: LargestGroupDeclaration | None = None
    """The criterion of redistricting, where there is one."""
    certificate: tuple[SentenceDeclaration, ...] = ()
    """Words of the certificate; exact facts are named in any case."""

    @property
    def has_free_layout(self) -> bool:
        """Whether files have declared formats and numbers may have fractions, which are dropped."""
        return self.layout == "declared"

    def _refuse_misfits(self) -> None:
        is_of_cef = self.layout == "cef"
        if is_of_cef != (self.geography.rules == "blocks"):
            raise ValueError(
                "has geography.rules = 'blocks', which need the layout 'cef', as that needs them"
            )
        universes = self.universes.items()
        held = [name for name, universe in universes if universe.held_to]
        unread = {"files": self.files, "contributions": self.contributions, "held_to": held}
        nowhere = [name for name, universe in universes if universe.area is None]
        if is_of_cef and (idle := [key for key, declared in unread.items() if declared]):
            raise ValueError(f"has {idle[0]}, which the layout 'cef' does not read; remove it")
        if nowhere and not is_of_cef:
            raise ValueError(
                f"has the universe {nowhere[0]!r} without area, the column with the code of a "
                "record's area; add it"
            )
