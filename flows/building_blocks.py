"""Parts for a new mechanism under one name; docs/adding_a_mechanism.md builds one.

The parts come from other modules, whose docstrings describe their use.
"""

from __future__ import annotations

from ..tasks.census.histograms import read_histogram as read_histogram
from ..tasks.census.histograms import write_histogram as write_histogram
from ..tasks.ledger.accounting import BOUNDED as BOUNDED
from ..tasks.ledger.accounting import PURE_DP as PURE_DP
from ..tasks.ledger.accounting import UNBOUNDED as UNBOUNDED
from ..tasks.ledger.accounting import ZCDP as ZCDP
from ..tasks.ledger.accounting import Guarantee as Guarantee
from ..tasks.ledger.exact_curve import known_curve as known_curve
from ..tasks.ledger.identity import ingested_once as ingested_once
from ..tasks.ledger.identity import store_identity as store_identity
from ..tasks.ledger.loss_laws import ChangedCount as ChangedCount
from ..tasks.ledger.plan import Measure as Measure
from ..tasks.ledger.plan import UniversePlan as UniversePlan
from ..tasks.ledger.recognition import input_digest as input_digest
from ..tasks.noise.draws import Noise as Noise
from ..tasks.noise.margins import distribution_of as distribution_of
from ..tasks.noise.mechanisms import DISCRETE_GAUSSIAN as DISCRETE_GAUSSIAN
from ..tasks.noise.mechanisms import DISCRETE_LAPLACE as DISCRETE_LAPLACE
from ..tasks.products.budget import Cost as Cost
from ..tasks.products.budget import margin_of as margin_of
from ..tasks.products.measurement import publish_measures as publish_measures
from ..tasks.products.plan import ExactFact as ExactFact
from ..tasks.products.plan import Plan as Plan
from ..tasks.products.plan import plan_file as plan_file
from ..tasks.products.product import Checks as Checks
from ..tasks.products.product import Product as Product
from ..tasks.products.product import Rules as Rules
from ..tasks.products.statement import Statement as Statement
from ..tasks.runs import settings as settings
from ..tasks.runs.handles import once as once
from ..tasks.runs.stamps import write_rows as write_rows
from ..tasks.runs.steps import step as step
from ..tasks.tables.findings import Finding as Finding
from ..tasks.tables.findings import InputCheck as InputCheck
from ..tasks.tables.findings import UnreadableInput as UnreadableInput
from ..tasks.tables.findings import accepted_input as accepted_input
from ..tasks.tables.layouts import TableLayout as TableLayout
from ..tasks.tables.readers import Selection as Selection
from ..tasks.tables.readers import read_batches as read_batches
from ..tasks.tables.sources import InputFile as InputFile
from ..validation.outcome import Failures as Failures
from ..validation.outcome import Outcome as Outcome
from .entry import flow_of_product as flow_of_product
from .stages import charge as charge
from .stages import release as release
from .stages import stage as stage
