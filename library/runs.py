"""A run directory as data frames: its public content.

Nothing here opens the run's `confidential/` folder, but for the errors of input that is not
confidential.

A text file of a run that is not private begins with the line `# NOT PRIVATE`, before the header,
after which a download of a page gives the reason; a Parquet file has the stamp in its metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import spineflow.plots
from spineflow.answers import order_labels, read_answers, refuse_unknown
from spineflow.budgets import guarantees_of, queries_of
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.products.budget import Cost
from spineflow.tasks.products.product import OF_ONE_INPUT, find_product
from spineflow.tasks.runs.directory import RunDirectory, refuse_altered
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import NOT_PRIVATE, STAMP_KEY
from spineflow.tasks.runs.settings_files import settings_of_run, settings_tree
from spineflow.tasks.topdown.settings import TopdownSettings

DELIMITERS = ("|", ",", "\t")
CODES = ("_ID", "_CODE", "_TYPE")
"""Endings of the names of columns of codes, in files without a Parquet copy."""

PRIVACY = "privacy"
"""Attribute of a frame (`frame.attrs`) with its privacy status."""


def read_table(path: str | Path) -> pd.DataFrame:
    """A table that a run has written, `.parquet` or `.csv`, as a data frame.

    The delimiter of a text file is detected, and its stamp is no row. Its columns have the types of
    its Parquet copy; without one, codes are text, with leading zeros, and other columns are numbers
    where possible. `frame.attrs["privacy"]` is `"NOT PRIVATE"` for a stamped
    file, else `"private"`.

    Raises SpineflowError for a missing file, or one that is no such table.

    Example: `spineflow.read_table("run/release/mdf_persons.csv")`.
    """
    file = Path(path)
    try:
        if file.suffix == ".parquet":
            table = pq.read_table(file)
            is_stamped = (table.schema.metadata or {}).get(STAMP_KEY.encode()) is not None
            frame = table.replace_schema_metadata().to_pandas()
        else:
            frame, is_stamped = _read_text(file)
    except FileNotFoundError:
        raise InputRefused(f"{file}: there is no such file; check the path.") from None
    except (ValueError, OSError):
        raise InputRefused(
            f"{file}: this is no table of a release; name a .csv or .parquet file of one."
        ) from None
    frame.attrs[PRIVACY] = NOT_PRIVATE if is_stamped else "private"
    return frame


def _read_text(file: Path) -> tuple[pd.DataFrame, bool]:
    with file.open(encoding="utf-8", newline="") as lines:
        first = lines.readline().rstrip("\r\n")
        is_stamped = first.startswith(f"# {NOT_PRIVATE}")
        header = lines.readline().rstrip("\r\n") if is_stamped else first
    frame = pd.read_csv(
        file,
        sep=max(DELIMITERS, key=header.count),
        skiprows=int(is_stamped),
        dtype=str,
        keep_default_na=False,
    )
    sibling = file.with_suffix(".parquet")
    schema = pq.read_schema(sibling) if sibling.exists() else pa.schema([])
    types = {entry.name: entry.type for entry in schema}
    for name in frame.columns:
        if name in types:
            is_number = pa.types.is_integer(types[name]) or pa.types.is_floating(types[name])
        else:
            is_number = not name.upper().endswith(CODES) and _are_numbers(frame[name])
        if is_number:
            frame[name] = pd.to_numeric(frame[name].replace("", None))
    return frame, is_stamped


def _are_numbers(column: pd.Series) -> bool:
    """Whether a column has numbers alone, none of them with a leading zero, or is empty."""
    return bool(column.str.fullmatch(r"(-?(0|[1-9]\d*)(\.\d+)?)?").all())


MARGINS = "_margins"
"""Ending of the names of the tables that have the margins of others."""

MICRODATA = "mdf_"
"""Beginning of the names of microdata files."""


@dataclass(frozen=True)
class Run:
    """A run of any product, from its files; `open_run` makes one.

    Frames are read on request, and belong to the caller.

    Attributes:
        path: The run directory.
        product: Name of the flow, such as `topdown`.
        run_id: From the manifest.
        status: From the manifest; a released run is `complete`.
        dataset: The name under which the ledger adds up draws from these people.
        is_private: Whether the noise protects; if not, all files say `NOT PRIVATE`.
        is_confidential: Whether the input is confidential, so that errors are, too.
        settings: The settings that ran, as nested tables.
    """

    path: Path
    product: str
    run_id: str
    status: str
    dataset: str
    is_private: bool
    is_confidential: bool
    settings: Mapping[str, Any] = field(repr=False)

    def measurements(
        self,
        geolevel: str | None = None,
        *,
        universe: str | None = None,
        query: str | None = None,
    ) -> pd.DataFrame:
        """The noisy measurements, one row for every answer.

        Columns: the answer's place (`geolevel`, `geocode`; for other products their own), `query`,
        one for each attribute with the labels of its levels (null where the query sums over it),
        `value`, `variance` of the noise in it, and `plb`, the part of the budget spent on it as an
        exact fraction. By default for the first universe, at every geolevel; a large run has
        millions, so name a geolevel or a query.

        Raises SpineflowError for a universe, a geolevel or a query that the run does not have, and
        for a geolevel that the spine bypasses.

        Example: `run.measurements("Tract", query="total")`.
        """
        run, settings = self._directory, self._typed_settings
        return read_answers(
            run, settings, "measurements", universe=universe, geolevel=geolevel, query=query
        )

    def estimates(
        self, geolevel: str | None = None, *, universe: str | None = None
    ) -> pd.DataFrame:
        """The estimates that were released, one row for every cell that is not zero.

        Columns as in `measurements`, and `count`. Raises SpineflowError as it does.
        """
        run, settings = self._directory, self._typed_settings
        return read_answers(run, settings, "estimates", universe=universe, geolevel=geolevel)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the released tables."""
        names = sorted(self._released_files())
        return tuple(n for n in names if not n.endswith(MARGINS) and not n.startswith(MICRODATA))

    def table(self, name: str) -> pd.DataFrame:
        """A released table, labels of levels in declared order.

        Raises SpineflowError for a name that is not in `tables`.
        """
        self._refuse_unreleased("table", name, self.tables)
        return self._ordered(read_table(self._released_files()[name]), self._universe_of(name))

    def margins(self, name: str) -> pd.DataFrame:
        """The margins of a released table: its rows, with an interval of 90 % for every count.

        Raises SpineflowError for a table without margins.
        """
        files = self._released_files()
        names = [n.removesuffix(MARGINS) for n in files if n.endswith(MARGINS)]
        self._refuse_unreleased("table with margins", name, names)
        return self._ordered(read_table(files[f"{name}{MARGINS}"]), self._universe_of(name))

    def microdata(self, universe: str | None = None) -> pd.DataFrame:
        """The released records of a universe, by default of the first that has any.

        Raises SpineflowError for a run without microdata.
        """
        files = self._released_files()
        names = [n.removeprefix(MICRODATA) for n in files if n.startswith(MICRODATA)]
        chosen = universe or next((name for name in self._universes if name in names), "")
        self._refuse_unreleased("microdata", chosen, names)
        return self._ordered(read_table(files[f"{MICRODATA}{chosen}"]), chosen)

    def intervals(self, geolevel: str, *, universe: str | None = None) -> pd.DataFrame:
        """The intervals that were made of a geolevel, or of `entities`, by `make_intervals` or by
        the command `spineflow intervals`.

        Columns: `geocode`, `query`, labels, `estimate`, `std_dev`, `lower`, `upper`, and
        `bounded_lower`, `bounded_upper`, which use known bounds of the counts. Raises
        SpineflowError for intervals that were not made.
        """
        folder = self.path / "intervals"
        file = folder / "entities.parquet"
        if geolevel != "entities":
            file = folder / (universe or next(iter(self._universes), "")) / f"{geolevel}.parquet"
        if not file.exists():
            raise InputRefused(
                f"No intervals of {geolevel} were made of {self.path}; make them with "
                "make_intervals, or 'spineflow intervals'."
            )
        return self._ordered(read_table(file), universe or next(iter(self._universes), None))

    def make_intervals(
        self,
        query: str,
        geolevel: str | None = None,
        *,
        areas: pd.DataFrame | Mapping[str, Any] | str | Path | None = None,
        universe: str | None = None,
        level: float = 0.9,
    ) -> pd.DataFrame:
        """Make intervals of a query at a geolevel or for your own areas, from the noisy
        measurements alone.

        `areas` are a frame, or a file, with a name in `area` and the code of a block in `block`, or
        for a declared census the code of its last geolevel in `block` or a column of its name, or
        polygons: a frame of geopandas, or GeoJSON as a mapping, with the name of each as `area`.
        Polygons consist of the areas whose declared points are inside them. The
        intervals contain the truth with probability `level` at least, cost nothing, and are kept in
        the run's `intervals/`. Returns them, as `intervals` does. Raises SpineflowError for a run
        of another product than topdown, for unknown names, such as unknown blocks, and unless one
        of `geolevel` and `areas` is given.

        A geolevel means its declared areas; the geounits that a spine has in their place are those
        of the level "GEOLEVEL of the spine".

        For detailed groups the query is `total`, and the frame of areas has the ids of regions of
        one type in `region`, such as tracts. The result has the sum over the regions that show a
        group, its margin, and the number of regions that suppress it.

        Example: `run.make_intervals("hispanic", "County")`.
        """
        from spineflow.tasks.detailed_groups.release.areas import write_area_sums
        from spineflow.tasks.topdown.intervals.report import write_run_intervals  # 1.0 s

        settings = self._typed_settings
        if isinstance(settings, DetailedGroupsSettings):
            refuse_altered(self._directory)
            given = None if universe or geolevel or isinstance(areas, Mapping) else areas
            own = Path(given) if isinstance(given, str) else given
            return read_table(write_area_sums(self._directory, settings, [query], own, level))
        if not isinstance(settings, TopdownSettings):
            raise InputRefused(f"{self.path} is no run of topdown; only those have intervals.")
        if (geolevel is None) == (areas is None):
            raise InputRefused("make_intervals needs a geolevel or areas, one of them.")
        run = self._directory
        run.refuse_edited_settings()
        refuse_altered(run)
        where = geolevel if areas is None else Path(areas) if isinstance(areas, str) else areas
        (file,) = write_run_intervals(run, settings, [query], where, universe=universe, level=level)
        return self._ordered(read_table(file.path), universe or next(iter(self._universes), None))

    @property
    def checks(self) -> pd.DataFrame:
        """The independent checks of the release: `name`, `universe`, `passed`, `detail`."""
        file = self._directory.outcomes
        if not file.exists():
            raise InputRefused(f"{self.path} has not been checked yet; finish the run first.")
        return pd.DataFrame(json.loads(file.read_text(encoding="utf-8"))["checks"])

    @property
    def stages(self) -> pd.DataFrame:
        """The stages of the run: `stage`, `status`, and `seconds` of work."""
        stages = self._directory.read_manifest()["stages"]
        rows = [(name, one["status"], one["seconds"]) for name, one in stages.items()]
        return pd.DataFrame(rows, columns=["stage", "status", "seconds"])

    @property
    def budget(self) -> pd.DataFrame:
        """The cost of every query and the width of its noise; see `spineflow.budget`."""
        return queries_of(self._costs)

    @property
    def guarantee(self) -> pd.DataFrame:
        """The guarantee of every universe; see `spineflow.guarantee`."""
        return guarantees_of(self._costs)

    @property
    def errors(self) -> pd.DataFrame:
        """Errors of the release, for input that is not confidential.

        Raises SpineflowError for confidential input: its errors are in the run's
        `confidential/accuracy`, and reveal the truth behind the noise.
        """
        if self.is_confidential:
            raise InputRefused(
                f"The input of {self.path} is confidential, and so are its errors; who may see "
                "them finds them in confidential/."
            )
        found = find_product(self.product).accuracy.read(self._directory)
        if found is None:
            raise InputRefused(f"{self.path} was not compared with the truth, or that is gone.")
        return found

    @property
    def parts(self) -> Mapping[str, Run]:
        """The runs of a run of `products`, by product; empty for any other."""
        chosen = self.settings.get("products", {}) if self.product == "products" else {}
        folders = {name: self.path / name for name in chosen}
        return {name: open_run(path) for name, path in folders.items() if path.is_dir()}

    @property
    def report(self) -> Path:
        """The public report, a page."""
        return self._directory.report

    def _repr_html_(self) -> str:
        """A notebook's view of a run: product and dataset, its state, and its folder."""
        noise = "private" if self.is_private else NOT_PRIVATE
        names = ("product", "dataset", "run_id", "status", "path")
        rows = {name: str(getattr(self, name)) for name in names} | {"noise": noise}
        return str(pd.Series(rows).to_frame().to_html(header=False))

    # The functions of the library, of this run.
    plot_budget = spineflow.plots.plot_budget
    plot_errors = spineflow.plots.plot_errors
    plot_margins = spineflow.plots.plot_margins

    @property
    def _directory(self) -> RunDirectory:
        return RunDirectory(self.path)

    @property
    def _typed_settings(self) -> Any:
        if self.product not in OF_ONE_INPUT:
            raise InputRefused(
                f"{self.path} is a run of {self.product}, which has no answers of its own; open "
                "its parts."
            )
        return settings_of_run(find_product(self.product).settings, self._directory)

    @property
    def _costs(self) -> Mapping[str, Cost]:
        return find_product(self.product).costs(self._typed_settings)

    def _ordered(self, frame: pd.DataFrame, universe: str | None) -> pd.DataFrame:
        """A frame with the labels of a universe's levels in declared order."""
        if self.product not in OF_ONE_INPUT or universe is None:
            return frame
        return order_labels(frame, self._typed_settings, universe)

    def _universe_of(self, table: str) -> str | None:
        """The universe of a declared table; None for any other."""
        if self.product not in ("topdown", "estimate"):
            return None
        tables = self._typed_settings.compiled_census.declared.tables
        return next((one.universe for one in tables if one.name == table), None)

    def _released_files(self) -> dict[str, Path]:
        """The tables and microdata of the release, by name: Parquet where there is."""
        release = self._directory.release
        files = [*release.glob("*"), *(release / "tables").glob("*")]
        found = {file.stem: file for file in files if file.suffix == ".csv"}
        return found | {file.stem: file for file in files if file.suffix == ".parquet"}

    @property
    def _universes(self) -> Sequence[str]:
        return self.settings.get("run", {}).get("universes", ())

    def _refuse_unreleased(self, what: str, name: str, names: Sequence[str]) -> None:
        if not self._directory.release.is_dir():
            raise InputRefused(f"{self.path} has released nothing yet; finish the run first.")
        refuse_unknown(what, name, sorted(names))


def open_run(path: str | Path) -> Run:
    """Open a run directory, finished or not.

    Raises SpineflowError if the folder is no run.

    Example: `spineflow.open_run("spineflow-demo/run").table("050_county")`.
    """
    run = RunDirectory(Path(path).resolve())
    manifest = run.read_manifest()
    try:
        settings = settings_tree(run.settings)
    except (OSError, InputRefused):
        raise InputRefused(
            f"{run.settings} cannot be read; restore it, or start a new run."
        ) from None
    return Run(
        path=run.root,
        product=manifest["product"],
        run_id=manifest["run_id"],
        status=manifest["status"],
        dataset=settings["privacy"]["dataset"],
        is_private=manifest["privacy"] == "private",
        is_confidential=settings["input"].get("confidential", True),
        settings=settings,
    )
