from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse, stats
from spineflow.tasks.answers.noisy import read_measurements, write_measurements
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom, SystemRandom, noise_variance
from spineflow.tasks.topdown.measurement.measure import (
    ConfidentialShard,
    noisy_answers,
    true_answers,
)
from spineflow.tasks.topdown.workload.budget import Budget

QUERY_SHARES = {
    "total": Fraction(1, 10),
    "hispanic*cenrace": Fraction(3, 10),
    "hhinstlevels": Fraction(0),
    "detailed": Fraction(6, 10),
}
BUDGET = Budget(
    universe="persons",
    mechanism="discrete_gaussian",
    total=Fraction(5, 2),
    delta=Fraction(1, 10**10),
    geolevel_shares={"County": Fraction(1, 2), "Block": Fraction(1, 2)},
    query_shares={"County": {"total": Fraction(1)}, "Block": QUERY_SHARES},
)
SHARES = (Fraction(1, 2), Fraction(0), Fraction(1))


def random_shard(n: int = 60, seed: int = 1) -> ConfidentialShard:
    rng = np.random.default_rng(seed)
    rows, cells = rng.integers(0, n, 40 * n), rng.integers(0, PERSONS.n_cells, 40 * n)
    histograms = sparse.coo_array(
        (np.ones(rows.size, dtype=np.int64), (rows, cells)), shape=(n, PERSONS.n_cells)
    )
    return ConfidentialShard(
        geolevel="Block",
        histograms=sparse.csr_array(histograms),
        geocode=np.array([f"{i:016d}" for i in range(n)], dtype=object),
        plb_shares=SHARES,
        plb_share_code=np.arange(n, dtype=np.int32) % 3,
    )


def measure_shard(path, shard, budget, schema, draws):
    """Measure a shard and publish `path`."""
    return write_measurements(path, noisy_answers(shard, budget, schema, draws))


def test_answers_are_those_of_the_query():
    shard = random_shard()
    for name in ("total", "hhinstlevels", "votingage * hispanic * cenrace", "detailed"):
        query = marginal_query(PERSONS, name)
        expected = query.answer(shard.histograms.toarray())
        assert np.array_equal(true_answers(shard.histograms, query), expected)


def test_a_shard_has_its_queries_variances_and_spending(tmp_path):
    shard = random_shard()
    path = measure_shard(
        tmp_path / "0.parquet", shard, BUDGET, PERSONS, UnchargedNoise(SeededRandom(1))
    )
    found = read_measurements(path, shard.geocode)
    assert list(found) == ["total_dpq", "hispanic * cenrace_dpq", "detailed_dpq"]
    for name, query_share in zip(
        found, [Fraction(1, 10), Fraction(3, 10), Fraction(6, 10)], strict=True
    ):
        for code in (0, 2):
            sigma_squared = 1 / (Fraction(5, 2) * SHARES[code] * query_share)
            variance = noise_variance("discrete_gaussian", sigma_squared)
            assert set(found[name].variance[code::3]) == {variance}
        assert np.isinf(found[name].variance[1::3]).all()
    frame = pq.read_table(path).to_pandas()
    assert len(frame) == 3 * 40
    spent = defaultdict(Fraction)
    for geocode, plb in zip(frame["geocode"], frame["plb"], strict=True):
        spent[geocode] += Fraction(plb)
    for i, geocode in enumerate(shard.geocode):
        assert spent[geocode] == Fraction(5, 2) * SHARES[i % 3]


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_noise_has_the_stated_variance_and_is_independent(mechanism):
    shard = random_shard(n=300)
    budget = replace(BUDGET, mechanism=mechanism)
    (group,) = noisy_answers(shard, budget, PERSONS, UnchargedNoise(SeededRandom(2, mechanism)))
    detailed = group[-1]
    truth = shard.histograms[shard.plb_share_code != 1].toarray()
    noise = (detailed.values - truth).astype(float)
    code = shard.plb_share_code[shard.plb_share_code != 1]
    for share_code in (0, 2):
        own = noise[code == share_code]
        expected = detailed.variance[code == share_code][0]
        kurtosis = stats.kurtosis(own.ravel())
        error = expected * np.sqrt((kurtosis + 2) / own.size)
        assert abs(own.var() - expected) < 4 * error
        assert abs(own.mean()) < 4 * np.sqrt(expected / own.size)
        assert abs(own.var() - 1.02 * expected) > 3 * error
    correlation = np.corrcoef(noise[0::2].ravel()[:90_000], noise[1::2].ravel()[:90_000])[0, 1]
    assert abs(correlation) < 4 / 300


def test_a_published_shard_is_never_redrawn(tmp_path):
    shard, path = random_shard(), tmp_path / "0.parquet"
    measure_shard(path, shard, BUDGET, PERSONS, UnchargedNoise(SystemRandom()))
    before = path.read_bytes()

    class NoSource:
        def read(self, n_bytes: int) -> bytes:
            raise AssertionError("drawn again")

    measure_shard(path, shard, BUDGET, PERSONS, UnchargedNoise(NoSource()))
    assert path.read_bytes() == before


def test_an_infinite_budget_gives_exact_answers():
    shard = random_shard()
    (group,) = noisy_answers(
        shard, replace(BUDGET, infinite=True), PERSONS, UnchargedNoise(SeededRandom(4))
    )
    truth = shard.histograms[shard.plb_share_code != 1].toarray()
    assert np.array_equal(group[-1].values, truth)
    assert not group[-1].variance.any()
    assert set(group[-1].plb) == {"inf"}


def test_an_answer_beyond_64_bits_is_refused_rather_than_wrapped():
    full = np.zeros((90, PERSONS.n_cells), dtype=np.int64)
    full[:, 5] = 2**63 - 1
    shard = replace(random_shard(n=90), histograms=sparse.csr_array(full))
    with pytest.raises(OverflowError, match="does not fit 64 bits"):
        list(noisy_answers(shard, BUDGET, PERSONS, UnchargedNoise(SeededRandom(6))))
