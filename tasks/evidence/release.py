"""The release of a comparison: all figures as one table, pictures of risk by utility, and the page.

The table has method, strength, draw, level, measure, group and value. Measures of attacks have rows
of the methods `baseline` and `ceiling` for the same level and group: the result of a guesser
without the release, and of the same attack on the true tables.

Pictures show the results of an attack against the error of the tables that users read. Every point
is a strength of a method: means over its draws, with the range of the draws and of the intervals
that each has of its own. Between strengths the line is straight, so that methods can be read off at
equal error.

The page has the published tables of each method, their errors, and results of attacks. Every figure
of an attack is next to its baseline and its ceiling. There is no score, and no word for good or
bad.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ..pages.document import NONE, Block, Document, Figure, FrontPage, Link, Section, Table
from ..pages.figures import line_chart
from ..products.acceptance import publish_release
from ..products.reports import provenance, stages_blocks
from ..runs.directory import RunDirectory
from ..runs.files import NOT_PRIVATE, replacing
from .ingest import evidence_file, figures_file
from .methods.publish import ACCURACY, ALL, FAR_OFF, READ, SHARES, draws_of, read_figures
from .settings import EvidenceSettings

COLUMNS = ("method", "strength", "draw", "level", "measure", "group", "value", "low", "high")
BASELINE, CEILING = "baseline", "ceiling"
"""Methods of reference rows of an attack."""
_BESIDE = f"{BASELINE} of "
"""Begins a measure of a baseline, as attacks keep it."""


def release_figures(run: RunDirectory, settings: EvidenceSettings) -> None:
    """Release all figures, each attack's with its baseline and ceiling: they are all that a
    comparison releases.
    """
    rows = list[tuple]()
    for draw in draws_of(settings):
        method = settings.methods[draw.method]
        label = method.strengths[draw.strength]
        for what in (ACCURACY, *settings.evidence.attacks):
            path = figures_file(run, draw, what)
            if path.exists():
                # Figures without bounds are shorter.
                without = [np.nan, np.nan]
                rows += [
                    (draw.method, label, draw.number, *[*own, *without][:6])
                    for own in read_figures(path)
                ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table = _with_references(table, settings)
    with replacing(run.unchecked_release / evidence_file(run).name) as part:
        table.to_csv(part, index=False)
    publish_release(run)


def read_evidence(run: RunDirectory) -> pd.DataFrame:
    """The table of the released figures."""
    texts = {"strength": str, "group": str, "level": str}
    # A method of a single strength has no strength in the table.
    return pd.read_csv(evidence_file(run), dtype=texts).fillna({"strength": ""})


def _with_references(table: pd.DataFrame, settings: EvidenceSettings) -> pd.DataFrame:
    """The table with baselines and ceilings as methods of their own.

    A baseline does not see the release, so that all releases have the same one; the first is taken.
    """
    is_baseline = table["measure"].str.startswith(_BESIDE)
    keys = ["level", "measure", "group"]
    baselines = table[is_baseline].drop_duplicates(keys)
    baselines = baselines.assign(
        method=BASELINE, strength="", draw=0, measure=baselines["measure"].str[len(_BESIDE) :]
    )
    own = table[~is_baseline]
    unprotected = next(
        name for name, method in settings.methods.items() if method.kind == "nothing"
    )
    exact = own[own["method"] == unprotected]
    ceilings = exact.merge(baselines[keys]).assign(method=CEILING, strength="", draw=0)
    return pd.concat([own, baselines, ceilings], ignore_index=True)


def pictures(figures: pd.DataFrame, settings: EvidenceSettings) -> Iterator[Section]:
    """The first figure of each attack by error, method by method: means over the draws of each
    strength, and the range of the draws and of their own intervals, if any."""
    keys = ["method", "strength"]
    errors = figures[(figures["measure"] == READ) & (figures["level"] == ALL)]
    error = errors.groupby(keys)["value"].mean()
    for name in settings.evidence.attacks:
        own = first_that_differs(figures, name)
        if own is None:
            continue
        own = own.assign(low=own["low"].fillna(own["value"]), high=own["high"].fillna(own["value"]))
        table = own.groupby(keys).agg({"value": "mean", "low": "min", "high": "max"})
        table = table.assign(error=error).dropna().sort_values("error").reset_index()
        of_methods = [table[table["method"] == method] for method in settings.methods]
        curves = {format_name(c["method"].iloc[0]): c for c in of_methods if len(c)}
        if not curves:
            continue
        first = own.iloc[0]
        svg = line_chart(
            {method: (curve["error"], curve["value"]) for method, curve in curves.items()},
            title=f"{format_name(name)} by error",
            x_label=READ,
            y_label=column_name(first["measure"].removeprefix(f"{name}: "), first["group"]),
            intervals={method: (curve["low"], curve["high"]) for method, curve in curves.items()},
        )
        caption = (
            "A line joins the strengths of a method; further left is more accurate. Upright lines "
            "are the range of the draws, with the intervals that they have of their own."
        )
        yield Section(format_name(name).capitalize(), (Figure(svg, caption),))


def first_that_differs(figures: pd.DataFrame, attack: str) -> pd.DataFrame | None:
    """The rows of the first figure of an attack that is not the same for all releases."""
    rows = figures[figures["measure"].str.startswith(f"{attack}: ")]
    for _, own in rows.groupby(["level", "measure", "group"], sort=False):
        releases = own[~own["method"].isin([BASELINE, CEILING])]
        if releases["value"].nunique() > 1:
            return own
    return None


def column_name(measure: str, group: str) -> str:
    """Head of a column for a measure of a group."""
    return measure if group == ALL else f"{measure}, {group}"


def format_name(name: str) -> str:
    """The name of a method or an attack as text."""
    return name.replace("_", " ")


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
            Section("Seconds of work", stages_blocks(run)),
        ),
        STAMP,
        FrontPage(
            f"{len(draws_of(settings))} releases of {len(settings.methods)} methods were compared.",
            True,
            "",
            tuple(pictures(figures, settings)),
            (Link("All figures", evidence_file(run).name),),
        ),
        provenance(run),
    )


def restore_figures(run: RunDirectory, _settings: EvidenceSettings) -> None:
    """Put the released figures next to the page, unless they are there."""
    path = evidence_file(run)
    if not path.exists():
        with replacing(path) as part:
            shutil.copyfile(run.release / path.name, part)


def _format_range(values: pd.Series) -> str:
    """The mean of some values, and their range where there are several."""
    known = values.dropna()
    if known.empty:
        return NONE
    mean, low, high = known.mean(), known.min(), known.max()
    return f"{mean:.3g}" if low == high else f"{mean:.3g} ({low:.3g} to {high:.3g})"


def _methods(figures: pd.DataFrame, settings: EvidenceSettings) -> Section:
    seconds = figures[figures["measure"] == "seconds"]
    rows = tuple(
        (
            format_name(name),
            ", ".join(filter(None, method.strengths)) or NONE,
            method.GUARANTEE,
            method.facts.invariants,
            method.facts.reading,
            _format_range(seconds.loc[seconds["method"] == name, "value"]),
        )
        for name, method in settings.methods.items()
    )
    headers = ("method", "strengths", "guarantee", "stays as it is", "2026 order", "seconds")
    return Section("Methods", (Table(headers, rows), ORDER))


def _accuracy(
    figures: pd.DataFrame, settings: EvidenceSettings, levels: Sequence[str]
) -> Iterator[Block]:
    yield (
        "Errors are of published counts from true ones, over all tables of a level; a withheld "
        "count has no error, and makes the total of its table and area count as wrong. Mean "
        "errors are signed, by the true share of a count in its table and area."
    )
    is_accuracy = figures["measure"].isin({measure for measure, _ in _ACCURACY})
    for level in levels:
        own = figures[(figures["level"] == level) & is_accuracy]
        yield f"{level}:"
        yield _table(own, settings, _ACCURACY)


def _table(
    own: pd.DataFrame, settings: EvidenceSettings, columns: Sequence[tuple[str, str]]
) -> Table:
    """A row for every method and strength that has some of the columns: measures of groups."""
    values = own.groupby(["method", "strength", "measure", "group"], sort=False)["value"]
    texts = values.agg(_format_range).unstack(["measure", "group"]).reindex(columns=[*columns])
    releases = [(name, own) for name, of in settings.methods.items() for own in of.strengths]
    rows = tuple(
        (format_name(name), strength, *texts.loc[(name, strength)].fillna(NONE))
        for name, strength in [*releases, (BASELINE, ""), (CEILING, "")]
        if (name, strength) in texts.index
    )
    return Table(("method", "strength", *(column_name(*own) for own in columns)), rows)


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
            blocks += [f"{level}:", _table(own, settings, columns)]
        yield Section(format_name(name).capitalize(), tuple(blocks))


def summary(run: RunDirectory, settings: EvidenceSettings) -> Iterator[Block]:
    """Compared methods, and the place of all figures."""
    yield f"{len(settings.methods)} methods, {len(draws_of(settings))} releases"
    yield f"figures: {evidence_file(run)}"
    yield f"report: {run.report}"
