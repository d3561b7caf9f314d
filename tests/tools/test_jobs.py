"""Programs in the background: they outlive the turn and its stop, and end with their owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halter import Agent, events, runtime
from halter.errors import ConfigurationError, UsageError
from halter.models.scripted import Scripted, calls
from halter.testing import leak_check
from halter.tools import jobs as jobs_of_halter
from halter.tools.jobs import Job, Jobs, default_jobs, job_tools
from halter.tools.process import shell
from halter.tools.surroundings import Surroundings

from ..bounds import assert_within
from .processes import alive, call, new_name, patient_shell, until

HERE = Surroundings.of(None, None, None)


@pytest.fixture
def name() -> Iterator[str]:
    name = new_name()
    yield name
    assert alive(name) == [], "a job was left behind"


async def start(jobs: Jobs, command: str, *, term_grace: float = 1.0, max_output: int = 1000) -> Job:
    return await jobs.start(["bash", "-c", command], command, HERE, max_output=max_output, term_grace=term_grace)


async def heard(job: Job, word: str) -> str:
    """What it says until it has said this."""
    said: list[str] = []

    def hear() -> bool:
        said.append(job.read())
        return word in "".join(said)

    await until(hear)
    return "".join(said)


# --- how long they live -------------------------------------------------------------------------------------


@pytest.mark.loops
@pytest.mark.scenario(29)
async def test_a_job_survives_a_stopped_turn_and_ends_with_its_owner(name: str) -> None:
    async with Jobs() as jobs:
        wait = calls("shell", command="echo ready; sleep 300")
        model = Scripted(calls("shell", command=f"setsid sleep {name} & sleep {name}", background=True), wait)
        run = Agent(model, tools=[shell(approval="never", background=jobs)]).run("go").start()
        async for event in run.events():
            if isinstance(event, events.ToolProgress):
                break
        run.cancel()
        result = await run.finished()
        assert result.is_cancelled
        assert [line.label for line in result.receipt.resources if line.kind == "process"] == ["echo ready; sleep 300"]
        (job,) = jobs
        assert job.is_running
        await until(lambda: len(alive(name)) == 3)
    assert alive(name) == []
    assert not job.is_running


@pytest.mark.parametrize("ending", ["loop", "runtime"])
def test_the_default_jobs_end_with_the_loop_and_with_its_runtime(ending: str, name: str) -> None:
    async def main() -> None:
        after = await call(shell(approval="never", background=True), command=f"sleep {name}", background=True)
        assert after.text == "job-1: running"
        await until(lambda: alive(name))
        if ending == "runtime":
            await runtime().shutdown()
            assert alive(name) == []
            assert len(default_jobs()) == 0

    with leak_check(ignore_threads=("halter-watchdog", "halter-observers")):
        asyncio.run(main())
    assert alive(name) == []


@pytest.mark.real_loop
async def test_a_job_that_traps_term_is_killed_with_its_tree(name: str) -> None:
    jobs = Jobs()
    job = await start(
        jobs, f"trap '' TERM; setsid sleep {name} & echo ready; while :; do sleep {name}; done", term_grace=0.2
    )
    await heard(job, "ready")
    began = time.monotonic()
    await jobs.close()
    assert alive(name) == []
    assert job.state == "ended by signal 9, SIGKILL"
    assert_within(2.0, time.monotonic() - began)


@pytest.mark.real_loop
async def test_what_a_job_has_left_running_goes_with_it(name: str) -> None:
    async with Jobs() as jobs:
        job = await start(jobs, f"setsid sleep {name} & exit 3")
        await job.child.gone
        assert alive(name) == []
        assert (job.code, job.state) == (3, "exit code 3")


@pytest.mark.real_loop
async def test_jobs_whose_closing_is_cancelled_end_all_the_same(name: str) -> None:
    jobs = Jobs()
    job = await start(jobs, f"trap '' TERM; echo ready; while :; do sleep {name}; done", term_grace=0.3)
    await heard(job, "ready")
    closing = asyncio.create_task(jobs.close())
    await asyncio.sleep(0)  # it has begun
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await job.child.gone
    assert alive(name) == []


# --- what the model can do with them ------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_a_model_can_list_read_and_end_its_jobs(name: str, tmp_path: Path) -> None:
    async with Jobs() as jobs:
        looking, reading, ending = job_tools(jobs)
        sh = patient_shell(background=jobs)
        assert (await call(looking)).text == "There are none."
        gates = [tmp_path / "one", tmp_path / "two"]
        line = "; ".join(f"while [ ! -e {gate} ]; do sleep 0.01; done; echo {gate.name}" for gate in gates)
        line += f"; sleep {name}"
        gates[0].touch()
        said = (await call(sh, command=line, background=True)).text
        assert said.startswith("job-1: running")
        said += await heard(jobs.find("job-1"), "one") if "one" not in said else ""
        assert said.endswith("one\n")
        assert (await call(looking)).text == f"job-1: running: {line}"
        gates[1].touch()
        await until(lambda: jobs.find("job-1")._unread.text)
        assert (await call(reading, job="job-1")).text == "two\n\n(running)"
        assert (await call(reading, job="job-1")).text == "(running)"
        assert (await call(ending, job="job-1")).text == "(ended by signal 15, SIGTERM)"
        assert (await call(looking)).text == f"job-1: ended by signal 15, SIGTERM: {line}"
        missing = await call(reading, job="job-7")
        assert (missing.finished.outcome, missing.text) == ("error", "There is no job 'job-7'. There are: job-1.")


@pytest.mark.real_loop
async def test_one_that_cannot_run_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_of_halter, "FIRST_WORDS", 20.0)
    async with Jobs() as jobs:
        after = await call(shell(approval="never", background=jobs), command="echo no; exit 4", background=True)
        assert after.text == "job-1: exit code 4\nno\n"


@pytest.mark.real_loop
async def test_the_model_is_not_told_of_the_background_where_there_is_none() -> None:
    assert "background" not in shell().spec.parameters["properties"]
    assert "background" in shell(background=True).spec.parameters["properties"]
    after = await call(shell(approval="never", background=True), command="echo here")
    assert after.text == "here\n"
    assert len(default_jobs()) == 0


@pytest.mark.real_loop
async def test_what_nobody_reads_is_bounded() -> None:
    async with Jobs() as jobs:
        job = await start(jobs, "head -c 10000000 /dev/zero | tr '\\0' x; echo over", max_output=100)
        await job.child.gone
        said = job.read()
        assert said.startswith("x" * 50 + "\n…")
        assert said.endswith("xover\n")
        assert len(said) < 150


@pytest.mark.real_loop
async def test_so_many_and_no_more_run_at_once() -> None:
    async with Jobs(most=2) as jobs:
        sh = shell(approval="never", background=jobs)
        for _ in range(2):
            await call(sh, command="sleep 300", background=True)
        after = await call(sh, command="sleep 300", background=True)
        assert (after.finished.outcome, len(jobs)) == ("error", 2)
        await jobs.find("job-1").end()
        assert (await call(sh, command="sleep 300", background=True)).text == "job-3: running"


@pytest.mark.real_loop
async def test_of_ended_jobs_the_last_ones_are_kept() -> None:
    async with Jobs() as jobs:
        for _ in range(25):
            await (await start(jobs, "true")).child.gone
        await start(jobs, "true")
        assert [job.id for job in jobs] == [f"job-{number}" for number in range(6, 27)]


def test_jobs_belong_to_one_loop_and_take_nothing_when_closed() -> None:
    jobs = Jobs()

    async def one(*, close: bool) -> None:
        await start(jobs, "true")
        if close:
            await jobs.close()
            with pytest.raises(UsageError, match="closed"):
                await start(jobs, "true")

    asyncio.run(one(close=True))
    jobs = Jobs()

    async def first() -> None:
        await (await start(jobs, "true")).child.gone

    asyncio.run(first())
    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(one(close=False))
    with pytest.raises(ConfigurationError, match="most"):
        Jobs(most=0)
