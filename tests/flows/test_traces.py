"""A run as spans of OpenTelemetry, which Prefect makes: its stages, and nothing of the people."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conformance.cases import write_groups

pytest.importorskip("opentelemetry.sdk")

TRACED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

exporter = ConsoleSpanExporter(out=open(sys.argv[1], "w"))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from spineflow.flows.cli import main

sys.exit(main(sys.argv[2:]))
"""


def decoded(text: str) -> list[dict[str, Any]]:
    """Spans, each as JSON over several lines, one after the other."""
    joined = text.strip().replace("}\n{", "},{")
    return json.loads(f"[{joined}]")


@pytest.mark.soak(9)
def test_a_private_run_is_a_trace_of_its_stages(real_server, tmp_path: Path) -> None:
    (tmp_path / "prefect").mkdir()
    shutil.copy(real_server.new_database, tmp_path / "prefect" / "prefect.db")
    settings, spans = write_groups(tmp_path), tmp_path / "spans"
    command = ["run", "group-sizes", str(settings), "--run-dir", str(tmp_path / "run")]
    subprocess.run(
        [sys.executable, "-c", TRACED, str(spans), *command],
        env=os.environ | {"PREFECT_HOME": str(tmp_path / "prefect")},
        check=True,
        capture_output=True,
    )
    flow, *others = sorted(decoded(spans.read_text()), key=lambda span: bool(span["parent_id"]))
    assert {span["parent_id"] for span in others} == {flow["context"]["span_id"]}
    names = [span["name"] for span in others]
    assert names[:2] == ["ingest", "charge ledger"] and "measure-county" in names
    for span in (flow, *others):
        told = {key.rpartition(".")[0] for key in span["attributes"]}
        assert told <= {"prefect.run", "prefect.run.parameter", "prefect.flow", "prefect"}, told
        types = {v for k, v in span["attributes"].items() if ".parameter." in k}
        assert types <= {"str", "tuple", "GroupSizesForm"}, (
            "types of parameters, never their values"
        )
