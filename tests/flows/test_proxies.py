"""Behind a proxy that an office sets for everybody, commands reach servers on their own machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

ASK = """
import json, sys, urllib.request
import spineflow.flows
import httpx
answers = []
for host in sys.argv[2:]:
    address = f"http://{host}:{sys.argv[1]}/"
    answers.append(httpx.get(address).status_code)
    answers.append(urllib.request.urlopen(address).status)
print(json.dumps([answers, urllib.request.getproxies()]))
"""


NOBODY = "http://127.0.0.1:1"
"""A proxy that does not answer."""


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that answers everybody."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proxy", "given", "exempt"),
    [
        ("HTTP_PROXY", {"NO_PROXY": ".office.example"}, ".office.example,127.0.0.1,localhost,::1"),
    ],
)
def test_servers_on_this_machine_are_asked_without_the_proxy(
    port: int, proxy: str, given: dict[str, str], exempt: str
) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(port), "127.0.0.1", "localhost"],
        env=clean | given | {proxy: NOBODY},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answers, proxies = json.loads(done.stdout)
    assert answers == [200] * 4
    assert proxies["no"] == exempt and NOBODY in proxies.values(), "others use it as before"
