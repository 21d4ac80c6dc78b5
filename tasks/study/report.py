"""Results of a search: settings that are ready to run, and the report of the trade-offs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..pages.document import NONE, Cell, Document, Figure, FrontPage, Link, Section, Table, bars
from ..pages.figures import line_chart
from ..products.acceptance import publish_release
from ..products.reports import provenance, stages_blocks
from ..runs.directory import RunDirectory
from ..runs.files import NOT_PRIVATE, write_page, write_text
from ..runs.settings_files import dump_settings
from .search import EXACT, Trial, settings_of
from .settings import Criterion, TuneSettings
from .trials import errors_of, mean_errors

SETTINGS, VARIANTS, ERRORS = "settings.toml", "variants.csv", "errors.csv"
HEADER = """\
# Settings that a search found; the criterion was that {criterion}.
# Replace [input] and [privacy] by those of the data to be released.
"""


def rank_trials(criterion: Criterion, found: Iterable[Trial]) -> list[Trial]:
    """The trials found for the variants, best first: the smallest total, or, without a criterion to
    meet, the least error."""
    return sorted(
        found, key=lambda trial: trial.mean if criterion.is_comparison else float(trial.total)
    )


def release_settings(run: RunDirectory, settings: TuneSettings, found: Sequence[Trial]) -> Path:
    """Write the settings of the best trial to the release, ready to run; `found` has it first.

    With them: `variants.csv`, the result of each variant, the best one first, and `errors.csv`,
    its errors by level, with standard errors over the replicates.
    """
    columns = ["variant", "total", "criterion", "standard_error"]
    variants = [(own.variant, float(own.total), own.mean, own.standard_error) for own in found]
    errors = pd.concat(_errors_of_all(run, settings, found), names=["variant"])
    best = settings_of(settings, found[0].variant, found[0].losses)
    text = HEADER.format(criterion=settings.criterion.in_words) + dump_settings(best)
    run.unchecked_release.mkdir(exist_ok=True)
    for name, content in (
        (SETTINGS, text),
        (VARIANTS, pd.DataFrame(variants, columns=columns).to_csv(index=False)),
        (ERRORS, errors.reset_index("variant").to_csv(index=False)),
    ):
        write_text(run.unchecked_release / name, content)
    publish_release(run)
    return run.release / SETTINGS


def write_tuning_report(
    run: RunDirectory, settings: TuneSettings, trials: Sequence[Trial], found: Sequence[Trial]
) -> Path:
    """Write the report: all trials, the loss that each variant needs, and its accuracy then.

    `found` has the best trial of each variant that meets the criterion, best first.
    """
    results = Section("Results of the search", ("No variant meets the criterion within the grid.",))
    sections = [results, _trials(settings, trials), Section("Seconds of work", stages_blocks(run))]
    if found:
        sections[:1] = [_winners(settings, found), _accuracy(run, settings, found)]
    document = Document(
        f"Search on {settings.privacy.dataset}",
        (
            f"The criterion: {settings.criterion.in_words}, on average over "
            f"{settings.search.replicates} replicates. The search was by "
            f"{settings.search.method!r}, for {settings.criterion.universe} of "
            f"{settings.product}.",
        ),
        tuple(sections),
        f"{NOT_PRIVATE}: tuned on data that may be disclosed; for choosing settings only",
        _front(settings.criterion, len(trials), found),
        provenance(run),
    )
    return write_page(run.report, document)


def _front(criterion: Criterion, n_trials: int, found: Sequence[Trial]) -> FrontPage:
    """The best variant, the first of `found`; the objective, by variant: the least loss that meets
    the criterion or, at fixed losses, the criterion."""
    panels, verdict = [], f"None of {n_trials} trials meets the criterion."
    if found:
        best, total = found[0], float(found[0].total)
        if criterion.is_comparison:
            verdict = (
                f"Found: {best.variant}, whose criterion is {best.mean:.4g} at a loss of "
                f"{total:.4g}."
            )
            title, caption = "The criterion", "The criterion of each variant at its own loss."
            label, values = "criterion", {own.variant: own.mean for own in found}
        else:
            verdict = f"Found: {best.variant} meets the criterion with a total loss of {total:.4g}."
            title = "Least loss that meets the criterion"
            caption = "Smallest total loss with which each variant meets the criterion."
            label, values = "total loss", {own.variant: float(own.total) for own in found}
        panels.append(Section(title, (bars(title, caption, {label: values}, label),)))
    links = (Link("Settings that were found", f"../release/{SETTINGS}"),) if found else ()
    return FrontPage(verdict, bool(found), "", tuple(panels), links)


def _winners(settings: TuneSettings, found: Sequence[Trial]) -> Section:
    searched, universe = settings.SEARCHED, settings.criterion.universe
    rows, losses = list[Mapping[str, Cell]](), list[Mapping[str, Cell]]()
    for own in found:
        epsilon = searched.epsilon(settings_of(settings, own.variant, own.losses), universe)
        rows.append(
            {
                "variant": own.variant,
                "total": float(own.total),
                "epsilon": epsilon if isinstance(epsilon, str) else f"{epsilon:.2f}",
                "criterion": own.mean,
                "standard error": _format_error(own.standard_error),
            }
        )
        losses += [
            {
                "variant": own.variant,
                "level": geolevel,
                "loss": str(loss),
                "share": float(loss / own.total),
            }
            for geolevel, loss in own.losses.items()
        ]
    about = "The smallest total of each variant that meets the criterion, and its levels."
    blocks = (about, Table.of(rows, "criterion"), Table.of(losses, "share"))
    return Section("Results of the search", blocks)


def _accuracy(run: RunDirectory, settings: TuneSettings, found: Sequence[Trial]) -> Section:
    """Errors of each variant at its result, with their standard errors."""
    errors = _errors_of_all(run, settings, found)
    first = errors[found[0].variant]
    shown = (
        "mean_absolute_error" if "mean_absolute_error" in first else settings.criterion.statistic
    )
    words = shown.replace("_", " ")
    words = f"{words[:1].upper()}{words[1:]}, averaged over the replicates, and its standard error."
    words += f" All other figures are in `release/{ERRORS}`."
    return Section("Accuracy of the results", (words, side_by_side(errors, shown)))


KEYS = ["quantity", "level"]
_SPREAD = ", s.e."


def _errors_of_all(
    run: RunDirectory, settings: TuneSettings, found: Sequence[Trial]
) -> dict[str, pd.DataFrame]:
    """By variant: `KEYS`, statistics of the criterion's universe averaged over the replicates, and
    their standard errors."""
    means = {}
    for own in found:
        errors = errors_of(run, own.name, range(1, settings.search.replicates + 1))
        errors = errors[errors["universe"] == settings.criterion.universe]
        statistics = [name for name in errors if name not in ("universe", *KEYS, "seed")]
        means[own.variant] = mean_errors(errors, KEYS, statistics)
    return means


def side_by_side(errors: Mapping[str, pd.DataFrame], statistic: str) -> Table:
    """A statistic of every variant with its standard error, by `KEYS`, for the rows of the
    first."""

    def cell(own: pd.DataFrame, key: tuple[object, ...]) -> str:
        row = own[(own[KEYS] == list(key)).all(axis=1)]
        if row.empty or math.isnan(mean := float(row[statistic].iloc[0])):
            return NONE
        error = float(row[f"{statistic}{_SPREAD}"].iloc[0])
        return f"{mean:,.4g}" if math.isnan(error) else f"{mean:,.4g} ± {error:.2g}"

    first = next(iter(errors.values()))
    keys = first[KEYS].itertuples(index=False, name=None)
    rows = ((*map(str, key), *(cell(own, key) for own in errors.values())) for key in keys)
    return Table((*KEYS, *errors), tuple(rows))


def _trials(settings: TuneSettings, trials: Sequence[Trial]) -> Section:
    """All trials; of a search for totals also the criterion against the total, by variant."""
    rows = [
        {
            "variant": own.variant,
            "losses": "; ".join(
                f"{geolevel} {'exact' if loss == EXACT else f'{float(loss):.4g}'}"
                for geolevel, loss in own.losses.items()
            ),
            "criterion": own.mean,
            "standard error": _format_error(own.standard_error),
            "met": "yes" if own.met else "no",
        }
        for own in trials
    ]
    table, title = Table.of(rows, "met"), "The criterion against the total loss"
    if settings.search.method != "total":
        return Section("Trials", (table,))
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for own in sorted(trials, key=lambda trial: trial.total):
        totals, criteria = lines.setdefault(own.variant, ([], []))
        totals.append(float(own.total))
        criteria.append(own.mean)
    svg = line_chart(lines, title=title, x_label="total loss", y_label="criterion", log_x=True)
    return Section("Trials", (Figure(svg, title), table))


def _format_error(error: float) -> str:
    return NONE if math.isnan(error) else f"{error:.2g}"
