"""Random stops over each kind of tool: nothing is left, and no receipt says more than was checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_process_escapes import AS_NOBODY, READS

HERE = Path(__file__).parent
KINDS = 9
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="supervisors need Linux")


@pytest.mark.scenario("K99")
@pytest.mark.scenario(29)
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("count", [1, pytest.param(200, marks=pytest.mark.soak)], ids=["few", "many"])
@pytest.mark.parametrize("user", ["this-user", "ordinary-user"])
def test_random_stops_of_each_kind_of_tool_leave_nothing_and_claim_nothing(
    user: str, count: int, tmp_path: Path
) -> None:
    before: tuple[str, ...] = ()
    if user == "ordinary-user":
        if os.geteuid() != 0:
            pytest.skip("this user is one")
        before = (*AS_NOBODY, *READS, "--")
        os.chown(tmp_path, 65534, 65534)
        for parent in tmp_path.parents:
            if parent.stat().st_uid == 0 and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
                parent.chmod(0o755)
    done = subprocess.run(
        [*before, sys.executable, str(HERE / "stopped_calls.py"), str(count), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240 + 6 * count,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"done {KINDS * count}"], done.stdout
