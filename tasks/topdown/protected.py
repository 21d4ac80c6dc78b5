"""Interface of topdown for a comparison of protection methods: people, areas, releases."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import sparse

from ..census.areas import entities
from ..census.census_input import read_people
from ..census.counting import People
from ..census.declarations import TableDeclaration
from ..census.histograms import write_histogram
from ..census.invariants import read_geography
from ..census.schema import Schema
from ..runs.directory import RunDirectory
from ..study.search import scale_losses
from .checks.replicate import lay_out, link_run, run_replicate, with_estimator
from .ingest.ingest import completed, reading_of
from .measurement.public_answers import area_counts
from .paths import geography_file, held_file, invariants_file, state_totals_file
from .settings import TopdownSettings
from .trials import TRIALS
from .workload.sections import Estimator


@dataclass(frozen=True)
class TopdownCensus:
    """The census of topdown settings, on data that are not confidential."""

    settings: type[TopdownSettings] = TopdownSettings

    def schema(self, settings: TopdownSettings, universe: str) -> Schema:
        """The schema of a universe."""
        return settings.schema_of(universe)

    def tables(self, settings: TopdownSettings) -> tuple[TableDeclaration, ...]:
        """The tables that the census declares."""
        return settings.compiled_census.tables

    def levels(self, settings: TopdownSettings) -> tuple[str, ...]:
        """Geolevels, and the columns of areas that declared tables are by."""
        census = settings.compiled_census
        of_tables = (level for table in census.tables for level in table.levels)
        return tuple(dict.fromkeys([*census.geolevels, *of_tables]))

    def read(self, settings: TopdownSettings, universe: str, folder: Path) -> People:
        """Read and check the input, keep it in a folder for `release`, and list the people.

        Remains of an interrupted attempt are removed. Raises InputRefused.
        """
        TRIALS.read_input(TRIALS.measuring_only(settings, universe), folder)
        with TemporaryDirectory(dir=folder) as scratch:
            reading, _ = completed(reading_of(settings), Path(scratch))
            return read_people(reading, universe, Path(scratch))

    def entities(
        self, settings: TopdownSettings, folder: Path, level: str
    ) -> tuple[np.ndarray, list[str]]:
        """Each area's entity of one of the `levels`, -1 for none, and the entities' codes."""
        frame = read_geography(geography_file(RunDirectory(folder)))
        number, codes = entities(frame, settings.compiled_census.geolevels, level)
        return number, [str(code) for code in codes]

    def spending(
        self, settings: TopdownSettings, universe: str, rho: Fraction | None, estimator: Estimator
    ) -> TopdownSettings:
        """Settings of a run of one universe, by an estimator, that spends rho or its own budget."""
        own = with_estimator(TRIALS.measuring_only(settings, universe), estimator)
        if rho is None:
            return own
        return TRIALS.with_losses(own, universe, scale_losses(TRIALS.losses(own, universe), rho))

    def keep(
        self, settings: TopdownSettings, universe: str, people: People, dataset: Path, folder: Path
    ) -> None:
        """Keep in a new folder, for `release`, a copy of another, with other people of a universe
        in the same areas, as many in each.
        """
        source = RunDirectory(dataset)
        geocodes = read_geography(geography_file(source))["block_geocode"]
        shape = len(geocodes), settings.schema_of(universe).n_cells
        ones = np.ones(len(people), dtype=np.int64)
        histogram = sparse.csr_array((ones, (people.area, people.cell)), shape=shape)
        histogram.sum_duplicates()
        public = geography_file, invariants_file, held_file, state_totals_file
        names = [path.relative_to(dataset) for of in public if (path := of(source)).exists()]
        run = link_run(source, folder, *(name.as_posix() for name in names))
        write_histogram(run.histogram(universe), histogram, geocodes)

    def release(
        self, settings: TopdownSettings, universe: str, dataset: Path, seed: int, folder: Path
    ) -> sparse.csr_array:
        """Released counts `(n_areas, n_cells)` of a run under a seed, in an empty folder."""
        source = RunDirectory(dataset)
        layout = lay_out(source, settings, folder / "layout")
        run, _ = run_replicate(layout, settings, seed, folder)
        n_areas = len(read_geography(geography_file(source)))
        return area_counts(run, settings, universe, n_areas)


CENSUS = TopdownCensus()
