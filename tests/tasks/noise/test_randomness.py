from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
from spineflow.tasks.noise.randomness import (
    SeededRandom,
    SystemRandom,
    random_half_words,
    random_integer,
    random_words,
)
from spineflow.tasks.noise.sampler import discrete_gaussian

WIDE = Fraction(10**12)


def draw_some(_: int = 0) -> tuple[int, ...]:
    """Eight draws wide enough never to repeat by chance."""
    return tuple(discrete_gaussian(WIDE, 8, SystemRandom()).tolist())


def test_forked_children_and_their_parent_draw_different_values():
    before = draw_some()
    with multiprocessing.get_context("fork").Pool(4) as pool:
        drawn = pool.map(draw_some, range(16), chunksize=1)
    assert len({before, draw_some(), *drawn}) == 18


def test_threads_draw_different_values():
    with ThreadPoolExecutor(4) as executor:
        drawn = list(executor.map(draw_some, range(64)))
    assert len(set(drawn)) == 64


def test_seeded_streams_repeat_and_differ_by_seed_and_label():
    def read(*key):
        return SeededRandom(*key).read(40)

    assert read(7, "persons", "Block") == read(7, "persons", "Block")
    assert len({read(7), read(8), read(7, "persons"), read(7, "persons", "Block")}) == 4


def test_seeded_stream_never_repeats_itself_between_reads():
    source = SeededRandom(3)
    words = np.concatenate([random_words(source, 100) for _ in range(50)])
    assert np.unique(words).size == words.size


def test_words_have_their_sizes():
    source = SystemRandom()
    assert random_words(source, 5).dtype == np.uint64
    assert random_half_words(source, 5).dtype == np.uint16
    assert random_words(source, 0).size == 0
    assert max(random_integer(source, 64) for _ in range(64)).bit_length() > 58
