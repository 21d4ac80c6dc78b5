"""What is expected of universes that agree, told to the independent check by columns and codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow.parquet as pq

from ....validation.topdown.agreements import AgreeingRows, ExpectedAgreement, ExpectedNumbers
from ...census.agree_declarations import HOUSEHOLDERS, SIZES
from ...census.agreements import Agreement
from ...census.areas import code_columns
from ...census.attribute_declarations import Where
from ...census.queries import label_parts
from ...runs.directory import RunDirectory
from ..paths import geography_file
from ..settings import TopdownSettings

HOUSEHOLDERS_AGREE, SIZES_AGREE = "householders_agree", "sizes_agree"


def expected_agreements(
    run: RunDirectory, settings: TopdownSettings
) -> Iterator[ExpectedAgreement | ExpectedNumbers]:
    """The agreements of all universes of a run, on the microdata that are to be released."""
    census = settings.compiled_census
    for name in settings.run.universes:
        for one in census.universes[name].agreements:
            rows = _rows(run, settings, name, one.where)
            others = _rows(run, settings, one.universe, one.of)
            if one.kind == HOUSEHOLDERS:
                yield _householders(settings, name, one, rows, others)
            elif one.kind == SIZES:
                yield _sizes(settings, name, one, rows, others)
            else:
                yield ExpectedAgreement(name, rows, others, one.at_most)


def _householders(
    settings: TopdownSettings,
    name: str,
    one: Agreement,
    rows: AgreeingRows,
    others: AgreeingRows,
) -> ExpectedNumbers:
    """As many of both by every answer, which the attributes of each tell by their own codes."""
    parts = [part for part, _, _ in label_parts(settings.schema_of(name), one.query)]
    of_rows = tuple(_told(settings, name, part) for part in parts)
    of_others = tuple(_told(settings, one.universe, one.called.get(part, part)) for part in parts)
    due = replace(others, kinds=of_others)
    return ExpectedNumbers(HOUSEHOLDERS_AGREE, name, replace(rows, kinds=of_rows), due, due)


def _sizes(
    settings: TopdownSettings,
    name: str,
    one: Agreement,
    rows: AgreeingRows,
    others: AgreeingRows,
) -> ExpectedNumbers:
    """As many people as the sizes of the others have room for."""
    column, level_of_code = _told(settings, one.universe, one.size or "")
    least, most = (
        {code: one.people.get(level, (0, 0))[side] for code, level in level_of_code.items()}
        for side in (0, 1)
    )
    return ExpectedNumbers(
        SIZES_AGREE,
        name,
        rows,
        replace(others, weights=(column, least)),
        replace(others, weights=(column, most)),
    )


def _told(settings: TopdownSettings, universe: str, name: str) -> tuple[str, dict[str, str]]:
    """The column that tells an attribute or a coarsening of it, and the level of each code."""
    schema = settings.schema_of(universe)
    coarsening = schema.coarsening(name)
    attribute = name if coarsening is None else coarsening.attribute
    levels = schema.labels(attribute)
    if coarsening is not None:
        levels = tuple(coarsening.levels[group] for group in coarsening.groups)
    column, codes = _codes(settings, universe, attribute)
    return column, dict(zip(codes, levels, strict=True))


def _codes(settings: TopdownSettings, universe: str, attribute: str) -> tuple[str, list[str]]:
    """The column of microdata that tells an attribute, and the code of each of its levels."""
    labels = [str(label) for label in settings.schema_of(universe).labels(attribute)]
    microdata = settings.compiled_census.universes[universe].declared.microdata
    if microdata is None:
        return attribute, labels
    column = next(column for column in microdata.columns if column.attribute == attribute)
    if column.codes is not None:
        return column.name, list(column.codes)
    first = column.first or 0
    return column.name, [f"{first + at:0{column.width}d}" for at in range(len(labels))]


def _rows(
    run: RunDirectory, settings: TopdownSettings, universe: str, where: Where
) -> AgreeingRows:
    census = settings.compiled_census
    declared = census.universes[universe].declared
    file = run.unchecked_release / f"mdf_{universe}.parquet"
    codes = {}
    for attribute, chosen in settings.schema_of(universe).positions(where).items():
        column, of_levels = _codes(settings, universe, attribute)
        codes[column] = [of_levels[at] for at in chosen]
    if declared.microdata is None:
        area = code_columns(census.geolevels, pq.read_schema(geography_file(run)).names)
        return AgreeingRows(file, area, codes, declared.count)
    columns = declared.microdata.columns
    return AgreeingRows(file, [one.name for one in columns if one.digits is not None], codes)
