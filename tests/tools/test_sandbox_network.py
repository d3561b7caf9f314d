"""A sandbox whose network is a list of hosts: what gets through its one door, and what does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from halter.errors import ConfigurationError
from halter.tools import sandbox_gate
from halter.tools.process import shell
from halter.tools.sandbox import Sandbox
from halter.tools.sandbox_hosts import PORT, AllowedHosts

from .processes import alive, begin, call, called, new_name, until

# Says one thing to the proxy, and shows all that it answers.
ASK = f'ask() {{ exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf "$1" >&3; cat <&3; exec 3>&-; }}; '
GET = r"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Server:
    """A server of this machine that notes what it is asked, and answers `hello`; `is_silent`: it does not answer."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.ends = 0
        self._is_silent = is_silent

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self._is_silent:
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
        self.ends += 1
        writer.close()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The addresses of names, instead of those of a name server."""
    known: dict[str, str] = {}
    ask = socket.getaddrinfo

    def look_up(host: Any, port: Any, *given: Any, **more: Any) -> Any:
        return ask(known.get(host, host), port, *given, **more)

    monkeypatch.setattr(sandbox_gate.socket, "getaddrinfo", look_up)
    return known


def tool_for(place: Path, *network: str, **options: Any) -> Any:
    return shell(approval="never", cwd=place, shell="bash", sandbox=Sandbox(network=network, **options))


@pytest.mark.real_loop
async def test_an_allowed_host_is_reached_through_the_proxy_and_nothing_else_is(
    sandboxed: Path, names: dict[str, str]
) -> None:
    """By CONNECT and by plain HTTP; not by another name, another port, nor past the proxy."""
    names |= {"good.example": "127.0.0.1", "bad.example": "127.0.0.1"}
    async with serving() as server:
        port = server.port
        tool = tool_for(sandboxed, f"good.example:{port}", "*.else.example", private=True)
        line = ASK + "; ".join(
            (
                rf'ask "CONNECT good.example:{port} HTTP/1.1\r\n\r\n{GET}"',
                rf'ask "GET http://good.example:{port}/a?b HTTP/1.1\r\nHost: bad.example\r\nX: y\r\n\r\n"',
                rf'ask "CONNECT bad.example:{port} HTTP/1.1\r\n\r\n{GET}"',
                rf'ask "GET http://bad.example:{port}/ HTTP/1.1\r\nHost: good.example\r\n\r\n"',
                rf'ask "CONNECT good.example:1 HTTP/1.1\r\n\r\n{GET}"',
                f"(: > /dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo closed",
                "echo $HTTPS_PROXY",
            )
        )
        after = await call(tool, command=line)
    assert after.text.count("hello") == 2
    assert after.text.count("403 Forbidden") == 3
    assert f"bad.example:{port} is not allowed: only good.example:{port}, *.else.example" in after.text
    assert after.text.endswith(f"closed\nhttp://127.0.0.1:{PORT}\n")
    assert len(server.heads) == 2
    assert server.heads[1].splitlines()[:3] == ["GET /a?b HTTP/1.1", f"Host: good.example:{port}", "X: y"]


@pytest.mark.real_loop
@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_an_allowed_name_that_leads_to_a_private_address_is_refused(
    address: str, names: dict[str, str], unused_gate: Any
) -> None:
    names["good.example"] = address
    said = await unused_gate(("good.example",), "CONNECT good.example:443 HTTP/1.1\r\n\r\n")
    assert "403 Forbidden" in said
    assert f"good.example is at {address}, which is no address of the public internet" in said


@pytest.mark.real_loop
@pytest.mark.parametrize(
    "request_line",
    [
        "GET https://good.example/ HTTP/1.1",
        "GET / HTTP/1.1",
        "CONNECT good.example HTTP/1.1",
        "CONNECT good.example:99999 HTTP/1.1",
        "GET http://user@good.example/ HTTP/1.1",
        "GET http://good.example%00.x/ HTTP/1.1",
        "nonsense",
    ],
)
async def test_a_request_that_is_not_plainly_for_one_host_is_refused(request_line: str, unused_gate: Any) -> None:
    assert "400 Bad Request" in await unused_gate(("*",), f"{request_line}\r\n\r\n")


@pytest.fixture
def unused_gate() -> Any:
    """Says one thing to a gate that no sandbox has, and returns the answer."""

    async def ask(network: tuple[str, ...], said: str) -> str:
        gate = sandbox_gate.Gate(AllowedHosts.of(network, private=False))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = listener.getsockname()
            socket.send_fds(gate.handover, [b"l"], [listener.fileno()])
        try:
            await gate.open()
            reader, writer = await asyncio.open_connection(*place)
            writer.write(said.encode())
            async with asyncio.timeout(10):
                answer = await reader.read()
            writer.close()
            return answer.decode()
        finally:
            gate.close()

    return ask


@pytest.mark.real_loop
async def test_a_stop_closes_what_a_program_has_open_through_the_proxy(sandboxed: Path, names: dict[str, str]) -> None:
    name = new_name()
    names["good.example"] = "127.0.0.1"
    async with serving(is_silent=True) as server:
        tool = tool_for(sandboxed, f"good.example:{server.port}", private=True)
        line = rf"{ASK} sleep {name} & echo ready; ask 'CONNECT good.example:{server.port} HTTP/1.1\r\n\r\n{GET}'"
        run = await begin(tool, command=line)
        await until(lambda: server.heads)
        run.cancel()
        after = await called(run)
        assert after.result.receipt.confirmed
        assert alive(name) == []
        await until(lambda: server.ends)


@pytest.mark.parametrize("hosts", ["example.com", (), ("",), ("http://example.com",), ("a b",), ("x:0",), (7,)])
def test_hosts_that_are_none_are_refused_where_the_sandbox_is_made(hosts: Any, bwrap: str) -> None:
    with pytest.raises(ConfigurationError, match="network takes"):
        Sandbox(program=bwrap, network=hosts)
    with pytest.raises(ConfigurationError, match="names none"):
        Sandbox(program=bwrap, private=True)


@pytest.mark.parametrize(
    ("host", "port", "is_allowed"),
    [
        ("example.com", 443, True),
        ("example.com", 80, True),
        ("example.com", 22, False),
        ("a.example.com", 443, False),
        ("a.example.org", 443, True),
        ("example.org", 443, False),
        ("xexample.org", 443, False),
        ("git.example.net", 22, True),
        ("git.example.net", 443, False),
        ("2001:db8::1", 8080, True),
    ],
)
def test_hosts_are_compared_whole_and_with_their_port(host: str, port: int, is_allowed: bool) -> None:
    allowed = ("Example.COM.", "*.example.org", "git.example.net:22", "[2001:db8::1]:8080")
    assert (AllowedHosts.of(allowed, private=False).refusal(host, port) is None) is is_allowed
