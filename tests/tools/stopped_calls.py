"""Stops calls of each kind of tool at random times, and looks each time whether the receipt says no more than is so.

Usage: stopped_calls.py COUNT DIRECTORY. A program, because it is run as root and as an ordinary user. Prints what was
wrong, a line for each; then `done`, and how many stops there were.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from halter import Agent, tool
from halter.children import proc, supervised
from halter.models.scripted import Scripted, calls
from halter.tools.fetching import http_get
from halter.tools.filesystem import files
from halter.tools.jobs import Jobs
from halter.tools.mcp import mcp_tools
from halter.tools.process import shell

HERE = Path(__file__).parent
LONGEST_WAIT = 0.12  # seconds from the start of a run to its stop, at random: it is starting, or at work
at_work: set[str] = set()  # functions of this process that have begun, and have not ended
wrong: list[str] = []


def alive(name: str) -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if name in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                found.append(pid)
        except OSError:
            pass
    return found


@tool
async def hang() -> None:
    at_work.add("hang")
    try:
        await asyncio.sleep(300)
    finally:
        at_work.discard("hang")


@tool
def drowse() -> None:
    """No token reaches it: a stop has to abandon it, or to find that it has ended."""
    at_work.add("drowse")
    time.sleep(0.15)
    at_work.discard("drowse")


async def stopped(name: str, used: Any, /, **arguments: Any) -> None:
    """One stop of one call. `name`: in the command line of all that it starts."""
    run = Agent(Scripted(calls(used.name, **arguments), "done"), tools=[used]).run("go", grace=30.0).start()
    await asyncio.sleep(random.uniform(0, LONGEST_WAIT))
    run.cancel()
    receipt = (await run.finished()).receipt
    if receipt is None:
        return  # it was over before
    left = [*alive(name), *at_work]
    if receipt.confirmed and left:
        wrong.append(f"{used.name}: confirmed, and still there: {left}\n{receipt}")
    elif not receipt.confirmed and used is not drowse:
        wrong.append(f"{used.name}: not confirmed:\n{receipt}")
    await until(lambda: not at_work)


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not look():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def one_job(name: str) -> None:
    """A job is ended at a random time; what its owner is told is that nothing is left."""
    async with Jobs() as jobs:
        tools = [shell(approval="never", background=jobs, term_grace=10.0)]
        script = Scripted(calls("shell", command=f"setsid sleep {name} & sleep {name}", background=True), "done")
        run = Agent(script, tools=tools).run("go", grace=30.0).start()
        await asyncio.sleep(random.uniform(0, LONGEST_WAIT))
        run.cancel()
        await run.finished()
    if alive(name):
        wrong.append(f"job: its owner is closed, and still there: {alive(name)}")


# --- servers ------------------------------------------------------------------------------------------------


async def answer_mcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Streamable HTTP, as little of it as a client needs; a call of a tool is never answered."""
    try:
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            asked = json.loads(await reader.readexactly(length) or b"{}")
            about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": SERVER}
            answers: dict[str, Any] = {"initialize": about, "tools/list": {"tools": [HANG]}}
            method = asked.get("method", "")
            if method == "tools/call":
                await reader.read()
                return
            if method in answers:
                body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answers[method]}).encode()
                said = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                writer.write(said + body)
            else:
                status = b"405 Method Not Allowed" if head.startswith(b"get") else b"202 Accepted"
                writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


SERVER = {"name": "by hand", "version": "1"}
HANG = {"name": "hang", "inputSchema": {"type": "object", "properties": {}}}


async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass
    writer.close()


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[str]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


# --- all of it ----------------------------------------------------------------------------------------------


async def main(count: int, place: Path) -> int:
    sys.path.insert(0, str(HERE))
    import isolated_functions

    (place / "a").write_text("x" * 100_000)
    (search,) = (each for each in files(place) if each.name == "grep")
    run_shell = shell(approval="never", term_grace=10.0)
    done = 0
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(serving(answer_nothing))
        over_http = await stack.enter_async_context(serving(answer_mcp))
        stdio = [sys.executable, str(HERE / "mcp_server.py"), str(place / "log")]
        by_stdio = {each.name: each for each in await stack.enter_async_context(mcp_tools(stdio))}
        (by_http,) = await stack.enter_async_context(mcp_tools(over_http))
        get = http_get(private=True)
        kinds: list[Callable[[str], Any]] = [
            lambda name: stopped(name, run_shell, command=f"env -i setsid sleep {name} & sleep {name} & sleep {name}"),
            one_job,
            lambda name: stopped(name, isolated_functions.sleep, seconds=300, name=name),
            lambda name: stopped(name, drowse),
            lambda name: stopped(name, hang),
            lambda name: stopped(name, by_stdio["hang"]),
            lambda name: stopped(name, by_http),
            lambda name: stopped(name, get, url=silent),
            lambda name: stopped(name, search, pattern="(x+x+)+y"),
        ]
        order = kinds * count
        random.shuffle(order)
        for kind in order:
            await kind(f"{random.randrange(300, 400)}.{random.randrange(10**12):012}")
            done += 1
    helper = supervised._helper
    if helper is None:
        wrong.append("programs ran without supervisors")
    else:
        await until(lambda: not proc.below(helper._server).processes)
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith("halter-call-")])
    return done


if __name__ == "__main__":
    stops = asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
    print(*wrong, f"done {stops}", sep="\n")
