"""The released file of the supplemental tables, and the public report of a run.

The file has all rows of the tables, level by level, as Parquet and as text. Errors against the
input are shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..pages.document import Document, Table
from ..products.comparison import errors_table
from ..products.plan import Plan
from ..products.reports import first_rows, report_document
from ..runs.directory import RunDirectory
from ..runs.stamps import write_rows
from .estimation import SCHEMA, TITLES
from .ingest.ingest import read_areas
from .plan import UNIVERSE, measure_of
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
