"""A program that has loaded everything, and forks a process for each job: such a one is there within milliseconds.

Each job is one run of an agent on a session. What the process tells through its pipe was true when it was told, and
what is in the pipe outlives it. It never ends by itself: whoever has started it kills it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import msgspec

from halter import Agent, tool
from halter.compaction import Compaction
from halter.core.context import RunContext
from halter.messages import Message
from halter.models import OpenAIChat
from halter.models.prices import FREE
from halter.request import ModelRequest
from halter.sessions import Sessions, leases, place
from halter.tools import shell

LIMIT = 40  # seconds; a process that everybody has forgotten ends then
LARGEST_JOB = 60_000  # bytes
CHANGES = ("take", "write", "compact", "close", "update", "record", "sort_mail")  # of the store, in a turn


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    `urls`: whom its requests are sent to, one after the other; the last one stays. `summary`: who compacts, once a
    request has more than `threshold` tokens. `lease`, `hears_every`: seconds, if they are to be others than Halter's.
    """

    where: str
    session: str
    urls: tuple[str, ...]
    run_id: str
    input: str = "Do it all, please."
    keep: str = "partial"
    on_busy: str = "reject"
    grace: float = 5.0
    patience: float = 15.0
    summary: str | None = None
    threshold: int = 0
    lease: float | None = None
    hears_every: float | None = None
    dies_at: int | None = None  # before (odd) or after (even) one of its changes in the store; 0: at none of them


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What has just happened. `messages`: the run's conversation by then. `at`: on the monotonic clock.

    `ready`; `queued`: it waits for its turn; `sent`: what it was to say is sent to another run; `heard`: another
    process wants something of it; `requested`: a model is about to be asked; `summing up`: the one that compacts is;
    `began`, `done`: a tool; `border`: a change in the store is about to be, or has been; `ended`: the run.
    """

    what: str
    at: float = 0.0
    call_id: str = ""
    messages: tuple[Message, ...] = ()
    compaction: tuple[int, tuple[Message, ...]] | None = None
    status: str = ""
    reason: str = ""
    error: str = ""
    text: str = ""


class Pipe:
    """To whoever looks on. One write is one line, at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, what: str, ctx: RunContext | None = None, **fields: Any) -> None:
        if ctx is not None:
            fields |= {"messages": ctx.messages, "compaction": ctx.compaction}
        left = msgspec.json.encode(Told(what=what, at=time.monotonic(), **fields)) + b"\n"
        while left:
            left = left[os.write(self._descriptor, left) :]


class InOrder:
    """A model that sends its requests to one after the other. It tells when it is asked, and is asked by one run."""

    name = "in-order"
    price = FREE

    def __init__(self, what: str, urls: tuple[str, ...], pipe: Pipe) -> None:
        self._what = what
        self._models = [OpenAIChat("m", base_url=url, api_key="k") for url in urls]
        self._pipe = pipe

    async def respond(self, request: ModelRequest, ctx: RunContext) -> Message:
        self._pipe.tell(self._what, ctx if self._what == "requested" else None)  # a summary is a run of its own
        model = self._models.pop(0) if len(self._models) > 1 else self._models[0]
        return await model.respond(request, ctx)


def tools(pipe: Pipe, gate: asyncio.Event) -> list[Any]:
    """`work` tells when it begins, and when it has done what it does. `gate`: what work without an end waits for."""

    @tool
    async def work(name: str, ms: int, characters: int = 8) -> str:
        """Works for so many milliseconds, or until it may end, and returns so many characters."""
        ctx = RunContext.current()
        pipe.tell("began", ctx, call_id=name)
        await (gate.wait() if ms < 0 else asyncio.sleep(ms / 1000))
        pipe.tell("done", call_id=name)
        return f"{name}: " + "x y " * (characters // 4)

    return [work, shell(approval="never", background=True)]


def agent_of(job: Job, pipe: Pipe, gate: asyncio.Event) -> Agent[Any]:
    compaction = None
    if job.summary is not None:
        summing_up = InOrder("summing up", (job.summary,), pipe)
        compaction = Compaction(
            summing_up, threshold=job.threshold, target=job.threshold // 2, window=2 * job.threshold, keep_turns=1
        )
    return Agent(InOrder("requested", job.urls, pipe), tools=tools(pipe, gate), compaction=compaction)


def overhear(store: Any, pipe: Pipe) -> None:
    """It tells when it has done what others wait for, and cannot see."""
    queue, send, asked = store.queue, store.send, store.asked

    async def queue_and_tell(*args: Any, **options: Any) -> int:
        ticket = await queue(*args, **options)
        pipe.tell("queued")
        return ticket

    async def send_and_tell(*args: Any) -> int:
        number = await send(*args)
        pipe.tell("sent")
        return number

    async def ask_and_tell(owner: str) -> Any:
        found = await asked(owner)
        if found.mail or found.stops:
            pipe.tell("heard")
        return found

    store.queue, store.send, store.asked = queue_and_tell, send_and_tell, ask_and_tell


def die_at(store: Any, border: int, pipe: Pipe) -> None:
    """Kills this process there; tells of each that it passes."""
    borders = count(1)

    def pass_border() -> None:
        pipe.tell("border")
        if next(borders) == border:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(change: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def change_and_watch(*args: Any, **options: Any) -> Any:
            pass_border()
            result = await change(*args, **options)
            pass_border()
            return result

        return change_and_watch

    for name in CHANGES:
        setattr(store, name, watched(getattr(store, name)))


async def main(job: Job, pipe: Pipe) -> None:
    chats = Sessions(job.where, patience=job.patience)
    overhear(chats._place.store, pipe)
    if job.dies_at is not None:
        die_at(chats._place.store, job.dies_at, pipe)
    options: dict[str, Any] = {"keep": job.keep, "on_busy": job.on_busy, "grace": job.grace, "id": job.run_id}
    gate = asyncio.Event()
    run = agent_of(job, pipe, gate).run(job.input, session=chats.session(job.session), **options)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, run.cancel, "enough")
    loop.add_signal_handler(signal.SIGUSR2, gate.set)
    pipe.tell("ready")
    result = await run.finished()
    reason = result.cancellation.reason if result.cancellation is not None else ""
    error = f"{type(result.error).__name__}: {result.error}" if result.error is not None else ""
    pipe.tell(
        "ended", messages=result.messages, status=result.status, reason=str(reason), error=error, text=result.text
    )
    await asyncio.sleep(LIMIT)


def be_born(job: Job, descriptor: int) -> None:
    """In the forked process; it does not return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.alarm(LIMIT)
    if job.lease is not None:
        leases.LEASE = place.LEASE = job.lease
        leases.RENEWED_EVERY = job.lease / 3
    if job.hears_every is not None:
        leases.LOOKED_EVERY = job.hears_every
    try:
        asyncio.run(main(job, Pipe(descriptor)))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def serve(jobs: socket.socket) -> None:
    """Until whoever gives the jobs is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: their numbers are free at once
    while True:
        given, descriptors, _, _ = socket.recv_fds(jobs, LARGEST_JOB, 1)
        if not given:
            return
        pid = os.fork()
        if pid == 0:
            jobs.close()
            be_born(msgspec.json.decode(given, type=Job), descriptors[0])
        os.close(descriptors[0])
        jobs.send(str(pid).encode())


def load() -> None:
    """What is only loaded when it is used, and takes long."""
    OpenAIChat("m", base_url="http://127.0.0.1:1/v1", api_key="k")
    Sessions("sqlite:///nothing.db")
    Sessions("postgresql://nobody@127.0.0.1:1/nothing")


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))
