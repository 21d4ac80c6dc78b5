"""The mechanisms for trips by name, and what distinguishes them."""

from __future__ import annotations

INFTDA = "inftda"
"""Top-down with the integer Chebyshev projection of Algorithm 2 in [InfTDA2024]."""

TDA_L2 = "tda_l2"
"""Top-down with the exact integer L2 projection."""

TDA_CHEBYSHEV = "tda_chebyshev"
"""Top-down with any Chebyshev minimiser, as a general solver finds it."""

FULL_INFORMATION = "inftda_full_information"
"""All levels' measurements combined by least squares on the tree, then projected top-down."""

GAUSSIAN_LEAVES = "gaussian_leaves"
"""Discrete Gaussian noise on every leaf, positive or not."""

STABILITY_HISTOGRAM = "stability_histogram"
"""Discrete Laplace noise on positive leaves, suppressed below a threshold."""

TOP_DOWN = (INFTDA, TDA_L2, TDA_CHEBYSHEV, FULL_INFORMATION)
"""Those whose estimates are consistent and not negative, with an exact invariant root."""

CHEBYSHEV = "chebyshev"
