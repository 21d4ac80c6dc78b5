"""What a new mechanism is built of, under one name; docs/adding_a_mechanism.md builds one.

The parts stand in the rooms that they come from, whose docstrings say how they are used.
"""

from __future__ import annotations

from spineflow.flows.entry import flow_of_product as flow_of_product
from spineflow.flows.stages import charge as charge
from spineflow.flows.stages import release as release
from spineflow.flows.stages import stage as stage
from spineflow.tasks.census.histograms import read_histogram as read_histogram
from spineflow.tasks.census.histograms import write_histogram as write_histogram
from spineflow.tasks.ledger.accounting import BOUNDED as BOUNDED
from spineflow.tasks.ledger.accounting import PURE_DP as PURE_DP
from spineflow.tasks.ledger.accounting import UNBOUNDED as UNBOUNDED
from spineflow.tasks.ledger.accounting import ZCDP as ZCDP
from spineflow.tasks.ledger.accounting import Guarantee as Guarantee
from spineflow.tasks.ledger.digests import input_digest as input_digest
from spineflow.tasks.ledger.exact_curve import known_curve as known_curve
from spineflow.tasks.ledger.identity import ingested_once as ingested_once
from spineflow.tasks.ledger.identity import store_identity as store_identity
from spineflow.tasks.ledger.loss_laws import ChangedCount as ChangedCount
from spineflow.tasks.ledger.plan import Measure as Measure
from spineflow.tasks.ledger.plan import UniversePlan as UniversePlan
from spineflow.tasks.noise.draws import Noise as Noise
from spineflow.tasks.noise.margins import distribution_of as distribution_of
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN as DISCRETE_GAUSSIAN
from spineflow.tasks.noise.mechanisms import DISCRETE_LAPLACE as DISCRETE_LAPLACE
from spineflow.tasks.products.budget import Cost as Cost
from spineflow.tasks.products.budget import margin_of as margin_of
from spineflow.tasks.products.certificate import BLURRED as BLURRED
from spineflow.tasks.products.certificate import Facts as Facts
from spineflow.tasks.products.measurement import publish_measures as publish_measures
from spineflow.tasks.products.plan import ExactFact as ExactFact
from spineflow.tasks.products.plan import Plan as Plan
from spineflow.tasks.products.plan import plan_file as plan_file
from spineflow.tasks.products.privacy_curves import Curves as Curves
from spineflow.tasks.products.product import Product as Product
from spineflow.tasks.products.statement import Statement as Statement
from spineflow.tasks.runs import settings as settings
from spineflow.tasks.runs.handles import once as once
from spineflow.tasks.runs.stamps import write_rows as write_rows
from spineflow.tasks.runs.steps import step as step
from spineflow.tasks.tables.findings import Finding as Finding
from spineflow.tasks.tables.findings import InputCheck as InputCheck
from spineflow.tasks.tables.findings import UnreadableInput as UnreadableInput
from spineflow.tasks.tables.layouts import TableLayout as TableLayout
from spineflow.tasks.tables.outcomes import accepted_input as accepted_input
from spineflow.tasks.tables.readers import Selection as Selection
from spineflow.tasks.tables.readers import read_batches as read_batches
from spineflow.tasks.tables.sources import InputFile as InputFile
from spineflow.validation.outcome import Failures as Failures
from spineflow.validation.outcome import Outcome as Outcome
