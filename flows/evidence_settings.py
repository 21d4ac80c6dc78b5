"""Settings of the evidence flow, with the product whose census is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..tasks.evidence.settings import EvidenceSettings
from ..tasks.evidence.workload.protected import ProtectedCensus
from ..tasks.topdown.protected import CENSUS
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.workload.tables import CensusTables


class CensusEvidenceSettings(EvidenceSettings):
    """All settings of a comparison on a census that topdown reads."""

    CENSUS: ClassVar[ProtectedCensus] = CENSUS
    WRITTEN_AS: ClassVar[Mapping[str, str]] = {"product_settings": TopdownSettings.PRODUCT}

    input: CensusTables
    product_settings: TopdownSettings
