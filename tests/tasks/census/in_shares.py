"""The check of an input of which several tasks read shares."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.census.census_input import CensusInput, CensusTables, read_share
from spineflow.tasks.runs.objects import write_object
from spineflow.tasks.tables.findings import InputCheck


def checked_in_shares(tables: CensusTables, folder: Path, of: int = 3) -> InputCheck[CensusInput]:
    """The check of tables that several tasks have read, by way of files."""
    write_object(folder / "referred", tables.read_referred())
    shares = []
    for number in range(of):
        referred = read_share(folder / "referred")
        write_object(folder / "share", tables.count_share(referred, (number, of)))
        shares.append(read_share(folder / "share"))
    return tables.check_shares(read_share(folder / "referred"), shares)
