"""Tables that meet the structural zeros of the persons of the 2020 DHC product.

Production's tables are edited before they are counted; generated and imputed ones need not be: an
inmate may be too young for a prison for adults. Ages are moved here, to the nearest one that the
person's relationship or type of group quarters allows on the same side of voting age.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from spineflow.tasks.census.census import preset_census

CENSUS = "dhc_persons_2020"
ADULT = 18


def write_edited(source: Path, target: Path) -> int:
    """Write the tables of a folder with ages edited; returns the number of persons edited."""
    target.mkdir(parents=True, exist_ok=True)
    for name in ("units.parquet", "grfc.txt"):
        shutil.copy(source / name, target / name)
    persons = pq.read_table(source / "persons.parquet")
    schema = preset_census(CENSUS).universes["persons"].schema
    forbidden = np.zeros(schema.shape[:3], dtype=bool)
    for zero in preset_census(CENSUS).universes["persons"].zeros:
        chosen = schema.positions(zero.where)
        forbidden[np.ix_(chosen["relgq"], range(2), chosen["age"])] = True
    relation = np.array(persons["RELSHIP"].to_pylist(), dtype=np.int64)
    kind = [str(code or "").strip() for code in persons["QGQTYP"].to_pylist()]
    labels = schema.labels("relgq")
    rest = ("702", "704", "706", "903", "904")
    typed = np.array(
        [labels.index(f"GQ {997 if code in rest else code}") if code else -1 for code in kind]
    )
    # Householders alone and not alone have the same ages.
    level = np.where(typed >= 0, typed, np.where(relation == 20, 1, relation - 19))
    age = np.array(persons["QAGE"].to_pylist(), dtype=np.int64)
    edited = np.flatnonzero(forbidden[level, 0, age])
    for row in edited:
        allowed = np.flatnonzero(~forbidden[level[row], 0])
        allowed = allowed[(allowed < ADULT) == (age[row] < ADULT)]
        age[row] = allowed[np.abs(allowed - age[row]).argmin()]
    field = persons.schema.field("QAGE")
    column = pa.array(age if pa.types.is_integer(field.type) else age.astype(str), field.type)
    place = persons.schema.get_field_index("QAGE")
    pq.write_table(persons.set_column(place, field, column), target / "persons.parquet")
    return edited.size


def levels(text: str) -> list[int]:
    """Levels of a list of them such as `1-3, 7`."""
    return [
        level
        for part in text.split(",")
        for level in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
    ]
