"""Released tables as SDMX: one structure file (SDMX-ML 2.1), and SDMX-CSV 2.0 for every table.

A table is a dataflow. Its dimensions are the level and the code of an area, and the attributes of
the table, or its variables. An observation is a count; its attributes are status, confidentiality
and margin. Where a label is no identifier of SDMX, its code is made of it and the label is the
code's name. Files are made of the Parquet files of the release, so that both have the same counts.
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
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from ..runs.files import STAMP_KEY, replacing

if TYPE_CHECKING:
    from sdmx.message import StructureMessage

VERSION = "1.0.0"
NORMAL, SUPPRESSED, FREE = "A", "Q", "F"
"""Codes of CL_OBS_STATUS and CL_CONF_STATUS."""

STRUCTURE = "structures.xml"
ATTRIBUTES = ("OBS_STATUS", "CONF_STATUS", "LOWER", "UPPER", "COMMENT_OBS")
ROWS_PER_BATCH = 1 << 12

AREA_COLUMNS = {"SUMLEV": "level", "GEOCODE": "code"}
"""Columns of tables of summary levels by those of declared tables."""


@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """A table of a release, as its Parquet file has it.

    path : of the table. dimensions : columns that identify a row. counts : columns of counts; one
    of `count`, or one for each variable.
    """

    path: Path
    dimensions: tuple[str, ...]
    counts: tuple[str, ...]

    @property
    def id(self) -> str:
        """The dataflow's identifier, which begins with a letter."""
        code = code_of(self.path.stem)
        return code if code[0].isalpha() else f"T{code}"

    @property
    def has_variables(self) -> bool:
        """Whether its columns of counts are a dimension."""
        return self.counts != ("count",)

    @cached_property
    def codes(self) -> dict[str, dict[str, str]]:
        """Code of every label of every dimension, by the dimension's identifier."""
        labels = pq.read_table(self.path, columns=list(self.dimensions))
        found = {
            AREA_COLUMNS.get(name, name): labels[name].unique().to_pylist()
            for name in self.dimensions
        }
        if self.has_variables:
            found["variable"] = list(self.counts)
        return {code_of(name): codes_of(own) for name, own in found.items()}

    def observations(self, structure: str) -> Iterator[pa.RecordBatch]:
        """The rows of the SDMX-CSV file, whose `STRUCTURE_ID` is given, in batches."""
        margins = self.path.with_stem(f"{self.path.stem}_margins")
        metadata = pq.read_schema(self.path).metadata or {}
        comment = metadata.get(STAMP_KEY.encode(), b"").decode() or None
        parts = [_batches(path) for path in (self.path, margins) if path.exists()]
        for rows, *bounds in zip(*parts, strict=True):
            n, n_counts = len(rows), len(self.counts)
            columns: dict[str, pa.Array] = {
                "STRUCTURE": _repeated("dataflow", n * n_counts),
                "STRUCTURE_ID": _repeated(structure, n * n_counts),
                "ACTION": _repeated("R", n * n_counts),
            }
            for (name, codes), column in zip(self.codes.items(), self.dimensions, strict=False):
                own = [codes[label] for label in rows[column].to_pylist()]
                columns[name] = pa.array(np.repeat(np.array(own, dtype=object), n_counts))
            if self.has_variables:
                columns["VARIABLE"] = pa.array(np.tile(list(self.codes["VARIABLE"].values()), n))
            values = _interleaved(rows, self.counts)
            columns["OBS_VALUE"] = values.cast(pa.string()).fill_null("NaN")
            columns["OBS_STATUS"] = _statuses(values)
            columns["CONF_STATUS"] = _repeated(FREE, n * n_counts)
            for end in ("lower", "upper"):
                names = [f"{own}_{end.upper()}" for own in self.counts]
                columns[end.upper()] = (
                    _interleaved(bounds[0], names if self.has_variables else [end])
                    if bounds
                    else pa.nulls(n * n_counts, pa.int64())
                )
            columns["COMMENT_OBS"] = pa.repeat(pa.scalar(comment, pa.string()), n * n_counts)
            yield pa.record_batch(columns)


def released_tables(release: Path) -> list[ReleasedTable]:
    """The tables of counts of areas that a release has, by name."""
    found = []
    for path in sorted((release / "tables").glob("*.parquet")):
        names = pq.read_schema(path).names
        variables = tuple(name for name in names if re.fullmatch(r"[A-Z]\d{7}", name))
        if variables:
            found.append(ReleasedTable(path, tuple(AREA_COLUMNS), variables))
        elif "count" in names:
            described = ("name", "latitude", "longitude", "label", "count")
            dimensions = tuple(name for name in names if name not in described)
            found.append(ReleasedTable(path, dimensions, ("count",)))
    return found


def write_sdmx(release: Path, agency: str) -> list[Path]:
    """Write the tables of a release as SDMX, into its folder `sdmx`.

    Args:
        release: The folder of the release, with its `tables`.
        agency: Identifier of the agency that maintains the structures.

    Returns:
        The structure file, and a file of data for each table.
    """
    import sdmx  # 1 s

    tables, folder = released_tables(release), release / "sdmx"
    folder.mkdir(exist_ok=True)
    files = [folder / STRUCTURE]
    with replacing(files[0]) as path:
        path.write_bytes(sdmx.to_xml(structures(tables, agency), pretty_print=True))
    for table in tables:
        files.append(folder / f"{table.id}.csv")
        with replacing(files[-1]) as path, path.open("wb") as file:
            batches = table.observations(f"{agency}:{table.id}({VERSION})")
            first = next(batches)
            # Codes need no quotes.
            plain = pcsv.WriteOptions(quoting_style="none", quoting_header="none")
            with pcsv.CSVWriter(file, first.schema, write_options=plain) as writer:
                for batch in chain([first], batches):
                    writer.write_batch(batch)
    return files


def structures(tables: Sequence[ReleasedTable], agency: str) -> StructureMessage:
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

    for table in tables:
        structure = v21.DataStructureDefinition(id=f"DSD_{table.id}", name=table.path.stem, **own)
        for name, codes in table.codes.items():
            codelist = common.Codelist(id=f"CL_{table.id}_{name}", name=name, **own)
            codelist.extend(common.Code(id=code, name=label) for label, code in codes.items())
            message.add(codelist)
            listed = common.Representation(enumerated=codelist)
            structure.dimensions.append(
                v21.Dimension(id=name, concept_identity=concept(name), local_representation=listed)
            )
        structure.measures.append(
            v21.PrimaryMeasure(id="OBS_VALUE", concept_identity=concept("OBS_VALUE"))
        )
        for name in ATTRIBUTES:
            structure.attributes.append(
                v21.DataAttribute(
                    id=name,
                    concept_identity=concept(name),
                    related_to=v21.PrimaryMeasureRelationship(),
                )
            )
        message.add(structure)
        message.add(
            v21.DataflowDefinition(id=table.id, name=table.path.stem, structure=structure, **own)
        )
    return message


def code_of(label: str) -> str:
    """A label as an identifier of SDMX; `_Z`, not applicable, for none.

    >>> code_of("never married"), code_of("18-24"), code_of("")
    ('NEVER_MARRIED', '18-24', '_Z')
    """
    return re.sub(r"[^A-Za-z0-9_@$-]+", "_", label).upper() or "_Z"


def codes_of(labels: Sequence[str]) -> dict[str, str]:
    """A code for each label; those whose codes would be equal have a number behind them.

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


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file in batches of a known size; one without rows if it has none."""
    file = pq.ParquetFile(path)
    if not file.metadata.num_rows:
        yield pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
    yield from file.iter_batches(ROWS_PER_BATCH)


def _repeated(text: str, n: int) -> pa.Array:
    return pa.repeat(text, n)


def _interleaved(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Columns of numbers, row by row, as one; nulls stay."""
    columns = [rows[name].cast(pa.int64()) for name in names]
    order = np.arange(len(columns) * len(rows)).reshape(len(columns), -1).T.ravel()
    return pa.concat_arrays(columns).take(pa.array(order))


def _statuses(values: pa.Array) -> pa.Array:
    """Suppressed where there is no count, and normal elsewhere."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(is_null, SUPPRESSED, NORMAL))
