"""Programs that run in the background: they outlive the call, the turn and its stop, and end with their `Jobs`.

Whoever owns a `Jobs` decides how long its programs may live: a block of code, or, for the default ones, the session of
the run, or the event loop. They end with the process in any case, and after a `kill -9` where the next one starts.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from itertools import count
from types import TracebackType

from halter import checked
from halter.children.child import Child
from halter.core.current import current_execution
from halter.core.held import held
from halter.errors import ToolError, UsageError
from halter.tools.function import FunctionTool, tool
from halter.tools.output import Output
from halter.tools.surroundings import Surroundings

KEPT = 20  # ended jobs whose last words can still be read
FIRST_WORDS = 0.25  # seconds in which a program that cannot run usually says so


class Job:
    """One program in the background. `command`: as it was given. `started_at`: seconds since the epoch."""

    def __init__(self, id: str, command: str, max_output: int, term_grace: float) -> None:
        self.id = id
        self.command = command
        self.started_at = time.time()
        self._max_output = max_output
        self._unread = Output(max_output)
        self._term_grace = term_grace
        self.child = Child(self._hear)
        self.child.outlives_runs = True

    async def begin(self, argv: Sequence[str], where: Surroundings) -> None:
        """Starts it. Raises `ToolError` if that cannot be. Cancelled, it returns when nothing of it is left."""
        try:
            await where.start(self.child, argv)
        except BaseException:
            await self.end()
            raise
        self.child.exited.add_done_callback(lambda _: self.child.end(self._term_grace))  # with what it leaves behind

    def _hear(self, data: bytes) -> None:
        self._unread.feed(data)

    @property
    def is_running(self) -> bool:
        return not self.child.exited.done()

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; `None` while it runs."""
        return self.child.code

    @property
    def state(self) -> str:
        """In words: that it runs, or how it has ended."""
        return "running" if self.is_running else self.child.how_it_ended

    def read(self) -> str:
        """What it has said since the last time: head and tail of it, if that is much."""
        text, self._unread = self._unread.text, self._unread.successor()
        return text

    async def end(self) -> None:
        """Ends it, with everything that it has started; returns when nothing is left. Cancellation-safe: goes on."""
        await asyncio.shield(self.child.end(self._term_grace))

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.command!r}, {self.state}>"


class Jobs:
    """Background programs with one owner; `async with`, or `close` at the end. `most`: how many may run at once.

    It belongs to the loop on which its first program was started. Everybody who is given its tools sees all of it;
    `default_jobs()` are those of one session.
    """

    def __init__(self, *, most: int = 20) -> None:
        self._most = checked.whole("most", most, at_least=1)
        self._jobs: dict[str, Job] = {}
        self._numbers = count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._pid = os.getpid()

    async def start(
        self, argv: Sequence[str], command: str, where: Surroundings, *, max_output: int, term_grace: float
    ) -> Job:
        """Starts a program. Raises `ToolError` if it cannot be started or too many run, `UsageError` on another loop.

        `command`: what it is called in lists. `max_output`: characters kept until they are read. `term_grace`: seconds
        between TERM and KILL. Cancellation-safe: cancelled, nothing of it is left.
        """
        self._belong_here()
        if sum(job.is_running for job in self._jobs.values()) >= self._most:
            raise ToolError(f"{self._most} programs run in the background already: end one first")
        job = Job(f"job-{next(self._numbers)}", command, max_output, term_grace)
        self._jobs[job.id] = job  # at once, so that `close` finds it
        try:
            await job.begin(argv, where)
        except BaseException:
            del self._jobs[job.id]
            raise
        self._forget_some()
        return job

    def _belong_here(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._is_closed:
            raise UsageError("these Jobs are closed: nothing can be started in them any more")
        if self._loop is not loop:
            raise UsageError("these Jobs belong to another event loop: make one for each")

    def _forget_some(self) -> None:
        ended = [job for job in self._jobs.values() if job.child.gone.done()]
        for job in ended[:-KEPT]:
            del self._jobs[job.id]

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, id: str) -> Job:
        """The job of this id. Raises `ToolError` that names those that there are."""
        if id not in self._jobs:
            raise ToolError(f"There is no job {id!r}. There are: {', '.join(self._jobs) or 'none'}.")
        return self._jobs[id]

    async def close(self) -> None:
        """Ends all, and returns when nothing of them is left; no more can be started. Cancellation-safe: goes on."""
        self._is_closed = True
        ends = [job.child.end(job._term_grace) for job in self]
        for gone in ends:
            await asyncio.shield(gone)

    def lose(self) -> None:
        """Their loop is closed: they are ended by a thread. In a forked child they are the parent's."""
        self._is_closed = True
        if os.getpid() == self._pid:
            for job in self:
                job.child.begin_to_end(job._term_grace)

    async def __aenter__(self) -> Jobs:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Jobs, {sum(job.is_running for job in self)} of {len(self)} running>"


def default_jobs() -> Jobs:
    """The jobs of the session of the run that this code belongs to; without one, those of the loop that runs here.

    They end with their session, when it is ended or deleted, and with the loop.
    """
    execution = current_execution()
    return held(None if execution is None else execution.session_key, Jobs)


async def first_words(job: Job) -> str:
    """What a model is told of a program that has just been started: also that it has ended already, if it has."""
    await asyncio.wait([job.child.exited], timeout=FIRST_WORDS)
    said = job.read()
    return f"{job.id}: {job.state}\n{said}" if said else f"{job.id}: {job.state}"


def job_tools(jobs: Jobs | None = None) -> tuple[FunctionTool[..., object], ...]:
    """Tools by which a model looks after its programs in the background: `list_jobs`, `read_job`, `end_job`.

    `jobs`: those that `shell(background=jobs)` was given; `None`: those of `background=True`, which are the session's,
    or without one the loop's.
    """

    def here() -> Jobs:
        return default_jobs() if jobs is None else jobs

    async def list_jobs() -> str:
        """Lists the programs that run in the background, or have ended lately."""
        return "\n".join(f"{job.id}: {job.state}: {job.command}" for job in here()) or "There are none."

    async def read_job(job: str) -> str:
        """Reads what a program in the background has said since the last time.

        Args:
            job: Its id, as in job-1.
        """
        found = here().find(job)
        return f"{found.read()}\n({found.state})".lstrip("\n")

    async def end_job(job: str) -> str:
        """Ends a program in the background, with everything that it has started.

        Args:
            job: Its id, as in job-1.
        """
        found = here().find(job)
        await found.end()
        return f"{found.read()}\n({found.state})".lstrip("\n")

    return tool(list_jobs, risk="reads"), tool(read_job, risk="reads"), tool(end_job)
