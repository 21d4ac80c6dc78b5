"""What is expected of universes that agree, told to the independent check by columns and codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ....validation.topdown.agreements import AgreeingRows, ExpectedAgreement
from ...census.attribute_declarations import Where
from ...census.census import Universe
from ...census.schema import Schema
from ..settings import TopdownSettings


def expected_agreements(settings: TopdownSettings, release: Path) -> Iterator[ExpectedAgreement]:
    """The agreements of all universes of a run, on the microdata in a folder."""
    census = settings.compiled_census
    for name in settings.run.universes:
        for one in census.universes[name].agreements:
            yield ExpectedAgreement(
                name,
                _rows(census.universes[name], settings.schema_of(name), one.where, release),
                _rows(
                    census.universes[one.universe],
                    settings.schema_of(one.universe),
                    one.of,
                    release,
                ),
                one.at_most,
            )


def _rows(universe: Universe, schema: Schema, where: Where, release: Path) -> AgreeingRows:
    microdata = universe.declared.microdata
    columns = () if microdata is None else microdata.columns
    codes: dict[str, list[str]] = {}
    for attribute, named in where.items():
        column = next(column for column in columns if column.attribute == attribute)
        labels = [str(label) for label in schema.labels(attribute)]
        codes[column.name] = [
            column.codes[labels.index(label)]
            if column.codes is not None
            else f"{(column.first or 0) + labels.index(label):0{column.width}d}"
            for label in map(str, named)
        ]
    area = [column.name for column in columns if column.digits is not None]
    return AgreeingRows(release / f"mdf_{universe.name}.parquet", area, codes)
