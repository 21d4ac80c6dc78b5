"""Margins that a split of the budget over levels gives, as predicted and as replicates have them.

    .venv/bin/python -m benchmarks.level_splits [--replicates 10] [--targets 4=30 6=40]

On the generated table of the random partition that all pairs have trips of: the smallest rho with
which levels have the wanted margins, by mechanism, and 1.96 root mean square errors of the released
counts at that rho, with the split that `spineflow design` finds and with uniform
shares. Noise is from the system's randomness.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from spineflow.tasks.noise.distributions import SystemRandom
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.solvers.split import NORMAL_95
from spineflow.tasks.trips.charge import level_errors
from spineflow.tasks.trips.plan import make_plan
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.tree import TrueTree

from benchmarks.generated_trees import generate_tree
from benchmarks.trips_replicates import replicate, true_tree


def margins(
    settings: TripsSettings, truth: TrueTree, levels: list[int], replicates: int
) -> list[float]:
    """1.96 root mean square errors over all nodes of levels, and over replicates."""
    plan = make_plan(settings, truth.tree)
    squares = np.zeros(len(levels))
    for _ in range(replicates):
        released = replicate(plan, truth, settings.mechanism, SystemRandom())
        for place, level in enumerate(levels):
            away = -truth.levels[level].counts_of(np.arange(plan.tree.n_nodes(level)))
            away[released[level].keys] += released[level].counts
            squares[place] += np.mean(away.astype(float) ** 2) / replicates
    return (NORMAL_95 * np.sqrt(squares)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--targets", nargs="+", default=["4=30", "6=40"])
    options = parser.parse_args()
    wanted = {level: int(margin) for level, margin in (t.split("=") for t in options.targets)}
    levels = [int(level) for level in wanted]
    with tempfile.TemporaryDirectory() as folder:
        file = generate_tree(Path(folder), "random", "complete")
        text = file.read_text().replace('epsilon = "1"\ndelta = "1e-8"', 'rho = "1"')
        file.write_text(text)
        truth = true_tree(load_settings(TripsSettings, file, presets=file.parent))
        print(f"| mechanism | shares | rho | {' | '.join(f'level {name}' for name in wanted)} |")
        print(f"| --- | --- | ---: | {' | '.join('---:' for _ in wanted)} |")
        for name in ("inftda", "inftda_full_information"):

            def load(*overrides: str, name: str = name) -> TripsSettings:
                overrides = (f"mechanism.name={name}", *overrides)
                return load_settings(TripsSettings, file, presets=file.parent, overrides=overrides)

            errors = level_errors(make_plan(load(), truth.tree))
            ratios = [{level: (NORMAL_95 / wanted[str(level)]) ** 2} for level in levels]
            split = errors.split(ratios)
            rho, shares = f"{split.total:.4g}", [str(share) for share in split.shares.values()]
            for label, own in (("best split", [f"mechanism.shares={shares}"]), ("uniform", [])):
                settings = load(f'privacy.rho="{rho}"', *own)
                realised = margins(settings, truth, levels, options.replicates)
                cells = " | ".join(f"{margin:.1f}" for margin in realised)
                print(f"| `{name}` | {label} | {rho} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
