"""Sentences on a trips release for its certificate and its report: conversion and delta."""

from __future__ import annotations

import math

from ...pages.document import Block
from ...pages.template import parts_of
from ..settings import TripsSettings


def conversion_sentence(settings: TripsSettings) -> tuple[Block, ...]:
    """The rho that the tight conversion of epsilon and delta would allow, where the simple one was
    used."""
    _, _, (section,) = parts_of(
        "trips/templates/conversion.md.j2", settings=settings, less=noise_saved(settings)
    )
    return section.blocks


def noise_saved(settings: TripsSettings) -> str | None:
    """By how many percent the tight conversion would make the noise smaller."""
    rho, other = settings.rho, settings.other_rho
    return f"{100 * (1 - math.sqrt(rho / other)):.0f}" if rho and other else None


def delta_warning(settings: TripsSettings, n_trips: int | None) -> str | None:
    """A sentence if delta is no smaller than one over the persons; None if it is, or unknown.

    `n_trips` must be public: an invariant total, or a released one.
    """
    delta = settings.privacy.delta
    if delta is None or settings.privacy.epsilon is None or n_trips is None or n_trips <= 0:
        return None
    n_persons = math.ceil(n_trips / settings.privacy.trips_per_person)
    if delta * n_persons < 1:
        return None
    return (
        f"privacy.delta = {delta} is not below one over the number of persons: such a guarantee "
        "does not rule out that a person's trips are published outright, so choose a smaller one"
    )
