"""The page of a comparison: published tables of each method, their errors, and results of attacks.

Every figure of an attack is next to its baseline, a guess without the release, and its ceiling, the
same attack on the true tables. There is no score, and no word for good or bad.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

import pandas as pd

from ...pages.document import NONE, Block, Document, FrontPage, Link, Section, Table
from ...products.acceptance import publish_release
from ...products.reports import provenance, stage_seconds, stages_section, time_panel
from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, replacing
from ..ingest import evidence_file
from ..methods.accuracy import ALL, FAR_OFF, READ, SHARES
from ..methods.publish import draws_of
from ..settings import EvidenceSettings
from .figures import (
    BASELINE,
    CEILING,
    column_name,
    first_that_differs,
    format_name,
    pictures,
    read_evidence,
    with_range,
)

STAMP = f"{NOT_PRIVATE}: releases of data that may be disclosed, graded by the truth"
ORDER = (
    "Reported content of the order DAO 216-26 of the Commerce Department of 4 June 2026, as of "
    "November 2026: noise infusion is forbidden, coarsening preferred, suppression a last "
    "resort. The order itself was not read, and reports differ on random rounding and cell keys."
)
ERROR = "mean absolute error"
_ACCURACY = (
    (ERROR, ALL),
    ("99th percentile of error", ALL),
    (ERROR, "1-2"),
    (ERROR, "100 and over"),
    *(("mean error", label) for label, *_ in SHARES),
    (FAR_OFF, "10-99"),
    (FAR_OFF, "100 and over"),
    ("largest gap between areas and their sum", ALL),
    ("false zeros", ALL),
    ("false positives", ALL),
    ("withheld", ALL),
)
"""Columns of the tables of accuracy: measure and group."""


def page(run: RunDirectory, settings: EvidenceSettings) -> Document:
    """The page of a finished comparison."""
    figures = read_evidence(run)
    have_errors = set(figures.loc[figures["measure"] == ERROR, "level"]) - {ALL}
    levels = [level for level in dict.fromkeys(figures["level"]) if level in have_errors]
    return Document(
        f"Evidence on {settings.privacy.dataset}",
        (
            f"{len(settings.methods)} protection methods publish the same "
            f"{len(settings.published_tables)} tables of the same {settings.evidence.universe}, "
            "and every release is attacked in the same way. An attack sees a release and its "
            "public parameters, but not keys and random numbers; the truth only grades it.",
            "Figures are means over the draws of a method, with the smallest and largest in "
            "brackets where there are several. A baseline is a guess without the release; the "
            "ceiling is the same attack on the true tables. An attack on an invariant of a "
            "method succeeds by design, so that methods with other invariants do not compare by "
            "one figure.",
            *filter(None, [settings.evidence.note]),
        ),
        (
            _methods(figures, settings),
            Section("Accuracy", tuple(_accuracy(figures, settings, levels))),
            *_attacks(figures, settings),
            stages_section(run),
        ),
        STAMP,
        FrontPage(
            f"{len(draws_of(settings))} releases of {len(settings.methods)} methods were compared.",
            True,
            "",
            (*pictures(figures, settings), time_panel(stage_seconds(run))),
            (Link("All figures", evidence_file(run).name),),
        ),
        provenance(run),
    )


def release_figures(run: RunDirectory) -> None:
    """Put the figures, which are all that a comparison releases, into the release."""
    with replacing(run.unchecked_release / evidence_file(run).name) as part:
        shutil.copyfile(evidence_file(run), part)
    publish_release(run)


def restore_figures(run: RunDirectory) -> None:
    """Restore the released figures next to the page."""
    path = evidence_file(run)
    with replacing(path) as part:
        shutil.copyfile(run.release / path.name, part)


def _format_range(rows: pd.DataFrame) -> str:
    """The mean of some values, and their range where there are several."""
    values = rows["value"].dropna()
    return NONE if values.empty else with_range(values.mean(), values.min(), values.max())


def _methods(figures: pd.DataFrame, settings: EvidenceSettings) -> Section:
    seconds = figures[figures["measure"] == "seconds"]
    rows = tuple(
        (
            format_name(name),
            ", ".join(filter(None, method.strengths)) or NONE,
            method.GUARANTEE,
            method.invariants,
            method.reading,
            _format_range(seconds[seconds["method"] == name]),
        )
        for name, method in settings.methods.items()
    )
    headers = ("method", "strengths", "guarantee", "stays as it is", "2026 order", "seconds")
    return Section("Methods", (Table(headers, rows), ORDER))


def _accuracy(
    figures: pd.DataFrame, settings: EvidenceSettings, levels: Sequence[str]
) -> Iterator[Block]:
    headers = ("method", "strength", *(column_name(measure, group) for measure, group in _ACCURACY))
    yield (
        "Errors are of published counts from true ones, over all tables of a level; a withheld "
        "count has no error, and makes the total of its table and area count as wrong. Mean "
        "errors are signed, by the true share of a count in its table and area."
    )
    is_accuracy = figures["measure"].isin({measure for measure, _ in _ACCURACY})
    for level in levels:
        own = figures[(figures["level"] == level) & is_accuracy]
        yield f"{level}:"
        yield Table(headers, tuple(_rows(own, settings, _ACCURACY)))


def _rows(
    own: pd.DataFrame, settings: EvidenceSettings, columns: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, ...]]:
    """A row for every method and strength that has some of the columns."""
    by_key = dict(tuple(own.groupby(["method", "strength"])))
    releases = ((name, own) for name, of in settings.methods.items() for own in of.strengths)
    for name, strength in [*releases, (BASELINE, ""), (CEILING, "")]:
        found = by_key.get((name, strength))
        if found is None:
            continue
        cells = (
            _format_range(found[(found["measure"] == measure) & (found["group"] == group)])
            for measure, group in columns
        )
        yield (format_name(name), strength, *cells)


def _attacks(figures: pd.DataFrame, settings: EvidenceSettings) -> Iterator[Section]:
    """A table for each attack and level: its results by groups, with baseline and ceiling.

    A measure that is zero in all groups is shown for all together only.
    """
    for name in settings.evidence.attacks:
        prefix = f"{name}: "
        rows = figures[figures["measure"].str.startswith(prefix)]
        if rows.empty:
            continue
        blocks = list[Block]()
        for level, own in rows.groupby("level", sort=False):
            own = own.assign(measure=own["measure"].str.removeprefix(prefix))
            is_of_all = own["group"] == ALL
            is_found = own.groupby("measure")["value"].transform("max") > 0
            has_all = is_of_all.groupby(own["measure"]).transform("any")
            shown = own[is_of_all | is_found | ~has_all]
            columns = list(dict.fromkeys(zip(shown["measure"], shown["group"], strict=True)))
            headers = ("method", "strength", *(column_name(*column) for column in columns))
            blocks += [f"{level}:", Table(headers, tuple(_rows(own, settings, columns)))]
        yield Section(format_name(name).capitalize(), tuple(blocks))


def strengths_table(figures: pd.DataFrame, settings: EvidenceSettings) -> Table:
    """Errors that users see, and the first figure of every attack, for the command line."""
    columns = [(READ, ALL)]
    parts = [figures[figures["measure"] == READ]]
    for name in settings.evidence.attacks:
        found = first_that_differs(figures, name)
        if found is not None:
            parts.append(found)
            columns.append((str(found["measure"].iloc[0]), str(found["group"].iloc[0])))
    headers = ("method", "strength", *(column_name(*column) for column in columns))
    return Table(headers, tuple(_rows(pd.concat(parts), settings, columns)))
