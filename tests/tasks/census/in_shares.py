"""The check of an input of which several tasks read shares."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.census.census_input import CensusInput, CensusTables
from spineflow.tasks.census.shares import check_shares, count_share, read_referred, read_share
from spineflow.tasks.runs.objects import write_object
from spineflow.tasks.tables.findings import InputCheck


def checked_in_shares(tables: CensusTables, folder: Path, of: int = 3) -> InputCheck[CensusInput]:
    """The check of tables that several tasks have read, by way of files."""
    write_object(folder / "referred", read_referred(tables))
    shares = []
    for number in range(of):
        referred = read_share(folder / "referred")
        write_object(folder / "share", count_share(tables, referred, (number, of)))
        shares.append(read_share(folder / "share"))
    return check_shares(tables, read_share(folder / "referred"), shares)
