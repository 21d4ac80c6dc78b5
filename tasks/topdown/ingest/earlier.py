"""Answers of earlier releases that constrain a declared census.

An earlier release is a finished run of this project, of any census on the same areas, or a file of
its microdata in the layout of a preset census. Its rows are counted by area and cell, and added up
to the rows of a query, whose attributes and coarsenings it must have under the same names with the
same levels. The result becomes a public file of the run, is charged with the spine, and is all that
later steps read.

Facts determined by the held answers alone are compared with the other declarations here, before
anything is measured: structural zeros, bounds and invariants on sums of held rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy import sparse

from ...census.areas import Areas
from ...census.census import Census, Held, Universe, preset_census
from ...census.census_input import CensusInput
from ...census.invariants import read_geography
from ...census.microdata import MicrodataFile, count_labelled_microdata, count_microdata
from ...census.queries import Schema, counted_rows, marginal_query, rows_where
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused, refuse_errors
from ...runs.files import sha256_of_file
from ...runs.settings_files import settings_of_finished
from ...runs.stamps import write_parquet
from ..paths import geography_file, held_file
from ..settings import TopdownSettings
from ..workload.implied_types import IMPLIED, implied_answers, implying, structural_zeros

HeldAnswers = Mapping[tuple[str, str], sparse.csr_array]
"""By universe and name of the held answers, `(n_areas, n_rows)` in the order of areas."""

_SOURCES = b"earlier releases"
NO_BOUND = np.iinfo(np.int64).max


def held_answers(settings: TopdownSettings, result: CensusInput) -> HeldAnswers:
    """The answers of all earlier releases that constrain the universes of a run.

    Raises InputRefused for anything but a finished release, one of other areas or other levels, one
    that is not private for a private run, and for answers that contradict a declaration.
    """
    found: dict[tuple[str, str], sparse.csr_array] = {}
    universes = settings.compiled_census.universes
    for name in settings.run.universes:
        universe, schema = universes[name], settings.schema_of(name)
        if not universe.held_to_releases:
            continue
        for held in universe.held_to_releases:
            counts, other_schema = _counted(settings, held, result.areas)
            found[name, held.name] = _answers(held, schema, counts, other_schema)
        _refuse_contradictions(settings, universe, result, found)
        implied = implying(universe, schema) if settings.interleaves(name) else None
        if implied is not None:
            held, bounds = implied
            numbers = [universe.bounds.index(bound) for bound in bounds]
            found[name, IMPLIED] = implied_answers(
                schema,
                held,
                bounds,
                found[name, held.name],
                [result.multiples[name, number] for number in numbers],
                structural_zeros(settings, name),
                result.areas.frame["block_geocode"],
            )
    return found


def write_held(run: RunDirectory, settings: TopdownSettings, found: HeldAnswers) -> None:
    """Write held answers: universe, held, area (row of the geography), row, count; non-zero ones.

    The digests of the earlier releases' files are in the metadata.
    """
    if not found:
        return
    tables = []
    for (universe, name), answers in found.items():
        entries = sparse.coo_array(answers)
        n = entries.nnz
        columns = {
            "universe": pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [universe]),
            "held": pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), [name]),
            "area": pa.array(entries.row, pa.int32()),
            "row": pa.array(entries.col, pa.int32()),
            "count": pa.array(entries.data, pa.int64()),
        }
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables).unify_dictionaries()
    universes = (settings.compiled_census.universes[name] for name in settings.run.universes)
    held = chain.from_iterable(universe.held_to_releases for universe in universes)
    files = [_release_of(settings, one)[1] for one in held]
    digests = {file.name: sha256_of_file(file) for file in files}
    text = "\n".join(f"{digest} {name}" for name, digest in sorted(digests.items()))
    write_parquet(held_file(run), table.replace_schema_metadata({_SOURCES: text.encode()}))


def _release_of(settings: TopdownSettings, held: Held) -> tuple[RunDirectory | None, Path]:
    """The earlier run that the settings name, None where they name a file, and the file of its
    microdata."""
    path = Path(settings.input.paths()[held.release or ""])
    run = RunDirectory(path) if path.is_dir() else None
    return run, path if run is None else run.release / f"mdf_{held.universe}.parquet"


def _counted(
    settings: TopdownSettings, held: Held, areas: Areas
) -> tuple[sparse.csr_array, Schema]:
    """Records of an earlier release by area and cell, and the schema that numbers the cells."""
    (run, file), where = _release_of(settings, held), f"input.{held.release}"
    if run is None:
        earlier = _census_of_layout(held, where)
        if not file.exists():
            raise InputRefused(
                f"{where}: {file} is neither the directory of a finished run nor a file of its "
                "microdata; correct the path."
            )
    else:
        if held.layout is not None:
            raise InputRefused(
                f"{where}: the layout {held.layout!r} of held_to {held.name!r} has no effect for "
                "the directory of a run, which has its own; remove it."
            )
        of_run = settings_of_finished(TopdownSettings, run, where)
        if held.universe not in of_run.run.universes:
            raise InputRefused(
                f"{where}: the earlier release has no universe {held.universe}; it has "
                f"{', '.join(of_run.run.universes)}."
            )
        earlier = of_run.compiled_census
        _refuse_other_areas(run, earlier, areas, where)
    try:
        if settings.is_private and MicrodataFile(file).is_stamped:
            raise InputRefused(
                f"{where}: the earlier release is stamped NOT PRIVATE, so that answers held to it "
                "would not be protected; name a private release."
            )
        declared = earlier.universes[held.universe].declared
        if run is None or declared.microdata is not None:
            return _counted_in_layout(file, areas, held, earlier)
        schema, count = of_run.schema_of(held.universe), declared.count
        return count_labelled_microdata(file, areas, schema, count), schema
    except (ValueError, OSError, pa.ArrowException) as error:
        reason = str(error) if type(error) is ValueError else "the file cannot be read"
        raise InputRefused(
            f"{where}: {reason}; name an earlier release on the areas and levels of this census."
        ) from None


def _census_of_layout(held: Held, where: str) -> Census:
    if held.layout is None:
        raise InputRefused(
            f"{where} is no directory of a finished run; name one, or give held_to the layout that "
            "the file of microdata has."
        )
    with refuse_errors(f"{where}: the layout "):
        census = preset_census(held.layout)
    if held.universe not in census.universes:
        raise InputRefused(f"{where}: the layout {held.layout} has no universe {held.universe}.")
    return census


def _refuse_other_areas(run: RunDirectory, earlier: Census, areas: Areas, where: str) -> None:
    """Raise InputRefused unless an earlier run has exactly these areas."""
    theirs = read_geography(geography_file(run))["block_geocode"].to_numpy(dtype=object)
    ours = areas.frame["block_geocode"].to_numpy(dtype=object)
    if earlier.code_column is None and areas.codes is not None:
        ours = areas.codes
    missing, further = set(ours) - set(theirs), set(theirs) - set(ours)
    if missing or further:
        raise InputRefused(
            f"{where}: the earlier release is on other areas ({len(missing):,} of this census are "
            f"not among its areas, and {len(further):,} of its areas are not in this census); "
            "name one on the same areas."
        )


def _counted_in_layout(
    file: Path, areas: Areas, held: Held, census: Census
) -> tuple[sparse.csr_array, Schema]:
    """Counts of a file whose columns spell the last geolevel's code digit by digit."""
    codes = np.array([""] if areas.codes is None else areas.codes).astype(str)
    if not all(code.isdigit() and len(code) < 19 for code in codes):
        raise ValueError(f"{areas.columns[-1]} has no codes such as its layout spells")
    order = np.argsort(codes.astype(np.int64))
    counts, schema = count_microdata(file, codes[order], held.universe, census)
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    return counts[position], schema


def _answers(
    held: Held, schema: Schema, counts: sparse.csr_array, other_schema: Schema
) -> sparse.csr_array:
    """The earlier counts `(n_areas, other_schema.n_cells)` added to the rows of the held query."""
    where = f"input.{held.release}, as held_to {held.name!r} needs it"
    with refuse_errors(f"{where}: ", " of the earlier release."):
        other_schema.cells_where(held.of)
    with refuse_errors(f"{where}: the earlier release "):
        matrix = counted_rows(schema, other_schema, held.query, held.where, held.of)
    return sparse.csr_array(counts @ matrix)


def _refuse_contradictions(
    settings: TopdownSettings, universe: Universe, result: CensusInput, found: HeldAnswers
) -> None:
    """Raise InputRefused where held answers alone break a zero, a bound, an invariant or others.

    Contradictions that depend on noise are left to the estimation.
    """
    name, schema = universe.name, settings.schema_of(universe.name)
    held_to_releases = universe.held_to_releases
    areas = [f"area {path}" for path in result.areas.frame["block_geocode"]]
    each = np.arange(len(areas))

    def hold_between(
        lower: np.ndarray,
        upper: np.ndarray,
        what: str,
        row: np.ndarray,
        unit: np.ndarray = each,
        places: Sequence[str] = areas,
    ) -> None:
        """Compare sums of cells, whose number is `row` (n_cells,), -1 for none, with what a
        declaration allows (n_units, n_sums), in units of areas: `unit` (n_areas,) of each."""
        for answer in np.unique(row[row >= 0]).tolist():
            for held in held_to_releases:
                row_of_cell = rows_where(schema, held.query, held.where)
                rows = np.unique(row_of_cell[row == answer])
                if rows[0] < 0 or not np.array_equal(np.isin(row_of_cell, rows), row == answer):
                    continue  # The sum is of no held rows.
                of_area = np.asarray(found[name, held.name][:, rows].sum(axis=1)).ravel()
                sums = np.zeros(len(places), dtype=np.int64)
                np.add.at(sums, unit, of_area)
                broken = (sums < lower[:, answer]) | (sums > upper[:, answer])
                if broken.any():
                    raise InputRefused(
                        f"The answers of {name} that are held as {held.name!r} contradict "
                        f"{what} in {places[int(broken.argmax())]}; take one of them out."
                    )

    forbidden = structural_zeros(settings, name)
    for held in held_to_releases:
        row = rows_where(schema, held.query, held.where)
        is_impossible = (row >= 0) & ~np.isin(row, row[~forbidden])
        nothing = np.zeros((len(areas), 1), dtype=np.int64)
        hold_between(nothing, nothing, "the structural zeros", np.where(is_impossible, 0, -1))
        if len(held_to_releases) > 1:
            answers = found[name, held.name].toarray()
            hold_between(answers, answers, f"those held as {held.name!r}", row)
    for number, bound in enumerate(universe.bounds):
        records = result.multiples[name, number]
        upper = np.full_like(records, NO_BOUND)
        if bound.at_most is not None:
            upper = bound.at_most * records
        lower = (bound.at_least or 0) * records
        row = rows_where(schema, bound.query, bound.where)
        hold_between(lower, upper, f"the bound {bound.name}", row)
    for invariant in universe.invariants:
        row = marginal_query(schema, invariant.query).row_of_cell
        units = result.areas.units[invariant.geolevel]
        places = [f"{invariant.geolevel} {path}" for path in units.path]
        exact = np.array([result.totals[name][invariant.name][path] for path in units.path])
        what = f"the invariant {invariant.name}"
        hold_between(exact, exact, what, row, units.number, places)
