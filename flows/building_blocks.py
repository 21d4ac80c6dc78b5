"""Parts for a new mechanism under one name; docs/adding_a_mechanism.md builds one.

The parts come from other modules, whose docstrings describe their use.
"""

# ruff: noqa: F401

from __future__ import annotations

from ..tasks.census.histograms import read_histogram, write_histogram
from ..tasks.ledger.accounting import BOUNDED, PURE_DP, UNBOUNDED, ZCDP, Guarantee
from ..tasks.ledger.exact_curve import known_curve
from ..tasks.ledger.identity import ingested_once, store_identity
from ..tasks.ledger.loss_laws import ChangedCount
from ..tasks.ledger.plan import Measure, UniversePlan
from ..tasks.ledger.recognition import input_digest
from ..tasks.noise.distributions import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE, Noise, distribution_of
from ..tasks.products.budget import Cost, margin_of
from ..tasks.products.measurement import publish_measures
from ..tasks.products.plan import ExactFact, Plan, Statement, plan_file
from ..tasks.products.product import Checks, Product, Rules
from ..tasks.runs import settings
from ..tasks.runs.handles import once
from ..tasks.runs.stamps import write_rows
from ..tasks.runs.steps import step
from ..tasks.tables.findings import Finding, InputCheck, UnreadableInput, accepted_input
from ..tasks.tables.layouts import TableLayout
from ..tasks.tables.readers import Selection, read_batches
from ..tasks.tables.sources import InputFile
from ..validation.outcome import Failures, Outcome
from .running import flow_of_product
from .stages import charge, release, stage
