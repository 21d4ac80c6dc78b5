"""Plans of group sizes for tests."""

from __future__ import annotations

from collections.abc import Sequence

from spineflow.tasks.group_sizes.plan import Plan, calibrate, default_mechanism


def make_plan(
    *, names: Sequence[str], n_regions: Sequence[int], sizes, shares=None, mechanism=None, **fields
) -> Plan:
    """A plan by the names of its fields, with the default mechanism if none is named."""
    mechanism = mechanism or default_mechanism(n_regions, quantity=fields.get("quantity", 1))
    plan = Plan(mechanism=mechanism, smallest_size=sizes[0], largest_size=sizes[1], **fields)
    return calibrate(plan, names, n_regions, shares)
