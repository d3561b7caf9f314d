"""A client of ADK's routes, and the real `google-adk` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...conftest import require_service
from ...server.conftest import Served

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("HALTER_PYTHON_ADK") or ROOT / ".venv-adk" / "bin" / "python")
SESSION = {"appName": "agent", "userId": "anna", "sessionId": "s"}


class Adk:
    """Requests as ADK's clients make them. The session `s` of the user `anna` is there."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.client = served.client
        self.path = "/apps/agent/users/anna/sessions"
        assert self.client.post(f"{self.path}/s").status_code == 200

    def body(self, text: str = "Go.", **fields: Any) -> dict[str, Any]:
        return {**SESSION, "newMessage": {"role": "user", "parts": [{"text": text}]}, **fields}

    def run(self, text: str = "Go.", **fields: Any) -> httpx.Response:
        return self.client.post("/run", json=self.body(text, **fields))

    @contextmanager
    def stream(self, text: str = "Go.", *, streaming: bool = True, **fields: Any) -> Generator[Iterator[Any]]:
        body = self.body(text, streaming=streaming, **fields)
        with self.client.stream("POST", "/run_sse", json=body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield (json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data:"))

    def events(self, text: str = "Go.", **fields: Any) -> list[Any]:
        with self.stream(text, **fields) as found:
            return list(found)

    def cancel(self, session: str = "s", user: str = "anna", app: str = "agent") -> httpx.Response:
        return self.client.post(f"/apps/{app}/users/{user}/sessions/{session}:cancel")

    def session(self) -> Any:
        response = self.client.get(f"{self.path}/s")
        assert response.status_code == 200, response.text
        return response.json()

    def runs(self) -> list[Any]:
        return self.client.get("/v1/runs").json()["runs"]

    @property
    def live_url(self) -> str:
        query = "app_name=agent&user_id=anna&session_id=s&modalities=TEXT"
        return f"{self.served.url.replace('http', 'ws')}/run_live?{query}"


@pytest.fixture
def adk(serve: Callable[..., Served]) -> Callable[..., Adk]:
    """`adk(agent, **options of create_app)`."""
    return lambda agent, **options: Adk(serve(agent, **options))


class RealAdk:
    """The package `google-adk` in a process of its own: it is asked in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, **given: Any) -> Any:
        """The result of the function `what` of `real_adk.py`; a failure there is one here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, "given": given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process with google-adk has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


@pytest.fixture(scope="session")
def real_adk() -> Generator[RealAdk]:
    """One process for all tests: the package takes seconds to import."""
    require_service("google-adk (make .venv-adk/.ready)", PYTHON.exists())
    command = [str(PYTHON), "-W", "ignore", str(Path(__file__).parent / "real_adk.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield RealAdk(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
