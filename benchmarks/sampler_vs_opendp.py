"""Draws per second of the discrete Gaussian against OpenDP's and against raw random bytes.

Run `.venv/bin/python -m benchmarks.sampler_vs_opendp [--draws N]` from the repository's root, with
the `benchmark` extra installed. Both libraries add discrete Gaussian noise of the same scale to
the same vector of counts; each figure is the best of several rounds. The raw rate is that of
64-bit words of the operating system's random source: the limit of any sampler that spends one
word a draw. The exit status is 1 if the ratio to OpenDP falls below 200 at any scale.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

SIGMA_SQUARED = (1, 10, 400)
REQUIRED_RATIO = 200
OURS_ROUNDS = 50
PEER_ROUNDS = 3


def best_rate(n: int, rounds: int, run: Callable[[], object]) -> float:
    """Items per second of the fastest of several rounds, after one that warms up."""
    run()
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return n / min(seconds)


def opendp_measurement(sigma_squared: int) -> Callable[[list[int]], list[int]]:
    """OpenDP's vector mechanism: exact discrete Gaussian noise on integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=int)
    return dp.m.make_gaussian(*space, scale=float(np.sqrt(sigma_squared)))


def main() -> int:
    """Print the table; see the module's docstring."""
    from spineflow.tasks.noise.distributions import SystemRandom
    from spineflow.tasks.noise.sampler import draw_noise

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200_000, help="length of the vector")
    n = parser.parse_args().draws
    source = SystemRandom()
    counts = np.random.default_rng(0).integers(0, 1000, n)
    listed = counts.tolist()

    raw = best_rate(n, OURS_ROUNDS, lambda: os.urandom(8 * n))
    print(f"raw 64-bit random words   {raw / 1e6:9.2f} million a second ({8 * raw / 1e6:.0f} MB)")
    print("sigma^2   spineflow M/s   OpenDP M/s   ratio   draws per raw word")
    ratios = []
    for sigma_squared in SIGMA_SQUARED:
        parameter = Fraction(sigma_squared)
        ours = best_rate(
            n,
            OURS_ROUNDS,
            lambda p=parameter: counts + draw_noise("discrete_gaussian", p, n, source),
        )
        measure = opendp_measurement(sigma_squared)
        peer = best_rate(n, PEER_ROUNDS, lambda m=measure: m(listed))
        ratios.append(ours / peer)
        print(
            f"{sigma_squared:7d}   {ours / 1e6:13.1f}   {peer / 1e6:10.4f}   {ours / peer:5.0f}"
            f"   {ours / raw:18.2f}"
        )
    return 0 if min(ratios) >= REQUIRED_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
