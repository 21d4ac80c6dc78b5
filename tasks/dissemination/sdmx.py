"""Released tables as SDMX: one structure file (SDMX-ML 2.1), and SDMX-CSV 2.0 for every table.

A table is a dataflow. Its dimensions are the level and the code of an area, and the attributes of
the table, or its variables. An observation is a count; its attributes are status, confidentiality
and margin. If a label is not a valid identifier of SDMX, its code is derived from it and the label
is the code's name. Files are made from the Parquet files of the release, so that both have the same
counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from ..runs.files import replacing
from .released_tables import AREA_COLUMNS, ReleasedTable, released_tables

if TYPE_CHECKING:
    from sdmx.message import StructureMessage

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
