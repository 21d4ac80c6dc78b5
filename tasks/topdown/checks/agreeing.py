"""What is expected of universes that agree, told to the independent check by columns and codes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.parquet as pq

from ....validation.topdown.agreements import AgreeingRows, ExpectedAgreement
from ...census.areas import code_columns
from ...census.attribute_declarations import Where
from ...runs.directory import RunDirectory
from ..paths import geography_file
from ..settings import TopdownSettings


def expected_agreements(
    run: RunDirectory, settings: TopdownSettings
) -> Iterator[ExpectedAgreement]:
    """The agreements of all universes of a run, on the microdata that are to be released."""
    census = settings.compiled_census
    for name in settings.run.universes:
        for one in census.universes[name].agreements:
            yield ExpectedAgreement(
                name,
                _rows(run, settings, name, one.where),
                _rows(run, settings, one.universe, one.of),
                one.at_most,
            )


def _rows(
    run: RunDirectory, settings: TopdownSettings, universe: str, where: Where
) -> AgreeingRows:
    census, schema = settings.compiled_census, settings.schema_of(universe)
    declared = census.universes[universe].declared
    file = run.unchecked_release / f"mdf_{universe}.parquet"
    if declared.microdata is None:
        area = code_columns(census.geolevels, pq.read_schema(geography_file(run)).names)
        labels = {attribute: [str(label) for label in named] for attribute, named in where.items()}
        return AgreeingRows(file, area, labels, declared.count)
    columns = declared.microdata.columns
    codes: dict[str, list[str]] = {}
    for attribute, named in where.items():
        column = next(column for column in columns if column.attribute == attribute)
        levels = [str(label) for label in schema.labels(attribute)]
        codes[column.name] = [
            column.codes[levels.index(label)]
            if column.codes is not None
            else f"{(column.first or 0) + levels.index(label):0{column.width}d}"
            for label in map(str, named)
        ]
    return AgreeingRows(file, [one.name for one in columns if one.digits is not None], codes)
