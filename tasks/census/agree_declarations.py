"""How a declaration says that records agree with those of an earlier universe of the run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from ..runs.names import FileName, Label
from .attribute_declarations import Part, Where

PRESENCE, HOUSEHOLDERS, SIZES = "presence", "householders", "sizes"


class AgreeDeclaration(Part):
    """Records that agree with the released ones of an earlier universe in every area. Followed with
    `run.coherent`.

    `presence`: at most one for each of the others, and none of the others without one, as occupied
    units with persons. `householders`: as many as the others by every answer to the query, as
    householders and occupied dwellings. `sizes`: as many as fit into the others by their size, as
    persons in households and dwellings.
    """

    name: Label
    """Name in files, reports and messages."""
    kind: Literal["presence", "householders", "sizes"] = "presence"
    """`presence`, `householders` or `sizes`."""
    query: str = "total"
    """Of `presence`, the query that tells the records from the others of the universe. Of
    `householders`, what both universes tell of them with the same levels, such as the householder's
    sex."""
    where: Where = {}
    """The records that agree: of `presence`, some of the answers to the query; by default
    all."""
    universe: FileName
    """The earlier universe of the run."""
    of: Where = {}
    """Its records that are counted; by default all. Of `sizes`, there is nobody in the others."""
    at_most: int | None = Field(default=None, ge=1)
    """Of `presence`, most of its records for each record here, to which a bound of that universe
    holds it."""
    called: dict[str, str] = {}
    """Of `householders`, what that universe calls attributes and coarsenings of the query, where it
    is something else, such as `{ sex = "sex_of_householder" }`."""
    size: str | None = None
    """Of `sizes`, the attribute or coarsening of that universe that tells the size of its records.
    """
    people: dict[str, tuple[int, int]] = {}
    """Of `sizes`, the least and the most records here for one there of each size; one number where
    they are the same."""

    @field_validator("people", mode="before")
    @classmethod
    def _one_number_is_both(cls, people: object) -> object:
        if not isinstance(people, dict):
            return people
        return {
            size: (number, number) if isinstance(number, int) else number
            for size, number in people.items()
        }

    def _refuse_misfits(self) -> None:
        given = {
            "at_most": self.at_most is not None,
            "size": self.size is not None,
            "people": bool(self.people),
        }
        needed = {PRESENCE: {"at_most"}, HOUSEHOLDERS: set(), SIZES: {"size", "people"}}[self.kind]
        for key, is_given in given.items():
            if is_given and key not in needed:
                raise ValueError(f"{key} does nothing where kind is {self.kind!r}; take it out")
            if not is_given and key in needed:
                raise ValueError(f"kind {self.kind!r} needs {key}")
        if self.called and self.kind != HOUSEHOLDERS:
            raise ValueError(f"called does nothing where kind is {self.kind!r}; take it out")
        if self.kind == SIZES and self.query != "total":
            raise ValueError("query does nothing where kind is 'sizes'; take it out")
        for size, (least, most) in self.people.items():
            if not 0 <= least <= most:
                raise ValueError(
                    f"people of {size!r} are at least {least} and at most {most}; give two numbers "
                    "from 0 on, the smaller first"
                )

    @property
    def most(self) -> int:
        """`at_most` of `presence`, which always has it."""
        assert self.at_most is not None
        return self.at_most
