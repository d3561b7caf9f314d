"""The programs that a run's tools are running can be seen while they run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from halter import Agent
from halter.models.scripted import Scripted, calls
from halter.server.keys import KeyFile
from halter.tools.process import shell

from .conftest import Serve

PATIENCE = 10.0


def test_a_live_run_shows_its_programs_and_an_ended_one_none(serve: Serve) -> None:
    model = Scripted(calls("shell", command="sleep 71; true"), "Done.")
    inner = Agent(model, name="worker", description="Works.", tools=[shell(approval="never")])
    chief = Agent(Scripted(calls("worker", input="Go."), "Done."), name="chief", tools=[inner])
    served = serve(chief)
    served.start("chief", id="r")

    def seen() -> list[dict[str, Any]]:
        return served.client.get("/v1/runs/r/processes").raise_for_status().json()["processes"]

    until = time.monotonic() + PATIENCE
    while not (found := seen()) and time.monotonic() < until:
        time.sleep(0.01)
    [program] = found
    assert (program["command"], program["call_id"] != "") == ("sleep 71; true", True)
    [child] = served.run("r")["children"]
    assert program["run_id"] == child["id"]
    assert Path(f"/proc/{program['pid']}").exists()
    assert seen()[0]["elapsed"] >= program["elapsed"] > 0
    served.cancel("r")
    assert seen() == []
    assert served.client.get("/v1/runs/unknown/processes").status_code == 404


def test_another_tenants_programs_do_not_exist(serve: Serve, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    red, blue = ({"Authorization": f"Bearer {keys.add('x', tenant=tenant)}"} for tenant in ("red", "blue"))
    served = serve(Agent(Scripted("Hi."), name="agent"), auth=keys)
    served.client.post("/v1/runs", json={"agent": "agent", "input": "Go.", "id": "r"}, headers=red)
    assert served.client.get("/v1/runs/r/processes", headers=red).json() == {"processes": []}
    assert served.client.get("/v1/runs/r/processes", headers=blue).status_code == 404
