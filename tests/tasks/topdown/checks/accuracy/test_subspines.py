"""Figures of a spine that is cut between states, against those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.geography.levels import Geolevel, Spine
from spineflow.tasks.topdown.spine import files
from spineflow.tasks.topdown.spine.files import Subspine, n_subspines, state_codes, subspine_of

from tests.geography.test_covariances import LevelPrecision, covariances_of, variances


def every_state_apart(spine: Spine, monkeypatch: pytest.MonkeyPatch) -> list[Subspine]:
    """The subspines of a spine of which each has one state."""
    monkeypatch.setattr(files, "BLOCKS_PER_SUBSPINE", 1)
    return [subspine_of(spine, number) for number in range(n_subspines(spine))]


def level_of(name: str, geocode: list[str], parent: list[int], code: np.ndarray) -> Geolevel:
    n = len(geocode)
    none = np.zeros(n, dtype=bool)
    n_blocks = np.ones(n, dtype=np.int64)
    codes = np.array(geocode, dtype=object)
    return Geolevel(name, codes, np.array(parent), (), code, none, n_blocks)


def nation(seed: int) -> Spine:
    """Five State geounits of three states; the second state has two of them, one far away."""
    rng = np.random.default_rng(seed)
    names = ["001", "002", "004", "102", "104"]
    levels = [level_of("US", ["us"], [-1], np.zeros(1, dtype=int))]
    geocodes, n_above = names, 1
    for name in ("State", "County", "Block"):
        if name == "State":
            parent = np.zeros(len(names), dtype=int)
        else:
            # At least one child each, and some have a single one.
            parent = np.sort(
                np.concatenate([np.arange(n_above), rng.integers(0, n_above, size=2 * n_above)])
            )
            geocodes = [f"{name}{i:04d}" for i in range(len(parent))]
        code = rng.integers(0, 2, size=len(parent))
        levels.append(level_of(name, geocodes, parent.tolist(), code))
        n_above = len(parent)
    spine = Spine("test", tuple(levels), levels[-1].geocode, np.arange(n_above))
    ancestors = np.bincount(spine.ancestors("State"), minlength=len(names))
    levels[1].n_blocks[:] = ancestors
    return spine


def precision_of(spine: Spine, rng: np.random.Generator) -> list[LevelPrecision]:
    roots = rng.normal(size=(len(spine.geolevels), 2, 3, 3))
    return [
        LevelPrecision(root @ root.transpose(0, 2, 1), level.plb_share_code)
        for root, level in zip(roots, spine.geolevels, strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_known", [False, True])
def test_variances_of_subspines_are_those_of_the_whole(
    seed: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    spine, weights = nation(seed), rng.integers(0, 2, size=3).astype(float)
    precision = precision_of(spine, rng)
    possible = rng.random((spine.n_blocks, 3)) < 0.7
    codes = state_codes(spine.geolevel("State").geocode)
    states = np.unique(codes, return_inverse=True)[1]
    known = states if is_known else None
    whole = covariances_of(spine, precision, possible, known_sums=known)
    parts = every_state_apart(spine, monkeypatch)
    assert len(parts) == 3
    assert sorted(np.concatenate([s.blocks for s in parts])) == list(range(spine.n_blocks))

    def estimate(subspine, beside):
        own = [
            LevelPrecision(level.matrices, level.code[rows])
            for level, rows in zip(precision, subspine.positions, strict=True)
        ]
        labels = np.unique(states[subspine.positions[1]], return_inverse=True)[1]
        return covariances_of(
            subspine.spine,
            own,
            possible[subspine.blocks],
            known_sums=labels if is_known else None,
            beside=beside,
        )

    totals = [estimate(subspine, np.zeros((2, 1, 3, 3))).below_root for subspine in parts]
    entity = rng.integers(-1, 5, size=spine.n_blocks)
    for number, subspine in enumerate(parts):
        beside = np.sum([t for i, t in enumerate(totals) if i != number], axis=0)
        own = np.where(np.isin(np.arange(spine.n_blocks), subspine.blocks), entity, -1)
        found = variances(estimate(subspine, beside), entity[subspine.blocks], 5, weights)
        np.testing.assert_allclose(found, variances(whole, own, 5, weights), rtol=1e-9)


def test_blocks_of_a_subspine_keep_their_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    spine = nation(5)
    for subspine in every_state_apart(spine, monkeypatch):
        for level, rows in zip(spine.geolevels, subspine.positions, strict=True):
            part = subspine.spine.geolevel(level.name)
            assert part.geocode.tolist() == level.geocode[rows].tolist()
            ancestors = spine.ancestors(level.name)[subspine.blocks]
            assert (rows[subspine.spine.ancestors(level.name)] == ancestors).all()


def test_a_small_spine_is_not_cut() -> None:
    spine = nation(6)
    assert n_subspines(spine) == 1 and subspine_of(spine, 0).spine is spine
