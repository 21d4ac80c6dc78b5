"""Results of a search: settings that are ready to run, and the report of the trade-offs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ..pages.document import NONE, Document, Figure, FrontPage, Link, Section, Table
from ..pages.figures import line_chart
from ..pages.template import bars
from ..products.acceptance import publish_release
from ..products.reports import provenance, stages_section
from ..runs.directory import RunDirectory
from ..runs.files import NOT_PRIVATE, write_page, write_text
from ..runs.settings_files import dump_settings
from .search import EXACT, Trial, TrialOutcome, settings_of
from .settings import Criterion, TuneSettings
from .trials import errors_of, mean_errors

SETTINGS, VARIANTS, ERRORS = "settings.toml", "variants.csv", "errors.csv"
HEADER = """\
# Settings that a search found; the criterion was that {criterion}.
# Replace [input] and [privacy] by those of the data to be released.
"""


def _is_comparison(criterion: Criterion) -> bool:
    """Whether variants are compared at their own losses, and nothing is to be met."""
    return criterion.kind == "error" and criterion.at_most is None


def rank_outcomes(
    criterion: Criterion, found: Mapping[str, TrialOutcome]
) -> list[tuple[str, TrialOutcome]]:
    """Outcomes of the variants, best first: the smallest total, or, without a criterion to meet,
    the least error.
    """

    def rank(item: tuple[str, TrialOutcome]) -> float:
        return item[1].mean if _is_comparison(criterion) else float(item[1].trial.total)

    return sorted(found.items(), key=rank)


def release_settings(
    run: RunDirectory, settings: TuneSettings, found: Mapping[str, TrialOutcome]
) -> Path:
    """Write the settings of the best outcome to the release, ready to run.

    With them: `variants.csv`, the outcome of each variant, the best one first, and `errors.csv`,
    its errors by level, with standard errors over the replicates.
    """
    best_first = rank_outcomes(settings.criterion, found)
    variants = [
        (name, float(outcome.trial.total), outcome.mean, outcome.standard_error)
        for name, outcome in best_first
    ]
    errors = []
    for name, outcome in best_first:
        errors.append(_errors_of(run, settings, outcome.trial))
        errors[-1].insert(0, "variant", name)
    text = HEADER.format(criterion=settings.criterion.in_words)
    text += dump_settings(settings_of(settings, best_first[0][1].trial))
    run.unchecked_release.mkdir(exist_ok=True)
    write_text(run.unchecked_release / SETTINGS, text)
    columns = ["variant", "total", "criterion", "standard_error"]
    found_of_each = pd.DataFrame(variants, columns=columns)
    write_text(run.unchecked_release / VARIANTS, found_of_each.to_csv(index=False))
    write_text(run.unchecked_release / ERRORS, pd.concat(errors).to_csv(index=False))
    publish_release(run)
    return run.release / SETTINGS


def write_tuning_report(
    run: RunDirectory,
    settings: TuneSettings,
    outcomes: Sequence[TrialOutcome],
    found: Mapping[str, TrialOutcome],
) -> Path:
    """Write the report: all trials, the loss that each variant needs, and its accuracy then.

    `found` has the best outcome of each variant that meets the criterion.
    """
    found = dict(rank_outcomes(settings.criterion, found))
    sections = [_winner_section(settings, found), _accuracy(run, settings, found)]
    sections += [_trials(settings, outcomes), stages_section(run)]
    document = Document(
        f"Search on {settings.privacy.dataset}",
        (
            f"The criterion: {settings.criterion.in_words}, on average over "
            f"{settings.search.replicates} replicates. The search was by "
            f"{settings.search.method!r}, for {settings.criterion.universe} of "
            f"{settings.product}.",
        ),
        tuple(section for section in sections if section is not None),
        f"{NOT_PRIVATE}: tuned on data that may be disclosed; for choosing settings only",
        _front(settings.criterion, outcomes, found),
        provenance(run),
    )
    return write_page(run.report, document)


def _front(
    criterion: Criterion,
    outcomes: Sequence[TrialOutcome],
    found: Mapping[str, TrialOutcome],
) -> FrontPage:
    """The best variant, the first of `found`; the objective, by variant: the least loss that meets
    the criterion or, at fixed losses, the criterion."""
    panels, verdict = [], f"None of {len(outcomes)} trials meets the criterion."
    if found:
        best, of_best = next(iter(found.items()))
        total = float(of_best.trial.total)
        if _is_comparison(criterion):
            verdict = (
                f"Found: {best}, whose criterion is {of_best.mean:.4g} at a loss of {total:.4g}."
            )
            title, caption = "The criterion", "The criterion of each variant at its own loss."
            label, values = "criterion", [outcome.mean for outcome in found.values()]
        else:
            verdict = f"Found: {best} meets the criterion with a total loss of {total:.4g}."
            title = "Least loss that meets the criterion"
            caption = "Smallest total loss with which each variant meets the criterion."
            label = "total loss"
            values = [float(outcome.trial.total) for outcome in found.values()]
        of_variants = {label: dict(zip(found, values, strict=True))}
        panels.append(Section(title, (bars(title, caption, of_variants, label),)))
    links = (Link("Settings that were found", f"../release/{SETTINGS}"),) if found else ()
    return FrontPage(verdict, bool(found), "", tuple(panels), links)


def _winner_section(settings: TuneSettings, found: Mapping[str, TrialOutcome]) -> Section:
    if not found:
        return Section(
            "Results of the search", ("No variant meets the criterion within the grid.",)
        )
    universe = settings.criterion.universe
    rows, losses = [], []
    for name, outcome in found.items():
        searched, spent = settings.SEARCHED, settings_of(settings, outcome.trial)
        total, epsilon = float(outcome.trial.total), _epsilon(searched.epsilon(spent, universe))
        rows.append((name, total, epsilon, outcome.mean, _plus_minus(outcome)))
        losses += [
            (name, geolevel, str(loss), float(loss / outcome.trial.total))
            for geolevel, loss in outcome.trial.losses.items()
        ]
    weights = tuple(
        (name, query, float(weight))
        for name, outcome in found.items()
        for query, weight in outcome.trial.weights.items()
        if weight != 1
    )
    changed: tuple[str | Table, ...] = ()
    if weights:
        changed = (
            "Queries whose shares were changed, equally at every geolevel before they are scaled.",
            Table(("variant", "query", "times"), weights),
        )
    about = "The smallest total of each variant that meets the criterion, and its levels."
    headers = ("variant", "total", "epsilon", "criterion", "standard error")
    of_levels = Table(("variant", "level", "loss", "share"), tuple(losses), "share")
    blocks = (about, Table(headers, tuple(rows), "criterion"), of_levels, *changed)
    return Section("Results of the search", blocks)


def _accuracy(
    run: RunDirectory, settings: TuneSettings, found: Mapping[str, TrialOutcome]
) -> Section | None:
    """Errors of each variant at its result, with their standard errors."""
    if not found:
        return None
    errors = {name: _errors_of(run, settings, one.trial) for name, one in found.items()}
    first = next(iter(errors.values()))
    shown = (
        "mean_absolute_error" if "mean_absolute_error" in first else settings.criterion.statistic
    )
    words = shown.replace("_", " ")
    words = f"{words[:1].upper()}{words[1:]}, averaged over the replicates, and its standard error."
    words += f" All other figures are in `release/{ERRORS}`."
    return Section("Accuracy of the results", (words, side_by_side(errors, shown)))


KEYS = ["quantity", "level"]
_SPREAD = ", s.e."


def _errors_of(run: RunDirectory, settings: TuneSettings, trial: Trial) -> pd.DataFrame:
    """`KEYS`, statistics of the criterion's universe averaged over the replicates of a trial, and
    their standard errors."""
    errors = errors_of(run, trial.name, range(1, settings.search.replicates + 1))
    errors = errors[errors["universe"] == settings.criterion.universe]
    statistics = [name for name in errors if name not in ("universe", *KEYS, "seed")]
    return mean_errors(errors, KEYS, statistics)


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


def _trials(settings: TuneSettings, outcomes: Sequence[TrialOutcome]) -> Section:
    blocks: list[Figure | Table] = []
    if settings.search.method == "total":
        blocks.append(_trade_off(outcomes))
    rows = tuple(
        (
            outcome.trial.variant,
            _losses(outcome.trial),
            outcome.mean,
            _plus_minus(outcome),
            "yes" if outcome.met else "no",
        )
        for outcome in outcomes
    )
    blocks.append(Table(("variant", "losses", "criterion", "standard error", "met"), rows, "met"))
    return Section("Trials", tuple(blocks))


def _trade_off(outcomes: Sequence[TrialOutcome]) -> Figure:
    """The criterion against the total, a line for each variant."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.trial.total):
        point = (float(outcome.trial.total), outcome.mean)
        lines.setdefault(outcome.trial.variant, []).append(point)
    title = "The criterion against the total loss"
    drawn = {name: ([x for x, _ in line], [y for _, y in line]) for name, line in lines.items()}
    svg = line_chart(drawn, title=title, x_label="total loss", y_label="criterion", log_x=True)
    return Figure(svg, title)


def _losses(trial: Trial) -> str:
    shown = {
        geolevel: "exact" if loss == EXACT else f"{float(loss):.4g}"
        for geolevel, loss in trial.losses.items()
    }
    return "; ".join(f"{geolevel} {loss}" for geolevel, loss in shown.items())


def _epsilon(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


def _plus_minus(outcome: TrialOutcome) -> str:
    error = outcome.standard_error
    return NONE if error != error else f"{error:.2g}"
