"""Makes the reference in docs/declared_censuses.md from the models of the language.

Run it after a change of `tasks/census/declarations.py` or `attribute_declarations.py`; a test tells
when the page is not current.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pydantic import BaseModel
from spineflow.tasks.census import attribute_declarations, declarations

PAGE = Path(__file__).parent / "declared_censuses.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->\n"

PLACES = {
    "CensusDeclaration": "`[census]`",
    "FilesDeclaration": "`[census.files.<table>]`",
    "CellDeclaration": "An entry of `cells`",
    "CensusGeography": "`[census.geography]`",
    "CategoryDeclaration": "`[census.geography.categories.<name>]`",
    "BranchDeclaration": "`[census.geography.branch]`",
    "EntityColumns": "`[census.geography.entities.<level>]`",
    "AttributeDeclaration": "`[census.attributes.<name>]`",
    "LevelRule": "An entry of `rules`",
    "RefusedCodes": "An entry of `refused`",
    "CodeRange": "A range among the codes of a level",
    "CoarseningDeclaration": "`[census.coarsenings.<name>]`",
    "UniverseDeclaration": "`[census.universes.<name>]`",
    "Step": "`through`, or an entry of it",
    "OccupantDeclaration": "`[census.universes.<name>.occupants.<name>]`",
    "ComputedFromDeclaration": "`[census.universes.<name>.computed_from.<table>]`",
    "StructuralZeroDeclaration": "`[[census.universes.<name>.structural_zeros]]`",
    "InvariantDeclaration": "`[[census.universes.<name>.invariants]]`",
    "BoundDeclaration": "`[[census.universes.<name>.bounds]]`",
    "RelationDeclaration": "`[[census.universes.<name>.relations]]`",
    "Term": "An entry of `left` or `right`",
    "AgreeDeclaration": "`[[census.universes.<name>.agree]]`",
    "HeldToDeclaration": "`[[census.universes.<name>.held_to]]`",
    "MicrodataDeclaration": "`[census.universes.<name>.microdata]`",
    "MicrodataColumn": "`[[census.universes.<name>.microdata.columns]]`",
    "DescribedByDeclaration": "`[census.universes.<name>.microdata.described_by]`",
    "FurtherRecords": "`[census.universes.<name>.microdata.further]`",
    "CountedDeclaration": "`[census.universes.<name>.counted]`",
    "ContributionDeclaration": "`[census.contributions.<table>]`",
    "MembersDeclaration": "`[census.members.<table>]`",
    "TableDeclaration": "`[[census.tables]]`",
    "TableRows": "An entry of a table's `rows`",
    "CodePart": "`[census.code_parts.<name>]`",
    "SummaryLevelDeclaration": "`[[census.summary_levels]]`",
    "QuantityDeclaration": "`[[census.quantities]]`",
    "LargestGroupDeclaration": "`[census.redistricting]`",
    "SentenceDeclaration": "`[[census.certificate]]`",
    "GroupDeclaration": "`[[census.redistricting.groups]]`",
}
"""Where each part of the language stands in a settings file."""


def reference() -> str:
    """The reference: a table of keys for each part of the language."""
    sections = []
    for name, place in PLACES.items():
        model = model_of(name)
        notes = field_notes(model)
        lines = [f"### {place}\n", " ".join(inspect.getdoc(model).split()) + "\n"]
        lines += ["| key | needed | meaning |", "|---|---|---|"]
        for key, field in model.model_fields.items():
            needed = "yes" if field.is_required() else "no"
            lines.append(f"| `{field.alias or key}` | {needed} | {notes.get(key, '')} |")
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def model_of(name: str) -> type[BaseModel]:
    """A part of the language by its name."""
    module = declarations if hasattr(declarations, name) else attribute_declarations
    return getattr(module, name)


def field_notes(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings that stand under the fields of a model."""
    source = inspect.getsource(model)
    found = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()).replace("|", "\\|") for name, text in found}


def with_reference(page: str) -> str:
    """The page with its reference made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
