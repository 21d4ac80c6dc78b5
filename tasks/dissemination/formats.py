"""Released tables in formats of others: CSV on the Web, GeoParquet and SDMX.

CSV on the Web (W3C) describes the CSV tables: every table with its keys, and every column with its
type and meaning: that a count is empty where it is suppressed, and which columns are the margin of
which count.

GeoParquet 1.1 has a row for each area, with its geometry as WKB. A file has one level of one table,
as one layer of a map. The file's metadata `geo` follow the specification; geometry and system of
coordinates are taken from the input.

SDMX has one structure file (SDMX-ML 2.1), and SDMX-CSV 2.0 for every table.
A table is a dataflow. Its dimensions are the level and the code of an area, and the attributes of
the table, or its variables. An observation is a count; its attributes are status, confidentiality
and margin. If a label is not a valid identifier of SDMX, its code is derived from it and the label
is the code's name. Files are made from the Parquet files of the release, so that both have the same
counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from ..runs.files import replacing, write_record
from ..runs.stamps import write_parquet
from ..tables.geometry import Shapes, read_shapes
from .released_tables import (
    AREA_COLUMNS,
    SUMMARY_LEVELS,
    LevelCounts,
    ReleasedTable,
    codes_by_level,
    counts_by_level,
    released_tables,
)

if TYPE_CHECKING:
    from sdmx.message import StructureMessage

METADATA = "csv-metadata.json"
"""Where readers look for the metadata of a folder."""

CONTEXT = ["http://www.w3.org/ns/csvw", {"@language": "en"}]

MARGIN = "{} end of an interval that holds the true count with a probability of 90 %"

DESCRIPTIONS = {
    "level": "Kind of the area",
    "code": "Code of the area within its level",
    "name": "Name of the area",
    "count": "Released count, with noise; empty where it is suppressed, which never means 0",
    "lower": MARGIN.format("Lower"),
    "upper": MARGIN.format("Upper"),
}
"""By column of declared tables; `AREA_COLUMNS` maps columns of summary levels to them."""


def write_csvw(release: Path, labels: Mapping[str, str]) -> Path:
    """Write the metadata of all CSV tables of a release and of their margins.

    Args:
        release: The folder of the release, with its `tables`.
        labels: Labels of variables, by name.
    """
    tables = [own for table in released_tables(release) for own in _describe_table(table, labels)]
    path = release / "tables" / METADATA
    write_record(path, {"@context": CONTEXT, "tables": tables})
    return path


def _describe_table(table: ReleasedTable, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A table and its margins, which have the same keys."""
    keys = [_name(own) for own in table.dimensions]
    title = table.path.stem.replace("_", " ")
    for path, about in ((table.path, title), (table.margins, f"Margins of {title}")):
        if not path.exists():
            continue
        schema = pq.read_schema(path)
        described: dict[str, Any] = {
            "columns": [_column(table, field, labels) for field in schema],
            "primaryKey": keys,
        }
        if path != table.path:
            whole = {"resource": table.path.with_suffix(".csv").name, "columnReference": keys}
            described["foreignKeys"] = [{"columnReference": keys, "reference": whole}]
        yield {
            "url": path.with_suffix(".csv").name,
            "dc:title": about,
            **({"dc:description": table.stamp} if table.stamp else {}),
            "dialect": {"commentPrefix": "#", "encoding": "utf-8"},
            "tableSchema": described,
        }


def _column(table: ReleasedTable, field: pa.Field, labels: Mapping[str, str]) -> dict[str, Any]:
    """A column, whose empty fields are missing values."""
    name = field.name
    stem, _, end = name.rpartition("_")
    if name in table.counts and table.has_variables:
        about = f"{DESCRIPTIONS['count']}: {labels.get(name, name)}"
    elif stem in table.counts:
        about = f"{DESCRIPTIONS[end.lower()]}: {labels.get(stem, stem)}"
    else:
        own = AREA_COLUMNS.get(name, name)
        about = DESCRIPTIONS.get(own, own.replace("_", " "))
    kind = "string"
    if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
        kind = "integer" if pa.types.is_integer(field.type) else "number"
    return {
        "name": _name(name),
        "titles": name,
        "datatype": kind,
        "dc:description": about,
        "null": "",
        "required": AREA_COLUMNS.get(name, name) in ("level", "code"),
    }


def _name(title: str) -> str:
    """A title as a name of CSVW, which has letters, digits and lines alone."""
    return quote(title, safe="").replace("-", "%2D").replace("~", "%7E")


GEOMETRY = "geometry"


def write_geoparquet(release: Path, geometry: Path, labels: Mapping[str, str]) -> list[Path]:
    """Write every level of every table that has geometry, into the folder `geo` of a release.

    Areas without geometry have none in the file.

    Args:
        release: The folder of the release, with its `tables`.
        geometry: Boundaries of areas, as a file or a folder of them.
        labels: Labels of variables, by name.

    Returns:
        The files.

    Raises:
        InputRefused: Geometry cannot be read.
    """
    levels = [own for table in released_tables(release) for own in counts_by_level(table, labels)]
    files = []
    for layer in read_shapes(geometry, codes_by_level(levels)):
        for own in levels:
            if own.level == layer.level:
                table = "" if own.table == SUMMARY_LEVELS else f"{own.table}_"
                name = f"{table}{own.level}".replace(" ", "_").replace("/", "_")
                files.append(release / "geo" / f"{name}.parquet")
                files[-1].parent.mkdir(exist_ok=True)
                # Arrow pads a dictionary with previous contents of the memory.
                write_parquet(files[-1], table_of(own, layer), use_dictionary=False)
    return files


def table_of(counts: LevelCounts, layer: Shapes) -> pa.Table:
    """One level of a table with its geometry: code, name, then count and margin by variable."""
    from shapely import to_wkb, union_all

    shapes = {code: union_all(own) for code, own in layer.shapes.items() if code in counts.codes}
    columns: dict[str, Any] = {
        "code": pa.array(counts.codes, pa.string()),
        "name": pa.array(counts.names, pa.string()),
    }
    for number, variable in enumerate(counts.variables):
        for figure, values in counts.figures.items():
            name = variable if figure == "count" else f"{variable}, {figure}"
            columns[name] = pa.array(values[:, number], pa.int64(), from_pandas=True)
    columns[GEOMETRY] = pa.array(
        [to_wkb(shapes[code]) if code in shapes else None for code in counts.codes], pa.binary()
    )
    geo = {
        "version": "1.1.0",
        "primary_column": GEOMETRY,
        "columns": {
            GEOMETRY: {
                "encoding": "WKB",
                "geometry_types": sorted({shape.geom_type for shape in shapes.values()}),
                "crs": None if layer.crs is None else layer.crs.to_json_dict(),
            }
        },
    }
    return pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})


VERSION = "1.0.0"
NORMAL, SUPPRESSED, FREE = "A", "Q", "F"
"""Codes of CL_OBS_STATUS and CL_CONF_STATUS."""

STRUCTURE = "structures.xml"
ATTRIBUTES = ("OBS_STATUS", "CONF_STATUS", "LOWER", "UPPER", "COMMENT_OBS")


@dataclass(frozen=True, eq=False)
class Dataflow:
    """A table as SDMX has it."""

    table: ReleasedTable

    @property
    def id(self) -> str:
        """The dataflow's identifier, which begins with a letter."""
        code = code_of(self.table.path.stem)
        return code if code[0].isalpha() else f"T{code}"

    @cached_property
    def codes(self) -> dict[str, dict[str, str]]:
        """Code of every label of every dimension, by the dimension's identifier."""
        labels = pq.read_table(self.table.path, columns=list(self.table.dimensions))
        found = {
            AREA_COLUMNS.get(name, name): labels[name].unique().to_pylist()
            for name in self.table.dimensions
        }
        if self.table.has_variables:
            found["variable"] = list(self.table.counts)
        return {code_of(name): codes_of(own) for name, own in found.items()}

    def observations(self, structure: str) -> Iterator[pa.RecordBatch]:
        """The rows of the SDMX-CSV file, whose `STRUCTURE_ID` is given, in batches."""
        table, counts = self.table, self.table.counts
        for rows, *bounds in table.batches():
            n = len(rows) * len(counts)
            columns: dict[str, pa.Array] = {
                "STRUCTURE": pa.repeat("dataflow", n),
                "STRUCTURE_ID": pa.repeat(structure, n),
                "ACTION": pa.repeat("R", n),
            }
            for (name, codes), column in zip(self.codes.items(), table.dimensions, strict=False):
                own = [codes[label] for label in rows[column].to_pylist()]
                columns[name] = pa.array(np.repeat(np.array(own, dtype=object), len(counts)))
            if table.has_variables:
                variables = list(self.codes["VARIABLE"].values())
                columns["VARIABLE"] = pa.array(np.tile(variables, len(rows)))
            values = _interleave_columns(rows, counts)
            columns["OBS_VALUE"] = values.cast(pa.string()).fill_null("NaN")
            columns["OBS_STATUS"] = pc.if_else(values.is_null(), SUPPRESSED, NORMAL)
            columns["CONF_STATUS"] = pa.repeat(FREE, n)
            for end in ("lower", "upper"):
                columns[end.upper()] = pa.nulls(n, pa.int64())
                if bounds:
                    columns[end.upper()] = _interleave_columns(bounds[0], table.ends(end))
            columns["COMMENT_OBS"] = pa.repeat(pa.scalar(table.stamp or None, pa.string()), n)
            yield pa.record_batch(columns)


def write_sdmx(release: Path, agency: str) -> list[Path]:
    """Write the tables of a release as SDMX, into its folder `sdmx`.

    Args:
        release: The folder of the release, with its `tables`.
        agency: Identifier of the agency that maintains the structures.

    Returns:
        The structure file, and a file of data for each table.
    """
    import sdmx  # 1 s

    flows = [Dataflow(table) for table in released_tables(release)]
    folder = release / "sdmx"
    folder.mkdir(exist_ok=True)
    files = [folder / STRUCTURE]
    with replacing(files[0]) as path:
        path.write_bytes(sdmx.to_xml(structures(flows, agency), pretty_print=True))
    for flow in flows:
        files.append(folder / f"{flow.id}.csv")
        with replacing(files[-1]) as path, path.open("wb") as file:
            batches = flow.observations(f"{agency}:{flow.id}({VERSION})")
            first = next(batches)
            # Codes need no quotes.
            plain = pcsv.WriteOptions(quoting_style="none", quoting_header="none")
            with pcsv.CSVWriter(file, first.schema, write_options=plain) as writer:
                for batch in chain([first], batches):
                    writer.write_batch(batch)
    return files


def structures(flows: Sequence[Dataflow], agency: str) -> StructureMessage:
    """Dataflows, data structures, concepts and code lists of tables, as sdmx1 has them."""
    from sdmx.message import StructureMessage
    from sdmx.model import common, v21

    owner = common.Agency(id=agency)
    own: dict[str, Any] = {"maintainer": owner, "version": VERSION}
    message = StructureMessage()
    concepts = common.ConceptScheme(id="CS_TABLES", name="Concepts of released tables", **own)
    message.add(concepts)

    def concept(name: str) -> Any:
        if name not in concepts:
            concepts.append(common.Concept(id=name, name=name.capitalize().replace("_", " ")))
        return concepts[name]

    for flow in flows:
        name = flow.table.path.stem
        structure = v21.DataStructureDefinition(id=f"DSD_{flow.id}", name=name, **own)
        for dimension, codes in flow.codes.items():
            codelist = common.Codelist(id=f"CL_{flow.id}_{dimension}", name=dimension, **own)
            codelist.extend(common.Code(id=code, name=label) for label, code in codes.items())
            message.add(codelist)
            listed = common.Representation(enumerated=codelist)
            structure.dimensions.append(
                v21.Dimension(
                    id=dimension, concept_identity=concept(dimension), local_representation=listed
                )
            )
        structure.measures.append(
            v21.PrimaryMeasure(id="OBS_VALUE", concept_identity=concept("OBS_VALUE"))
        )
        for attribute in ATTRIBUTES:
            structure.attributes.append(
                v21.DataAttribute(
                    id=attribute,
                    concept_identity=concept(attribute),
                    related_to=v21.PrimaryMeasureRelationship(),
                )
            )
        message.add(structure)
        message.add(v21.DataflowDefinition(id=flow.id, name=name, structure=structure, **own))
    return message


def code_of(label: str) -> str:
    """A label as an identifier of SDMX; `_Z`, not applicable, for none.

    >>> code_of("never married"), code_of("18-24"), code_of("")
    ('NEVER_MARRIED', '18-24', '_Z')
    """
    return re.sub(r"[^A-Za-z0-9_@$-]+", "_", label).upper() or "_Z"


def codes_of(labels: Sequence[str]) -> dict[str, str]:
    """A code for each label; a number is appended to codes that would be equal.

    >>> codes_of(["a b", "a/b", "c"])
    {'a b': 'A_B', 'a/b': 'A_B_2', 'c': 'C'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for label in labels:
        code = wanted = code_of(str(label))
        number = 1
        while code in taken:
            number += 1
            code = f"{wanted}_{number}"
        taken.add(code)
        found[label] = code
    return found


def _interleave_columns(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Columns of numbers, row by row, as one; nulls stay."""
    columns = [rows[name].cast(pa.int64()) for name in names]
    order = np.arange(len(columns) * len(rows)).reshape(len(columns), -1).T.ravel()
    return pa.concat_arrays(columns).take(pa.array(order))
