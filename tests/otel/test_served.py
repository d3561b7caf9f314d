"""`halter serve --otel`: runs in the traces of those who asked for them, at a real endpoint."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .conftest import Collector

APP = (
    "from halter import Agent\n"
    "from halter.models.scripted import Scripted\n"
    "agent = Agent(Scripted('A secret.'), name='agent')\n"
)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@contextmanager
def serving(directory: Path, *options: str, **environment: str) -> Generator[str]:
    (directory / "app.py").write_text(APP)
    process = subprocess.Popen(
        [sys.executable, "-m", "halter", "serve", "app.py", "--port", "0", *options],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        greeting = re.search(r"http://\S+", process.stdout.readline())
        assert greeting is not None, process.communicate(timeout=10)
        yield greeting[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "by-the-environment"])
def test_a_served_run_is_part_of_its_callers_trace(tmp_path: Path, collector: Collector, is_asked: bool) -> None:
    options = ("--otel",) if is_asked else ()
    with serving(tmp_path, *options, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as url:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        body = {"agent": "agent", "input": "Go.", "id": "r"}
        answer = httpx.post(f"{url}/v1/runs?wait=5", json=body, headers=headers)
        assert answer.json()["status"] == "completed"
        assert httpx.post(f"{url}/v1/runs?wait=5", json={**body, "id": "s"}).json()["status"] == "completed"
    runs = {span.attributes["halter.run.id"]: span for span in collector.spans if span.name == "invoke_agent agent"}
    assert (runs["r"].trace, runs["r"].parent) == (TRACE, PARENT)
    assert runs["s"].parent == ""
    assert runs["r"].resource["service.name"] == "halter"
    assert b"secret" not in collector.bytes


def test_a_collector_that_is_away_neither_delays_runs_nor_keeps_the_server_from_ending(tmp_path: Path) -> None:
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with serving(tmp_path, "--otel", **away) as url:
        answer = httpx.post(f"{url}/v1/runs?wait=5", json={"agent": "agent", "input": "Go."})
        assert answer.json()["status"] == "completed"


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded(tmp_path: Path) -> None:
    code = "import sys, halter.server.app, halter.cli.serve; print('opentelemetry.sdk' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
