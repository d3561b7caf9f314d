"""The recording provider, seen through real sockets: what it sends, and what it notes."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from openai import AsyncOpenAI

from halter.proof.wire import Record, Wire, WireTimeout
from halter.proof.wire.modes import MODES, ModeError, parse_mode, split_target
from halter.proof.wire.scripts import SCRIPTS

from ..bounds import T, assert_within

RECORDINGS = Path(__file__).parents[2] / ".." / "shared" / "recorded-streams"
_tags = count(1)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire.start(tls=True, recordings=RECORDINGS if RECORDINGS.is_dir() else None) as started:
        yield started


@pytest.fixture
def tag() -> str:
    return f"tag-{next(_tags)}"


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=5)


def request(url: str, *, stream: bool = True, usage: bool = False, prompt: str = "hello", head: str = "") -> bytes:
    body: dict[str, object] = {
        "model": "m",
        "stream": stream,
        "messages": [{"role": "user", "content": prompt}],
    }
    if usage:
        body["stream_options"] = {"include_usage": True}
    data = json.dumps(body).encode()
    line = f"POST {urlsplit(url).path}/chat/completions HTTP/1.1\r\n"
    return f"{line}host: wire\r\n{head}content-length: {len(data)}\r\n\r\n".encode() + data


def ask(url: str, *, stream: bool = True, usage: bool = False, prompt: str = "hello", head: str = "") -> socket.socket:
    """Send a request on a new socket."""
    sock = connect(url)
    sock.sendall(request(url, stream=stream, usage=usage, prompt=prompt, head=head))
    return sock


def read_until(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    return data


def read_to_the_end(sock: socket.socket) -> bytes:
    """All of it, until the server closes."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def dechunk(response: bytes) -> tuple[bytes, bool]:
    """The body of a chunked response, and whether it ended."""
    rest = response.partition(b"\r\n\r\n")[2]
    body = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        if size == b"0":
            return body, True
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body, False


def exchange(url: str, *, stream: bool = True, usage: bool = False, prompt: str = "hello") -> bytes:
    """A whole response on a connection that the server closes."""
    with ask(url, stream=stream, usage=usage, prompt=prompt, head="connection: close\r\n") as sock:
        return read_to_the_end(sock)


def contents(body: bytes) -> list[str]:
    frames = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    choices = [choice for frame in frames for choice in json.loads(frame).get("choices", [])]
    return [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]


def only(records: list[Record]) -> Record:
    [record] = records
    return record


def numbered(n: int) -> list[str]:
    return [f"t{index} " for index in range(n)]


# The answer.


def test_a_steady_stream_has_the_frames_of_openai_in_their_order(wire: Wire, tag: str) -> None:
    body, ended = dechunk(exchange(wire.url("steady(3,1)", tag), usage=True))
    frames = [line[6:] for line in body.splitlines() if line]
    assert ended
    assert frames[-1] == b"[DONE]"
    first, *tokens, finish, usage = map(json.loads, frames[:-1])
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert [token["choices"][0]["delta"]["content"] for token in tokens] == numbered(3)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3


def test_a_token_frame_has_a_realistic_size(wire: Wire, tag: str) -> None:
    body, _ = dechunk(exchange(wire.url("steady(1,1)", tag)))
    [frame] = [line for line in body.splitlines() if b'"t0 "' in line]
    assert 240 <= len(frame) <= 320


def test_the_official_client_reads_a_steady_stream(wire: Wire, tag: str) -> None:
    async def read() -> tuple[str, int]:
        async with AsyncOpenAI(base_url=wire.url("steady(10,2)", tag), api_key="secret", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
        usage = chunks[-1].usage
        assert usage is not None
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]), usage.completion_tokens

    assert asyncio.run(read()) == ("".join(numbered(10)), 10)
    record = only(wire.wait("finished", tag=tag))
    assert record.headers["authorization"] == "Bearer secret"
    assert json.loads(record.body)["model"] == "m"


def test_the_official_client_gets_a_tool_call_and_after_its_result_a_text(wire: Wire, tag: str) -> None:
    arguments = '{"a": 1, "city": "Zürich, (CH)"}'

    async def talk() -> tuple[str, str, str | None]:
        url = wire.url(f"tool-call(look_up, {arguments})", tag)
        async with AsyncOpenAI(base_url=url, api_key="secret", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            calls = [c.choices[0].delta.tool_calls[0] async for c in stream if c.choices[0].delta.tool_calls]
            assert len(calls) > 3
            answer = await client.chat.completions.create(
                model="m",
                messages=[{"role": "tool", "tool_call_id": calls[0].id or "", "content": "42"}],
            )
        functions = [call.function for call in calls if call.function]
        return (
            functions[0].name or "",
            "".join(f.arguments or "" for f in functions),
            answer.choices[0].message.content,
        )

    assert asyncio.run(talk()) == ("look_up", arguments, "".join(numbered(20)))


def test_a_request_without_streaming_gets_one_json_body_after_the_time_of_the_stream(wire: Wire, tag: str) -> None:
    before = time.monotonic()
    response = exchange(wire.url("steady(4,10)", tag), stream=False)
    answer = json.loads(response.partition(b"\r\n\r\n")[2])
    assert time.monotonic() - before >= 0.035
    assert answer["choices"][0]["message"]["content"] == "".join(numbered(4))
    assert only(wire.requests(tag)).tokens_sent == 4


def test_json_mode_never_streams(wire: Wire, tag: str) -> None:
    answer = json.loads(exchange(wire.url("json(3,1)", tag)).partition(b"\r\n\r\n")[2])
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["completion_tokens"] == 3


def test_echo_repeats_the_last_user_message(wire: Wire, tag: str) -> None:
    body, _ = dechunk(exchange(wire.url("echo(3,0)", tag), prompt="run é 7"))
    assert contents(body) == ["run é 7#0 ", "run é 7#1 ", "run é 7#2 "]


def test_text_mode_tells_of_rivers(wire: Wire, tag: str) -> None:
    words = contents(dechunk(exchange(wire.url("text(0)", tag)))[0])
    assert 350 <= len(words) <= 450
    assert "".join(words).startswith("A river begins ")


def test_crlf_frames_end_with_crlf(wire: Wire, tag: str) -> None:
    body, ended = dechunk(exchange(wire.url("crlf(4)", tag)))
    assert ended
    assert contents(body) == numbered(4)
    assert b"\n" not in body.replace(b"\r\n", b"")


def test_one_byte_mode_puts_each_byte_into_its_own_chunk(wire: Wire, tag: str) -> None:
    response = exchange(wire.url("one-byte(2)", tag))
    body, ended = dechunk(response)
    assert ended
    assert contents(body) == numbered(2)
    assert response.count(b"\r\n1\r\n") == len(body)


def test_a_recording_is_replayed_byte_for_byte(wire: Wire, tag: str) -> None:
    files = sorted(RECORDINGS.glob("openai-chat/*.sse"))
    if not files:
        pytest.skip("no recorded streams beside the repository")
    name = files[0].relative_to(RECORDINGS).as_posix()
    body, ended = dechunk(exchange(wire.url(f"replay({name},1)", tag)))
    assert ended
    assert body == files[0].read_bytes()


def test_replay_does_not_leave_its_directory(wire: Wire, tag: str) -> None:
    response = exchange(wire.url(f"replay(../{Path(__file__).name})", tag))
    assert response.startswith(b"HTTP/1.1 400 ")


# The ways to go wrong.


def test_eof_ends_the_body_but_has_no_terminal_frame(wire: Wire, tag: str) -> None:
    body, ended = dechunk(exchange(wire.url("eof(2)", tag)))
    assert ended
    assert contents(body) == numbered(2)
    assert b'"stop"' not in body
    assert b"[DONE]" not in body


def test_no_done_has_the_finish_reason_but_no_terminal_frame(wire: Wire, tag: str) -> None:
    body, ended = dechunk(exchange(wire.url("no-done(2)", tag)))
    assert ended
    assert b'"stop"' in body
    assert b"[DONE]" not in body


def test_lingering_says_all_and_never_ends_the_body(wire: Wire, tag: str) -> None:
    with ask(wire.url("lingering(2)", tag)) as sock:
        body, ended = dechunk(read_until(sock, b"[DONE]\n\n\r\n"))
        assert not ended
        assert contents(body) == numbered(2)
        assert only(wire.requests(tag)).finished_at is None


def test_an_error_frame_comes_inside_a_stream_that_began_well(wire: Wire, tag: str) -> None:
    response = exchange(wire.url("error-frame(2)", tag))
    body, ended = dechunk(response)
    assert response.startswith(b"HTTP/1.1 200 ")
    assert ended
    assert contents(body) == numbered(2)
    assert b'data: {"error":{' in body


def test_cut_ends_in_the_middle_of_a_frame(wire: Wire, tag: str) -> None:
    response = exchange(wire.url("cut(2)", tag))
    body, ended = dechunk(response)
    assert not ended
    assert contents(body.rpartition(b"data: ")[0]) == numbered(2)
    assert not response.endswith(b"\n")


def test_reset_sends_its_tokens_and_then_rst(wire: Wire, tag: str) -> None:
    with ask(wire.url("reset(2)", tag)) as sock:
        assert contents(dechunk(read_until(sock, b'"t1 "'))[0])[:1] == ["t0 "]
        with pytest.raises(ConnectionResetError):
            read_to_the_end(sock)
    assert only(wire.wait("closed", tag=tag)).closed_how == "server"


def test_a_rate_limit_refuses_the_first_requests_and_serves_later_ones(wire: Wire, tag: str) -> None:
    url = wire.url("rate-limit(2,7)", tag)
    refused = [exchange(url), exchange(url)]
    assert all(r.startswith(b"HTTP/1.1 429 ") and b"retry-after: 7\r\n" in r for r in refused)
    assert contents(dechunk(exchange(url))[0]) == numbered(20)


def test_a_status_is_for_ever_unless_a_number_is_given(wire: Wire, tag: str) -> None:
    assert all(exchange(wire.url("status(503)", tag)).startswith(b"HTTP/1.1 503 ") for _ in range(3))
    answers = [exchange(wire.url("status(500,1)", tag)) for _ in range(2)]
    assert [answer.split()[1] for answer in answers] == [b"500", b"200"]


def test_a_bad_mode_is_refused_with_the_list_of_modes(wire: Wire, tag: str) -> None:
    response = exchange(f"http://127.0.0.1:{wire.port}/steddy/{tag}/v1")
    assert response.startswith(b"HTTP/1.1 400 ")
    assert b"steady(n=20, ms=5)" in response
    assert only(wire.requests(tag)).mode == "steddy"


@pytest.mark.parametrize("mode", ["", "steady(", "steady(x)", "steady(1,2,3)", "steady(-1)", "status", "steady(1,nan)"])
def test_a_mode_that_makes_no_sense_is_an_error(mode: str) -> None:
    with pytest.raises(ModeError, match="Modes: "):
        parse_mode(mode)


def test_every_mode_that_answers_has_a_script() -> None:
    assert SCRIPTS.keys() == MODES.keys() - {"no-read"}


def test_every_mode_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof-wire.md").read_text()
    assert [kind.signature for kind in MODES.values() if f"`{kind.signature}`" not in page] == []


def test_the_example_of_the_docs_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof-wire.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    assert "Wire.start" in example
    exec(compile(example, "docs/proof-wire.md", "exec"), {})


def test_a_mode_or_tag_that_makes_no_sense_makes_no_url(wire: Wire) -> None:
    with pytest.raises(ModeError):
        wire.url("steddy")
    with pytest.raises(ModeError):
        wire.url("stall", tag="a/b")


def test_a_path_is_understood_with_its_slashes_encoded_or_not() -> None:
    encoded = split_target("/replay%28a%2Fb.sse%2C3%29/tag/v1/chat/completions?x=1")
    assert encoded == split_target("/replay(a/b.sse,3)/tag/v1/chat/completions")
    assert (encoded.mode, encoded.tag, encoded.endpoint) == (
        "replay(a/b.sse,3)",
        "tag",
        "/v1/chat/completions",
    )


# The record.


@pytest.mark.parametrize("mode", ["steady(1000,10)", "stall", "stall(3)", "no-headers", "lingering(1)"])
def test_a_client_that_leaves_is_noticed_at_once(wire: Wire, tag: str, mode: str) -> None:
    state = "started" if mode == "no-headers" else "token"
    with ask(wire.url(mode, tag)) as sock:
        assert only(wire.wait(state, tag=tag)).open
        before = time.monotonic()
        sock.shutdown(socket.SHUT_RDWR)
        record = only(wire.wait("closed", tag=tag))
    assert record.closed_at is not None
    assert before <= record.closed_at
    assert_within(T, record.closed_at - before)
    assert record.closed_how == "eof"
    assert not record.open
    assert record.finished_at is None


def test_a_client_that_resets_is_told_from_one_that_ends(wire: Wire, tag: str) -> None:
    sock = ask(wire.url("stall", tag))
    wire.wait("token", tag=tag)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    assert only(wire.wait("closed", tag=tag)).closed_how == "reset"


def test_nothing_is_sent_after_the_client_has_left(wire: Wire, tag: str) -> None:
    with ask(wire.url("steady(1000,1)", tag)) as sock:
        read_until(sock, b'"t3 "')
    closed = only(wire.wait("closed", tag=tag))
    assert only(wire.requests(tag)).tokens_sent == closed.tokens_sent < 1000


def test_tokens_are_timed_at_their_pace(wire: Wire, tag: str) -> None:
    exchange(wire.url("steady(10,10)", tag))
    record = only(wire.requests(tag))
    assert record.tokens_sent == len(record.token_times) == 10
    assert record.token_times[0] == record.first_token_at
    assert record.token_times[-1] == record.last_token_at
    took = record.token_times[-1] - record.token_times[0]
    assert took >= 0.085
    assert_within(0.09 + T, took)
    assert record.started <= record.token_times[0]
    assert record.finished_at is not None
    assert record.finished_at >= record.token_times[-1]


def test_the_record_counts_the_bytes_that_the_client_reads(wire: Wire, tag: str) -> None:
    response = exchange(wire.url("steady(5,1)", tag))
    assert only(wire.requests(tag)).bytes_sent == len(response)


def test_requests_on_one_connection_have_a_record_each(wire: Wire, tag: str) -> None:
    url = wire.url("steady(3,1)", tag)
    with connect(url) as sock:
        for _ in range(3):
            sock.sendall(request(url))
            body, _ = dechunk(read_until(sock, b"\r\n0\r\n\r\n"))
            assert contents(body) == numbered(3)
        first, second, third = wire.wait("finished", tag=tag, count=3)
        assert first.connection == second.connection == third.connection
        assert first.id < second.id < third.id
        assert first.open
    assert all(record.closed_how == "eof" for record in wire.wait("closed", tag=tag, count=3))


def test_pipelined_requests_are_answered_in_turn(wire: Wire, tag: str) -> None:
    url = wire.url("steady(2,1)", tag)
    with connect(url) as sock:
        sock.sendall(request(url, prompt="a") + request(url, prompt="b", head="connection: close\r\n"))
        assert read_to_the_end(sock).count(b"[DONE]") == 2
    first, second = wire.requests(tag)
    assert first.finished_at is not None
    assert second.first_token_at is not None
    assert first.finished_at <= second.first_token_at


def test_a_chunked_body_is_understood_one_byte_at_a_time(wire: Wire, tag: str) -> None:
    url = wire.url("steady(2,1)", tag)
    head, _, body = request(url).partition(b"\r\n\r\n")
    head = head.rpartition(b"\r\n")[0] + b"\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"5;x=y\r\n" + body[:5] + b"\r\n" + b"%X\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\ntrailer: x\r\n\r\n"
    with connect(url) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head + chunks:
            sock.send(bytes([byte]))
        assert contents(dechunk(read_until(sock, b"\r\n0\r\n\r\n"))[0]) == numbered(2)
    record = only(wire.requests(tag))
    assert record.body == body.decode()
    assert record.body_bytes == len(body)


def test_wait_times_out_with_what_was_seen(wire: Wire, tag: str) -> None:
    with ask(wire.url("stall", tag)):
        wire.wait("token", tag=tag)
        with pytest.raises(WireTimeout, match=r"waited 0\.02 s for 1 requests tagged") as caught:
            wire.wait("closed", tag=tag, timeout=0.02)
    assert only(caught.value.records).tag == tag


def test_waiting_on_a_loop_leaves_the_loop_free(wire: Wire, tag: str) -> None:
    async def scenario() -> list[Record]:
        waiting = asyncio.create_task(wire.awaited("token", tag=tag))
        _, writer = await asyncio.open_connection("127.0.0.1", wire.port)
        writer.write(request(wire.url("stall", tag)))
        records = await waiting
        writer.close()
        await writer.wait_closed()
        return records

    assert only(asyncio.run(scenario())).tokens_sent == 1


def test_clear_forgets_the_records_and_the_refusals(tag: str) -> None:
    with Wire.start() as own:
        url = own.url("rate-limit(1)", tag)
        assert exchange(url).startswith(b"HTTP/1.1 429 ")
        own.clear()
        assert own.requests() == []
        assert exchange(url).startswith(b"HTTP/1.1 429 ")
        assert len(own.requests()) == 1
        assert own.stats().total_requests == 2


def test_after_a_clear_an_older_request_wakes_no_waiter(tag: str) -> None:
    with Wire.start() as own:
        with ask(own.url("stall", tag)):
            own.wait("token", tag=tag)
            own.clear()
        with pytest.raises(WireTimeout):
            own.wait("closed", tag=tag, timeout=0.05)


def test_stats_count_the_open_connections_of_clients_only(tag: str) -> None:
    with Wire.start() as own:
        assert own.stats().open_connections == 0
        with ask(own.url("stall", tag)):
            own.wait("token")
            stats = own.stats()
            assert stats.open_connections == 1
            assert stats.cpu_seconds > 0
            assert stats.rss_bytes > 1_000_000
        own.wait("closed")
        assert own.stats().open_connections == 0


# Floods, and peers that do not read.


def test_a_flood_runs_at_more_than_100_000_tokens_a_second(wire: Wire, tag: str) -> None:
    with ask(wire.url("steady(100000,0)", tag), head="connection: close\r\n") as sock:
        buffer = bytearray(1 << 18)
        last = b""
        while size := sock.recv_into(buffer):
            last = bytes(buffer[max(size - 64, 0) : size])
    assert last.endswith(b"0\r\n\r\n")
    record = only(wire.requests(tag))
    assert record.tokens_sent == 100_000
    assert len(record.token_times) == 10_000
    assert record.finished_at is not None
    assert_within(1.0, record.finished_at - record.started)


def test_a_flood_stops_when_its_reader_stops_and_ends_when_it_leaves(wire: Wire, tag: str) -> None:
    url = wire.url("steady(1000000,0)", tag)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.connect(("127.0.0.1", wire.port))
        sock.sendall(request(url))
        wire.wait("token", tag=tag)
        plateau = settled(wire, tag)
        assert plateau.bytes_sent < 1_000_000
        before = time.monotonic()
    record = only(wire.wait("closed", tag=tag))
    assert record.closed_at is not None
    assert_within(T, record.closed_at - before)
    assert record.tokens_sent == plateau.tokens_sent


def settled(wire: Wire, tag: str) -> Record:
    """The record once it has stopped growing."""
    seen = only(wire.requests(tag))
    for _ in range(100):
        time.sleep(0.02)
        now = only(wire.requests(tag))
        if now.bytes_sent == seen.bytes_sent:
            return now
        seen = now
    raise AssertionError(f"still growing: {seen}")


def stuck_after(sock: socket.socket, data: bytes) -> int:
    """How much of `data` the kernel takes before nothing moves for 50 ms."""
    sock.settimeout(0.05)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65536])
    return sent


def big_request(url: str) -> bytes:
    head = f"POST {urlsplit(url).path}/chat/completions HTTP/1.1\r\ncontent-length: 10000000\r\n\r\n"
    return head.encode() + b" " * 10_000_000


def test_no_read_leaves_a_big_body_stuck(wire: Wire, tag: str) -> None:
    data = big_request(wire.url("no-read", tag))
    with connect(wire.url()) as sock:
        assert stuck_after(sock, data) < 8_000_000
        record = only(wire.wait("started", tag=tag))
        assert record.open
        assert record.body_bytes < 600_000


def test_no_read_over_tls_leaves_a_big_body_stuck(wire: Wire, tag: str) -> None:
    data = big_request(wire.tls_url("no-read", tag))
    with tls_connect(wire) as sock:
        assert stuck_after(sock, data) < 8_000_000
        assert only(wire.wait("started", tag=tag)).open


def test_no_read_still_notices_a_reset(wire: Wire, tag: str) -> None:
    data = big_request(wire.url("no-read", tag))
    sock = connect(wire.url())
    stuck_after(sock, data)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    assert only(wire.wait("closed", tag=tag)).closed_how == "reset"


def test_what_is_not_http_is_refused(wire: Wire) -> None:
    with connect(wire.url()) as sock:
        sock.sendall(b"HELO wire\r\n\r\n")
        assert read_to_the_end(sock).startswith(b"HTTP/1.1 400 ")


def test_an_unknown_endpoint_and_a_body_that_is_no_question_are_refused(wire: Wire, tag: str) -> None:
    with connect(wire.url()) as sock:
        sock.sendall(f"POST /stall/{tag}/v1/nothing HTTP/1.1\r\ncontent-length: 0\r\n\r\n".encode())
        assert read_until(sock, b"}}").startswith(b"HTTP/1.1 404 ")
        sock.sendall(f"POST /stall/{tag}/v1/chat/completions HTTP/1.1\r\ncontent-length: 1\r\n\r\n[".encode())
        assert read_until(sock, b"}}").startswith(b"HTTP/1.1 400 ")
    assert [record.body for record in wire.requests(tag)] == ["", "["]


def test_no_read_notices_a_client_that_ends_behind_a_small_body(wire: Wire, tag: str) -> None:
    ask(wire.url("no-read", tag)).close()
    assert only(wire.wait("closed", tag=tag)).open is False


def test_no_accept_lets_a_connect_hang(wire: Wire) -> None:
    parts = urlsplit(wire.no_accept_url())
    assert parts.hostname
    assert parts.port
    for _ in range(3):
        with socket.socket() as sock:
            sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                sock.connect((parts.hostname, parts.port))


# TLS.


def tls_connect(wire: Wire) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=wire.ca_file)
    plain = socket.create_connection(("127.0.0.1", wire.tls_port), timeout=5)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_the_same_modes_are_served_over_tls(wire: Wire, tag: str) -> None:
    url = wire.tls_url("steady(2000,0)", tag)
    with tls_connect(wire) as sock:
        sock.sendall(request(url, head="connection: close\r\n"))
        body, ended = dechunk(read_to_the_end(sock))
    assert ended
    assert contents(body) == numbered(2000)


def test_over_tls_a_client_that_leaves_is_noticed_at_once(wire: Wire, tag: str) -> None:
    with tls_connect(wire) as sock:
        sock.sendall(request(wire.tls_url("stall", tag)))
        wire.wait("token", tag=tag)
        before = time.monotonic()
        sock.shutdown(socket.SHUT_RDWR)
        record = only(wire.wait("closed", tag=tag))
    assert record.closed_at is not None
    assert before <= record.closed_at
    assert_within(T, record.closed_at - before)


def test_over_tls_a_cut_has_no_goodbye(wire: Wire, tag: str) -> None:
    context = ssl.create_default_context(cafile=wire.ca_file)
    plain = socket.create_connection(("127.0.0.1", wire.tls_port), timeout=5)
    with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as sock:
        sock.sendall(request(wire.tls_url("cut(2)", tag)))
        with pytest.raises(ssl.SSLEOFError):
            read_to_the_end(sock)


# The process.


def test_many_clients_in_threads_get_their_own_answers(wire: Wire, tag: str) -> None:
    def one(index: int) -> list[str]:
        return contents(dechunk(exchange(wire.url("echo(5,2)", tag), prompt=f"c{index}"))[0])

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(64)))
    assert answers == [[f"c{index}#{i} " for i in range(5)] for index in range(64)]
    assert len({record.connection for record in wire.requests(tag)}) == 64


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(number: signal.Signals) -> None:
    with Wire.start() as own, ask(own.url("stall")):
        own.wait("token")
        os.kill(own.pid, number)
        assert end_of(own) == 0


def test_the_process_ends_with_its_parent() -> None:
    script = "from halter.proof.wire import Wire; import os; print(Wire.start().pid, flush=True); os._exit(0)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    pid = int(parent.stdout)
    deadline = time.monotonic() + 2
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def test_closing_twice_is_harmless() -> None:
    own = Wire.start()
    own.close()
    own.close()
    assert repr(own).endswith("ended with 0>")


def end_of(own: Wire) -> int | None:
    return own._process.wait(2)  # pyright: ignore[reportPrivateUsage]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
