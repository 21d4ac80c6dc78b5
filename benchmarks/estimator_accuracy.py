"""Mean absolute error of the three estimators on a county, a state or a declared census.

Run `.venv/bin/python -m benchmarks.estimator_accuracy [--replicates N] [--preset NAME]
[--generated PERSONS | --state | --census NAME]` from the repository's root. The county is that of
../shared/data/ri2010_bristol_fixed_width, or a generated one, or else it is the whole state
of ../shared/data/ri2010; the censuses are those of docs/gallery and flows/demos/country.toml. Rho
is the same for all estimators. `--all` counts the measured queries, by universe and geolevel, whose
error the last estimator changes by more than two standard errors of the paired difference, and
prints those that it makes larger, with the same difference on as many further replicates.
`topdown` and `full_information` are given the same noisy measurements in every replicate;
`block_by_block` measures the blocks alone. The noise is that of the product under fixed seeds, so
that the table comes out alike every time. Writes the tables of benchmarks/results/estimators.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.public_persons import add_choice, chosen, settings_of
from benchmarks.query_errors import query_errors

ESTIMATORS = ("block_by_block", "topdown", "full_information")
QUERIES = (
    "total",
    "hhgq",
    "votingage",
    "hispanic",
    "cenrace",
    "hispanic * cenrace",
    "votingage * hispanic * cenrace",
    "detailed",
)


KEYS = ["universe", "query", "geolevel"]


def main() -> None:
    """Print the tables; see the module's docstring."""
    from spineflow.tasks.topdown.checks.replicate import study, with_estimator

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=30)
    parser.add_argument("--preset", default="pl94_2020_us")
    add_choice(parser)
    parser.add_argument("--census", metavar="NAME", help="country, or a name of docs/gallery")
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--all", action="store_true", help="compare all measured queries")
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = settings_asked(asked, folder)
        choices = {name: with_estimator(settings, name) for name in asked.estimators}
        started = time.perf_counter()
        seeds = range(asked.replicates * (1 + asked.all))
        frame = pd.concat(study(choices, seeds, folder / "study", query_errors))
        seconds = time.perf_counter() - started

    if asked.all:
        print_changes(frame, asked.replicates)
    else:
        frame = frame[frame["query"].isin(QUERIES)]
        for query in QUERIES:
            print(f"\n{query}\n")
            print(_table(frame[frame["query"] == query]))
    print(f"\n{len(seeds)} replicates in {seconds:.0f} s")


def settings_asked(asked: argparse.Namespace, folder: Path) -> Any:
    """Settings of the persons, or of the declared census, that the options name."""
    from spineflow.tasks.topdown.product import TOPDOWN

    from tests.recorded.runs import RUNS, write_settings

    if asked.census:
        file = write_settings(folder / "census", RUNS[asked.census].write)
        return TOPDOWN.load(file, ["input.confidential=false"])
    run = {} if asked.all else {"universes": ["persons"]}
    return TOPDOWN.load(settings_of(chosen(asked, folder), preset=asked.preset, **run))


def print_changes(frame: pd.DataFrame, n_replicates: int) -> None:
    """How many queries the last estimator makes better and worse, and those that are worse."""
    wide = frame.pivot(index=[*KEYS, "seed"], columns="choice", values="mean_absolute_error")
    first, last = frame["choice"].unique()[-2:]
    changes = (wide[last] - wide[first]).unstack("seed")
    own, further = changes.iloc[:, :n_replicates], changes.iloc[:, n_replicates:]
    limit = 2 * own.sem(axis=1)
    is_worse, is_better = own.mean(axis=1) > limit, own.mean(axis=1) < -limit
    ratio = wide[last].groupby(level=KEYS).mean() / wide[first].groupby(level=KEYS).mean()
    print("| universe | geolevel | queries | better | worse | ratio of errors, median | largest |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for universe, geolevel in frame[["universe", "geolevel"]].drop_duplicates().to_numpy():
        of_level = (universe, slice(None), geolevel)
        better, worse = is_better.loc[of_level], is_worse.loc[of_level]
        of = ratio.loc[of_level].dropna()
        counts = f"{len(worse)} | {better.sum()} | {worse.sum()}"
        print(f"| {universe} | {geolevel} | {counts} | {of.median():.3f} | {of.max():.3f} |")
    print("\n| worse | geolevel | error before | difference | on further replicates |")
    print("|---|---|--:|--:|--:|")
    for key in changes.index[is_worse]:
        universe, query, geolevel = key
        before = wide[first].loc[key].mean()
        shown = f"{_mean(own.loc[key])} | {_mean(further.loc[key])}"
        print(f"| {universe}: {query} | {geolevel} | {before:.4g} | {shown} |")


def _table(errors: pd.DataFrame) -> str:
    """Markdown: one row a geolevel, mean and standard error of every choice, and the paired
    difference of the last two."""
    choices = list(dict.fromkeys(errors["choice"]))
    lines = [f"| geolevel | geounits | {' | '.join(choices)} | difference |"]
    lines.append("|---|---|" + "---|" * (len(choices) + 1))
    for geolevel, rows in errors.groupby("geolevel", sort=False):
        wide = rows.pivot(index="seed", columns="choice", values="mean_absolute_error")[choices]
        shown = [_mean(wide[choice]) for choice in choices]
        if len(choices) > 1:
            shown.append(_mean(wide[choices[-1]] - wide[choices[-2]]))
        lines.append(f"| {geolevel} | {rows['geounits'].iloc[0]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _mean(values: pd.Series) -> str:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    digits = 4 if abs(values.mean()) < 1 else 3 if abs(values.mean()) < 100 else 1
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    main()
