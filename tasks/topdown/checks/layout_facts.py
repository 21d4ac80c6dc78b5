"""The declared layout of microdata, in the plain facts that their check goes by."""

from __future__ import annotations

from ....validation.topdown.layout import Layout, LayoutColumn
from ...census.cef_2020 import CENSUS
from ...census.census import Census
from ...census.microdata import layout_of
from ...census.schema import Schema
from ..release.microdata import present_columns


def layout_facts(schema: Schema, census: Census = CENSUS) -> Layout:
    """The declared layout of a universe's microdata in plain facts."""
    declared = layout_of(schema.universe, census)
    own = census.universes[schema.universe].declared.attributes
    columns = []
    for column in present_columns(declared, schema, own):
        attribute: str | None = None
        codes: tuple[str, ...] = ()
        if column.attribute is not None:
            coarsening = schema.coarsening(column.attribute)
            attribute = coarsening.attribute if coarsening else column.attribute
            groups = coarsening.groups if coarsening else range(len(schema.labels(attribute)))
            listed, first = column.codes, column.first or 0
            codes = tuple(listed[g] if listed else f"{first + g:0{column.width}d}" for g in groups)
        columns.append(
            LayoutColumn(
                column.name, column.constant, column.digits, column.number, attribute, codes
            )
        )
    further = {} if declared.further is None else declared.further.values
    return Layout(tuple(columns), further)
