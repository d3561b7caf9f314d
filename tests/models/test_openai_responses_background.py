"""`OpenAIResponses(background=True)`: a stop ends the work at the server too, and a broken connection goes on."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from halter import Agent, RunResult, RunStatus, events
from halter.core.ports import HttpRequest
from halter.errors import ConfigurationError, ConnectionFailed, IncompleteStream, ServerFailed, StreamTimeout
from halter.models import OpenAIResponses
from halter.models.http import Timeouts
from halter.models.responses.background import TRIES
from halter.outcome import Ended
from halter.testing import HANG, Answer, MemorySource, Sweep, SweepOutcome, cancel_sweep
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within

WHOLE = "".join(f"t{index} " for index in range(20))


def agent_at(url: str, **options: Any) -> Agent:
    return Agent(OpenAIResponses("m", base_url=url, api_key="k", background=True, **options))


async def stopped_after(agent: Agent, tokens: int) -> tuple[RunResult[Any], float]:
    """The result of a run that is stopped after so many tokens, and how long the stop took."""
    run = agent.run("count")
    seen = 0
    async for event in run:
        seen += isinstance(event, events.TextDelta)
        if seen == tokens:
            break
    began = time.monotonic()
    run.cancel()
    result = await run.finished()
    return result, time.monotonic() - began


def lines_of(result: RunResult[Any], kind: str) -> list[Any]:
    assert result.receipt is not None
    return [line for line in result.receipt.resources if line.kind == kind]


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test runs on a loop of its own, in real time."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


# --- over real sockets --------------------------------------------------------------------------------------


@on_a_loop
async def test_a_stop_cancels_the_answer_at_the_server_and_its_receipt_says_so(wire: WireProbe) -> None:
    """The stream's socket is closed, `POST …/cancel` is sent and answered, and both are lines of the receipt."""
    result, took = await stopped_after(agent_at(wire.url("steady(2000,5)")), 5)
    assert_within(0.25, took)
    assert result.is_cancelled
    assert result.receipt is not None
    assert result.receipt.confirmed
    (line,) = lines_of(result, "response")
    assert line.ended is Ended.CLOSED
    (socket,) = lines_of(result, "socket")
    assert socket.ended is Ended.CLOSED
    asked, cancelled = wire.requests()
    assert json.loads(asked.body) | {"input": ""} == {
        "model": "m",
        "input": "",
        "stream": True,
        "store": True,
        "background": True,
        "include": ["reasoning.encrypted_content"],
    }
    assert cancelled.path.endswith("/cancel")
    assert "/v1/responses/resp_" in cancelled.path
    assert cancelled.headers["authorization"] == "Bearer k"
    assert cancelled.finished_at is not None


@on_a_loop
async def test_an_answer_that_ended_by_itself_is_not_cancelled(wire: WireProbe) -> None:
    """Completed: one request, and no resource is left."""
    result = await agent_at(wire.url("steady(20,1)")).run("count").finished()
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == WHOLE
    assert len(wire.requests()) == 1


@pytest.mark.parametrize("mode", ["cut(3)", "reset(3)", "eof(3)", "cut(0)", "reset(10)"])
@on_a_loop
async def test_a_broken_connection_goes_on_where_it_was(wire: WireProbe, mode: str) -> None:
    """Asked again behind the last event that came: the whole text, nothing twice, nothing missing."""
    run = agent_at(wire.url(mode), max_retries=0).run("count")
    result = await run.finished()
    assert result.status is RunStatus.COMPLETED, result.why()
    shown = [event.text async for event in run.events() if isinstance(event, events.TextDelta)]
    assert "".join(shown) == result.text == WHOLE
    _, again = wire.requests()
    assert "/v1/responses/resp_" in again.path
    assert "stream=true&starting_after=" in again.path


@on_a_loop
async def test_a_stop_while_it_goes_on_again_cancels_it_too(wire: WireProbe) -> None:
    """The stop comes between the break and the new connection: cancelled at the server, at once."""
    result, took = await stopped_after(agent_at(wire.url("reset(3)")), 3)
    assert_within(0.25, took)
    assert result.is_cancelled
    (line,) = lines_of(result, "response")
    assert line.ended is Ended.CLOSED
    assert wire.requests()[-1].path.endswith("/cancel")


@on_a_loop
async def test_silence_is_a_broken_connection_too(wire: WireProbe) -> None:
    """The idle time-out closes the socket, and the rest is asked for."""
    agent = agent_at(wire.url("stall(3)"), timeouts=Timeouts(idle=0.2), max_retries=0)
    result = await agent.run("count").finished()
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == WHOLE


@on_a_loop
async def test_an_error_of_the_server_is_not_a_broken_connection(wire: WireProbe) -> None:
    """An error event: failed, and nothing is asked again. It does not say that the answer has ended: cancelled."""
    result = await agent_at(wire.url("error-frame(3)"), max_retries=0).run("count").finished()
    assert isinstance(result.error, ServerFailed)
    _, cancelled = wire.requests()
    assert cancelled.path.endswith("/cancel")


# --- in virtual time ----------------------------------------------------------------------------------------


def event(kind: str, number: int, **fields: Any) -> bytes:
    return b"data: " + json.dumps({"type": kind, "sequence_number": number, **fields}).encode() + b"\n\n"


CREATED = event("response.created", 0, response={"id": "resp/1", "status": "queued"})


def delta(number: int) -> bytes:
    return event("response.output_text.delta", number, output_index=0, content_index=0, delta=f"t{number} ")


def completed(number: int) -> bytes:
    return event("response.completed", number, response={"id": "resp/1", "status": "completed", "output": []})


def answer(*frames: bytes | Exception, head: float = 0.0) -> Answer:
    parts = [(frame, b"") if isinstance(frame, Exception) else (0.0, frame) for frame in frames]
    return Answer(body=tuple(parts), head=head)


def memory_agent(source: MemorySource, **options: Any) -> Agent:
    return agent_at("https://provider.test/v1", source=source, **options)


LOST = ConnectionFailed("gone")
REST = "https://provider.test/v1/responses/resp%2F1?stream=true&starting_after="


@pytest.mark.virtual_time
async def test_what_is_told_again_is_skipped() -> None:
    """A server that begins from the start again, and a connection that breaks twice: each token once."""
    source = MemorySource(
        answer(CREATED, delta(1), delta(2), LOST),
        answer(CREATED, delta(1), delta(2), delta(3), LOST),
        answer(delta(3), delta(4), completed(5)),
    )
    result = await memory_agent(source).run("count").finished()
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == "t1 t2 t3 t4 "
    assert [request.url for request in source.requests[1:]] == [f"{REST}2", f"{REST}3"]
    assert [request.request.method for request in source.requests] == ["POST", "GET", "GET"]


@pytest.mark.virtual_time
async def test_it_is_given_up_after_some_tries_without_anything_new() -> None:
    """Each try is later than the one before; then it is failed, with what came, and cancelled at the server."""
    source = MemorySource(answer(CREATED, delta(1)), *[answer()] * TRIES, Answer())
    result = await memory_agent(source, max_retries=0).run("count").finished()
    assert isinstance(result.error, IncompleteStream)
    assert result.text == "t1 "
    assert [request.request.method for request in source.requests] == ["POST", *["GET"] * TRIES, "POST"]
    assert source.requests[-1].url.endswith("/responses/resp%2F1/cancel")
    assert asyncio.get_running_loop().time() < 20


@pytest.mark.virtual_time
async def test_a_server_that_has_forgotten_it_is_believed() -> None:
    """404 for the rest: failed as that, not tried again."""
    source = MemorySource(answer(CREATED, delta(1), LOST), Answer(status=404), Answer())
    result = await memory_agent(source, max_retries=0).run("count").finished()
    assert "404" in str(result.error)
    assert [request.request.method for request in source.requests] == ["POST", "GET", "POST"]


@pytest.mark.virtual_time
async def test_the_total_time_out_is_final() -> None:
    """It is a limit that somebody has set, and no broken connection."""
    source = MemorySource(Answer(body=((0.0, CREATED), (HANG, b""))), Answer())
    result = await memory_agent(source, timeouts=Timeouts(total=5.0), max_retries=0).run("count").finished()
    assert isinstance(result.error, StreamTimeout)
    assert result.error.phase == "total"


@pytest.mark.virtual_time
async def test_a_cancel_that_nobody_answers_is_abandoned_at_the_end_of_the_grace() -> None:
    """The receipt names it and is not confirmed; the stop took the grace and no longer."""
    source = MemorySource(Answer(body=((0.0, CREATED + delta(1)), (HANG, b""))), Answer(head=HANG))
    run = memory_agent(source).run("count", grace=1.0)
    async for one in run:
        if isinstance(one, events.TextDelta):
            break
    began = asyncio.get_running_loop().time()
    run.cancel()
    result = await run.finished()
    assert asyncio.get_running_loop().time() - began == pytest.approx(1.0, abs=0.01)
    assert result.receipt is not None
    assert not result.receipt.confirmed
    (line,) = lines_of(result, "response")
    assert line.ended is Ended.ABANDONED
    await asyncio.sleep(10)
    assert source.open_requests == []


@pytest.mark.virtual_time
@pytest.mark.parametrize(("status", "ended"), [(200, Ended.CLOSED), (409, Ended.CLOSED), (500, Ended.ABANDONED)])
async def test_a_cancel_counts_unless_the_server_may_go_on(status: int, ended: Ended) -> None:
    """That it is over already is no failure; a server that fails may go on working."""
    source = MemorySource(Answer(body=((0.0, CREATED + delta(1)), (HANG, b""))), Answer(status=status))
    run = memory_agent(source).run("count")
    async for one in run:
        if isinstance(one, events.TextDelta):
            break
    run.cancel()
    result = await run.finished()
    (line,) = lines_of(result, "response")
    assert line.ended is ended


@pytest.mark.virtual_time
@pytest.mark.parametrize("failure", [Answer(status=500), Answer(head=ConnectionFailed("it has hung up"))])
async def test_a_cancel_that_fails_is_asked_once_more(failure: Answer) -> None:
    """As over a kept connection that the server closes just then: nothing is left at work for it."""
    source = MemorySource(Answer(body=((0.0, CREATED + delta(1)), (HANG, b""))), failure, Answer(status=200))
    run = memory_agent(source).run("count")
    async for one in run:
        if isinstance(one, events.TextDelta):
            break
    run.cancel()
    result = await run.finished()
    (line,) = lines_of(result, "response")
    assert line.ended is Ended.CLOSED
    assert [path[-7:] for path in paths_of(source)[1:]] == ["/cancel"] * 2


MALFORMED = b"data: {not json\n\n"
FAILED = event("response.failed", 2, response={"id": "resp/1", "status": "failed", "error": {"code": "server_error"}})
ERROR = event("error", 2, code="server_error", message="oh")


def paths_of(source: MemorySource) -> list[str]:
    """Each request: its method, and what follows the route."""
    route = "https://provider.test/v1/responses"
    return [f"{asked.request.method}{asked.url.removeprefix(route)}" for asked in source.requests]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("last", "cancels"), [(MALFORMED, 1), (ERROR, 1), (FAILED, 0)])
async def test_only_the_servers_word_that_it_has_ended_lets_it_go(last: bytes, cancels: int) -> None:
    """What we cannot read does not end it there: cancelled, before the run is over."""
    source = MemorySource(answer(CREATED, delta(1), last), Answer())
    result = await memory_agent(source).run("count").finished()
    assert result.status is RunStatus.FAILED
    assert paths_of(source) == ["POST", *["POST/resp%2F1/cancel"] * cancels]


@pytest.mark.virtual_time
async def test_a_frame_that_is_cut_is_a_broken_connection() -> None:
    source = MemorySource(answer(CREATED, delta(1), delta(2)[:-9]), answer(delta(2), completed(3)))
    result = await memory_agent(source).run("count").finished()
    assert result.text == "t1 t2 "


@pytest.mark.virtual_time
async def test_an_answer_that_is_given_up_is_cancelled_before_it_is_asked_anew() -> None:
    """Of three attempts never two are at work at once."""
    lost = [answer(CREATED), *[answer()] * TRIES, Answer()]
    source = MemorySource(*lost, answer(CREATED, delta(1), completed(2)))
    result = await memory_agent(source).run("count").finished()
    assert result.text == "t1 "
    rest = ["GET/resp%2F1?stream=true&starting_after=0"] * TRIES
    assert paths_of(source) == ["POST", *rest, "POST/resp%2F1/cancel", "POST"]


@pytest.mark.virtual_time
async def test_nothing_is_asked_anew_while_the_old_answer_may_be_at_work() -> None:
    """Its cancel fails, is tried again at the run's end, and the run has failed with what came before."""
    source = MemorySource(answer(CREATED), *[answer()] * TRIES, *[Answer(status=500)] * 4)
    result = await memory_agent(source).run("count").finished()
    assert isinstance(result.error, IncompleteStream)
    assert [path[-7:] for path in paths_of(source)[TRIES:]] == [
        "after=0",
        *["/cancel"] * 4,
    ]  # each time it is asked twice


def standing(status: str, *said: str) -> Answer:
    """How it stands, when that is asked for."""
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": text} for text in said]}
    body = json.dumps({"id": "resp/1", "status": status, "output": [item] if said else []}).encode()
    return Answer(headers={"content-type": "application/json"}, body=((0.0, body),))


@pytest.mark.virtual_time
async def test_a_job_may_be_silent_while_the_server_says_that_it_is_at_work() -> None:
    """Much more often than a connection that breaks is made anew; and its end is told in either way."""
    silent = Answer(body=((HANG, b""),))
    begun = Answer(body=((0.0, CREATED + delta(1)), (HANG, b"")))
    source = MemorySource(begun, *[standing("in_progress"), silent] * (3 * TRIES), standing("completed", "t1 t2 "))
    result = await memory_agent(source).run("count").finished()
    assert result.status is RunStatus.COMPLETED, result.why()
    assert result.text == "t1 t2 "
    assert paths_of(source)[1:3] == ["GET/resp%2F1", "GET/resp%2F1?stream=true&starting_after=1"]
    assert asyncio.get_running_loop().time() > 3600


@pytest.mark.virtual_time
async def test_a_server_that_is_silent_about_that_too_is_given_up() -> None:
    source = MemorySource(Answer(body=((0.0, CREATED), (HANG, b""))), *[Answer(head=HANG)] * TRIES, Answer())
    result = await memory_agent(source, max_retries=0).run("count").finished()
    assert isinstance(result.error, StreamTimeout)
    assert paths_of(source) == ["POST", *["GET/resp%2F1"] * TRIES, "POST/resp%2F1/cancel"]


@pytest.mark.virtual_time
async def test_an_unfinished_answer_in_one_piece_is_gone_on_with() -> None:
    """A server that answers the question itself so: its id is known, and nothing is asked twice."""
    source = MemorySource(standing("queued"), answer(CREATED, delta(1), completed(2)))
    result = await memory_agent(source).run("count").finished()
    assert result.text == "t1 "
    assert paths_of(source) == ["POST", "GET/resp%2F1?stream=true"]


@pytest.mark.virtual_time
async def test_a_cancel_that_nobody_answers_takes_two_seconds_of_a_long_grace() -> None:
    source = MemorySource(Answer(body=((0.0, CREATED + delta(1)), (HANG, b""))), Answer(head=HANG))
    run = memory_agent(source).run("count", grace=30.0)
    async for one in run:
        if isinstance(one, events.TextDelta):
            break
    began = asyncio.get_running_loop().time()
    run.cancel()
    result = await run.finished()
    assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.01)
    (line,) = lines_of(result, "response")
    assert line.ended is Ended.ABANDONED


@on_a_loop
async def test_each_question_for_the_rest_goes_out_once() -> None:
    """Over a kept connection, which the server closes without an answer: aiohttp would send it twice."""
    seen: list[str] = []
    asked_for_the_rest = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while head := await reader.readline():
                seen.append(head.split()[0].decode())
                length = 0
                while (line := await reader.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                await reader.readexactly(length)
                if seen[-1] == "GET":
                    asked_for_the_rest.set()
                    break
                body = standing("queued").payload
                form = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                writer.write(form % (len(body), body))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    run = agent_at(f"http://127.0.0.1:{port}/v1", max_retries=0).run("count").start()
    await asyncio.wait_for(asked_for_the_rest.wait(), 5)
    await asyncio.sleep(0.2)  # a second one by aiohttp would come at once; one of our own, after three quarters
    assert seen == ["POST", "GET"]
    run.cancel()
    await run.finished()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0.05)


def test_background_needs_a_stream() -> None:
    with pytest.raises(ConfigurationError, match="leave stream=False out"):
        OpenAIResponses("m", api_key="k", background=True, stream=False)


LAST = Answer(head=1.0, body=((0.0, delta(3)), (1.0, completed(4))))


class Server:
    """Answers the stream's requests in turn, and each cancel at once. `cancelled`: how often it was asked to."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.cancelled = 0
        self.source = MemorySource(self.answer, repeat=True)

    def answer(self, request: HttpRequest) -> Answer:
        if request.url.endswith("/cancel"):
            self.cancelled += 1
            return Answer(head=0.1)
        return self.answers.pop(0)


@pytest.mark.scenario("A6", "B20")
def test_a_stop_at_every_step_ends_it_here_and_at_the_server() -> None:
    """Before, between and after its connections: no open request, no task, and cancelled once if its id was known."""
    servers: list[Server] = []

    async def scenario(sweep: Sweep) -> RunResult[Any]:
        servers.append(Server(answer(CREATED, delta(1), LOST, head=0.1), answer(delta(2), LOST), LAST))
        run = memory_agent(servers[-1].source).run("count").start()
        sweep.cancel = run.cancel
        return await run.finished()

    def check(outcome: SweepOutcome) -> None:
        server, result = servers[-1], outcome.result
        assert server.source.open_requests == []
        if result.is_cancelled:
            assert result.receipt.confirmed
            assert server.cancelled == len(lines_of(result, "response"))
            is_known = result.text or server.cancelled
            # The stop and the answer's end may come together.
            has_ended = any(request.bytes_read == len(LAST.payload) for request in server.source.requests)
            assert server.cancelled == (1 if is_known and not has_ended else 0)
        else:
            assert result.text == "t1 t2 t3 "
            assert server.cancelled == 0

    assert cancel_sweep(scenario, check=check) > 10
    assert sum(server.cancelled for server in servers) > 5


def test_a_stop_at_every_step_of_giving_up_ends_it_here_and_at_the_server() -> None:
    """Also while it is being cancelled: then the stop does so again, and waits for that."""
    servers: list[Server] = []

    async def scenario(sweep: Sweep) -> RunResult[Any]:
        servers.append(Server(answer(CREATED, head=0.1), answer(MALFORMED, head=0.1)))
        run = memory_agent(servers[-1].source).run("count").start()
        sweep.cancel = run.cancel
        return await run.finished()

    def check(outcome: SweepOutcome) -> None:
        server, result = servers[-1], outcome.result
        assert server.source.open_requests == []
        if result.is_cancelled:
            assert result.receipt.confirmed
            assert all(line.ended is Ended.CLOSED for line in lines_of(result, "response"))
            assert server.cancelled >= len(lines_of(result, "response"))
        else:
            assert server.cancelled == 1

    assert cancel_sweep(scenario, check=check) > 5
    assert max(server.cancelled for server in servers) == 2
