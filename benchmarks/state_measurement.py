"""Time, memory and bytes of measuring a state's persons at every geolevel.

Run `.venv/bin/python -m benchmarks.state_measurement [--workers 2]` from the repository's root. The
people are generated, with the sizes of a small state: 25,181 blocks and a million persons. The
queries are the redistricting schema's eleven, the geolevels' shares and the rho those of the 2020
production run, and each geolevel shares its budget equally among the queries.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import sparse

N_GEOUNITS = {
    "US": 1,
    "State": 1,
    "County": 5,
    "Tract": 241,
    "Block_Group": 816,
    "Block": 25_181,
}
N_PERSONS = 1_052_567
SHARES = {"US": 104, "State": 1440, "County": 447, "Tract": 687, "Block_Group": 1256, "Block": 165}
QUERIES = (
    "total",
    "cenrace",
    "hispanic",
    "votingage",
    "hhinstlevels",
    "hhgq",
    "hispanic * cenrace",
    "votingage * cenrace",
    "votingage * hispanic",
    "votingage * hispanic * cenrace",
    "detailed",
)
GEOUNITS_PER_SHARD = 4096


def generated_histograms(n_geounits: int, n_cells: int) -> sparse.csr_array:
    """Histograms of a million persons, most of them in few cells."""
    rng = np.random.default_rng(1)
    cells = np.minimum(rng.geometric(0.05, N_PERSONS) - 1, n_cells - 1)
    where = rng.integers(0, n_geounits, N_PERSONS), cells
    histograms = sparse.coo_array(
        (np.ones(N_PERSONS, dtype=np.int64), where), shape=(n_geounits, n_cells)
    )
    return sparse.csr_array(histograms)


def main() -> None:
    """Print seconds, peak memory and bytes; see the module's docstring."""
    from spineflow.tasks.answers.noisy import write_measurements
    from spineflow.tasks.census.cef_2020 import PERSONS
    from spineflow.tasks.ledger.charging import UnchargedNoise
    from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, SystemRandom
    from spineflow.tasks.topdown.measurement.measure import ConfidentialShard, noisy_answers
    from spineflow.tasks.topdown.workload.budget import Budget

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args().workers
    budget = Budget(
        universe="persons",
        mechanism=DISCRETE_GAUSSIAN,
        total=Fraction(293764, 114921),
        delta=Fraction(1, 10**10),
        geolevel_shares={name: Fraction(weight, 4099) for name, weight in SHARES.items()},
        query_shares={name: dict.fromkeys(QUERIES, Fraction(1, 11)) for name in SHARES},
    )
    shards = []
    for geolevel, n_geounits in N_GEOUNITS.items():
        histograms = generated_histograms(n_geounits, PERSONS.n_cells)
        for start in range(0, n_geounits, GEOUNITS_PER_SHARD):
            part = histograms[start : start + GEOUNITS_PER_SHARD]
            n = part.shape[0]
            geocode = np.array([f"{start + i:016d}" for i in range(n)], dtype=object)
            share = (budget.geolevel_shares[geolevel],)
            shards.append(ConfidentialShard(geolevel, part, geocode, share, np.zeros(n, np.int32)))

    folder = Path(tempfile.mkdtemp())
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        with ThreadPoolExecutor(workers) as executor:
            paths = list(
                executor.map(
                    lambda item: write_measurements(
                        folder / f"{item[0]}.parquet",
                        noisy_answers(item[1], budget, PERSONS, UnchargedNoise(SystemRandom())),
                    ),
                    enumerate(shards),
                )
            )
        seconds = time.perf_counter() - started
        megabytes = sum(path.stat().st_size for path in paths) / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{workers} workers: {seconds:.1f} s, {megabytes:.0f} MB written, peak memory "
            f"{peak / 2**20:.2f} GiB ({before / 2**20:.2f} GiB before)"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
