"""The released file of the supplemental tables, its errors, and the public report of a run.

The file has all rows of the tables, level by level, as Parquet and as text. Errors against the
confidential truth are confidential too; reports show them for inputs that are not confidential, and
only for those.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..pages.document import Document, Table
from ..products.budget import Cost
from ..products.comparison import errors_table, write_errors
from ..products.plan import Plan
from ..products.reports import first_rows, report_document
from ..runs.directory import RunDirectory
from ..runs.stamps import write_rows
from .estimation import ROWS, SCHEMA, TITLES, rows_of_level
from .ingest import read_areas, read_plan, true_counts
from .plan import UNIVERSE, answers_of, measure_of
from .settings import SupplementalDhcSettings

SUPPLEMENTAL_DHC = "supplemental_dhc"
"""The file's name, without its ending."""


def released_rows(run: RunDirectory) -> pa.Table:
    """The rows of all levels, table by table."""
    levels = [pq.read_table(run.estimates(UNIVERSE, level)) for level in read_areas(run).regions]
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in levels])
    parts = [whole.filter(pc.equal(whole["table"], name)) for name in TITLES]
    return pa.concat_tables(parts).cast(SCHEMA).combine_chunks()


def write_tables(run: RunDirectory) -> None:
    """Write both files, the text last; text is comma-delimited, with a header."""
    rows = released_rows(run).replace_schema_metadata(None)
    stem = run.unchecked_release / SUPPLEMENTAL_DHC
    write_rows(stem, rows.schema, rows.to_batches())


KEYS = ("table", "level", "iteration")
FIGURES = {
    "rmse": "root mean square error of the estimates",
    "rmse_noisy": "the same of the noisy values",
    "covered": "share of true values within the intervals",
}
"""Columns of the errors of a run, as comparisons of runs show them, too: keys, figures in words."""


def write_accuracy(run: RunDirectory, _settings: SupplementalDhcSettings) -> None:
    """Write the errors by table, level and iteration to the confidential folder of the run.

    True values are the measured counts without noise, after truncation. Averages over no households
    are skipped. Columns: table, level, iteration, kind ("count" or "average"), rows, rmse,
    rmse_noisy (of the noisy values themselves, where there are any), covered (share within the
    interval).
    """
    rows = released_rows(run).to_pandas()
    named = list(SCHEMA.names[:5])
    rows["truth"] = rows[named].merge(true_rows(run), on=named, how="left")["noisy"]
    averages = {row.table for row in ROWS if row.of is not None}
    rows["kind"] = np.where(rows["table"].isin(averages), "average", "count")
    rows = rows[rows["truth"].notna() & rows["estimate"].notna()]
    error, noisy = rows["estimate"] - rows["truth"], rows["noisy"] - rows["truth"]
    slack = 1e-3
    inside = (rows["low"] - slack <= rows["truth"]) & (rows["truth"] <= rows["high"] + slack)
    frame = rows.assign(square=error**2, square_noisy=noisy**2, covered=inside)
    found = frame.groupby([*KEYS, "kind"], sort=False).agg(
        rows=("square", "size"),
        rmse=("square", lambda values: float(np.sqrt(values.mean()))),
        rmse_noisy=("square_noisy", lambda values: float(np.sqrt(values.mean()))),
        covered=("covered", "mean"),
    )
    table = pa.Table.from_pandas(found.reset_index(), preserve_index=False)
    write_errors(run, table)


def true_rows(run: RunDirectory) -> pd.DataFrame:
    """The rows of the release from counts without noise; NaN is the average over no households."""
    plan, areas = read_plan(run), read_areas(run)
    exact = replace(plan, measures=tuple(replace(own, noise=None) for own in plan.measures))
    found = []
    for level, regions in areas.regions.items():
        values = answers_of(plan, level, true_counts(run, areas, level))
        found.append(rows_of_level(exact, level, regions, values))
    return pd.concat(found)


def facts_of_run(run: RunDirectory, settings: SupplementalDhcSettings) -> dict[str, str]:
    """Description of a run in words."""
    return {
        "loss": Cost(read_plan(run)).in_words,
        "levels": ", ".join(settings.geography.levels),
        "tau": ", ".join(f"{name} {tau}" for name, tau in settings.taus.items()),
    }


COLUMNS = ("table", "level", "region", "iteration", "label", "low", "high", "estimate")
"""Columns of the released rows on the front page."""


def report(
    run: RunDirectory, settings: SupplementalDhcSettings, plan: Plan, accuracy: pd.DataFrame | None
) -> Document:
    """The report as a document; see the module's docstring."""
    shares: dict[str, float] = {}
    for own in plan.universes[0].measures:
        measure, _ = measure_of(own.query)
        shares[measure] = shares.get(measure, 0.0) + 100 * float(own.share)
    numbers = read_areas(run).n_regions
    return report_document(
        run,
        settings,
        plan,
        "supplemental_dhc/templates/report.md.j2",
        counts=first_rows(run.release / f"{SUPPLEMENTAL_DHC}.parquet", COLUMNS),
        shares=shares,
        facts={f"regions of {level}": number for level, number in numbers.items()},
        titles=Table(("table", "of"), tuple(TITLES.items())),
        accuracy=None if accuracy is None else _accuracy(accuracy),
        errors=None if accuracy is None else _errors(accuracy),
    )


def _accuracy(accuracy: pd.DataFrame) -> Table:
    columns = {name: name for name in (*KEYS, "rows")} | FIGURES
    return errors_table(accuracy.round({"covered": 3}), columns)


def _errors(accuracy: pd.DataFrame) -> dict[str, float]:
    """The mean error of counts of persons, by table."""
    counts = accuracy[accuracy["kind"] == "count"]
    return {str(k): v for k, v in counts.groupby("table", sort=False)["rmse"].mean().items()}
