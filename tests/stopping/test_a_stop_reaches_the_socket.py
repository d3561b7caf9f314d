"""A1–A6, A10: wherever a request is, a stop ends its socket and causes no other."""

from __future__ import annotations

import itertools
import os
import signal
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from halter import Agent, Run, RunContext, events, runnable
from halter.outcome import CancelMode, Ended
from halter.testing.wire_probe import WireProbe

from ..bounds import T, assert_within
from .adapters import Adapter
from .conftest import port_of
from .descriptors import is_connecting, is_stuck, sockets_to, until
from .forms import AsyncForm, BlockingForm, When, after_tokens

Form = AsyncForm | BlockingForm
Reach = Callable[[str], tuple[str, dict[str, Any], int]]
NUMBERS = itertools.count(1)
BIG = "x" * 11_000_000  # the kernels swallow over 3 MB


def when_started(wire: WireProbe, count: int = 1) -> When:
    return lambda _: wire.wait("started", count)


def when_a_token_came(wire: WireProbe) -> When:
    return lambda run: (wire.wait("token"), after_tokens(1)(run))


def text_of(log: list[events.Event]) -> str:
    return "".join(event.text for event in log if isinstance(event, events.TextDelta))


# --- A1, A3 -------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A1")
def test_a_steady_stream_is_closed_when_it_is_stopped(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """After 4 tokens: the provider sees the close within 250 ms, no other request, the partial text is kept."""
    url, options, port = reach("steady(2000,5)")
    agent = adapter.agent(url, **options)
    stopped = form.stop(lambda: agent.run("count"), after_tokens(4), port)
    stopped.assert_real()
    (record,) = wire.assert_closed(T, since=stopped.asked)
    assert record.tokens_sent < 500
    assert stopped.result.text.startswith("t0 t1 t2 t3 ")
    assert stopped.result.text == text_of(stopped.events)
    assert stopped.result.text.startswith(text_of(stopped.shown))
    assert stopped.result.messages[-1].interrupted
    assert stopped.result.messages[-1].text == stopped.result.text
    time.sleep(0.05)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("A1")
def test_the_receipt_tells_what_the_provider_saw(wire: WireProbe, adapter: Adapter, form: Form, port: int) -> None:
    """One socket, closed; one task, cancelled; and its time is the provider's, but for the way between them."""
    agent = adapter.agent(wire.url("stall(3)"))
    stopped = form.stop(lambda: agent.run("count"), after_tokens(3), port)
    stopped.assert_real()
    receipt = stopped.result.receipt
    assert receipt is not None
    assert sorted((line.kind, line.ended) for line in receipt.resources) == [
        ("socket", Ended.CLOSED),
        ("task", Ended.CANCELLED),
    ]
    (record,) = wire.assert_closed(T, since=stopped.asked)
    assert record.closed_at is not None
    (line,) = [line for line in receipt.resources if line.kind == "socket"]
    assert f"127.0.0.1:{port}" in line.label
    assert line.ended_after_ms is not None
    assert 0 < line.ended_after_ms <= receipt.stopped_after_ms
    assert_within(T, receipt.stopped_after_ms / 1e3)
    # Gone on our side means on its way to theirs: they see it at about the same time.
    assert_within(T / 2, abs(record.closed_at - (stopped.asked + line.ended_after_ms / 1e3)))


@pytest.mark.scenario("A3")
def test_a_silent_stream_is_closed_without_another_byte(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """The provider sends one token and no more: a stop ends the socket within 250 ms all the same."""
    url, options, port = reach("stall(1)")
    agent = adapter.agent(url, **options)
    stopped = form.stop(lambda: agent.run("count"), when_a_token_came(wire), port)
    stopped.assert_real()
    assert stopped.result.text == "t0 "
    (record,) = wire.assert_closed(T, since=stopped.asked)
    assert record.tokens_sent == 1


# --- A2 -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A2")
def test_a_run_that_waits_for_a_slot_is_stopped_without_a_request(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """One connection, and it is taken: the second run ends within 250 ms, and was never seen by the provider."""
    agent = adapter.agent(wire.url("stall(1)"), connections=1)
    holders: list[Run[Any]] = []

    def second() -> Run[Any]:
        holders.append(agent.run("holds the slot").start())
        return agent.run("waits for it")

    def when(run: Run[Any]) -> None:
        after_tokens(1)(holders[0])
        until(lambda: any(isinstance(event, events.ModelRequested) for event in _so_far(run)))
        time.sleep(0.02)

    stopped = form.stop(second, when, port)
    assert_within(T, stopped.took)
    assert stopped.result.is_cancelled
    assert stopped.result.text == ""
    assert len(wire.requests()) == 1
    holders[0].cancel()
    wire.assert_closed()


def _so_far(run: Run[Any]) -> list[events.Event]:
    return list(run._execution.log.window.events)


@pytest.mark.scenario("A2")
def test_a_run_whose_request_is_never_answered_is_stopped(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """No headers come: the socket that waits for them is gone within 250 ms."""
    url, options, port = reach("no-headers")
    agent = adapter.agent(url, **options)
    stopped = form.stop(lambda: agent.run("count"), when_started(wire), port)
    stopped.assert_real()
    wire.assert_closed(T, since=stopped.asked)


@pytest.mark.scenario("A2")
def test_a_run_that_is_connecting_is_stopped(wire: WireProbe, adapter: Adapter, form: Form) -> None:
    """The listener's queue is full and the SYN stays unanswered: our socket is gone within 250 ms."""
    url = wire.no_accept_url()
    agent = adapter.agent(url)
    stopped = form.stop(lambda: agent.run("count"), lambda _: until(lambda: is_connecting(port_of(url))), port_of(url))
    stopped.assert_real()


@pytest.mark.scenario("A2")
def test_a_tls_handshake_that_nobody_answers_is_stopped(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """TLS to a port that speaks none: the client's hello is out, no answer comes, and our socket is gone in time."""
    agent = adapter.agent(wire.url().replace("http:", "https:"))
    before = set(sockets_to(port))

    def is_waiting() -> bool:
        return any(inode not in before for inode in sockets_to(port))

    stopped = form.stop(lambda: agent.run("count"), lambda _: (until(is_waiting), time.sleep(0.05)), port)
    stopped.assert_real()


@pytest.mark.scenario("A2")
def test_an_upload_that_nobody_reads_is_stopped(wire: WireProbe, adapter: Adapter, form: Form, reach: Reach) -> None:
    """11 MB to a provider that stops reading: nothing is flushed, and our socket is gone within 250 ms."""
    url, options, port = reach("no-read")
    agent = adapter.agent(url, **options)
    stopped = form.stop(lambda: agent.run(BIG), lambda _: (wire.wait("started"), until(lambda: is_stuck(port))), port)
    stopped.assert_real()


@contextmanager
def forked_holder() -> Generator[None]:
    """A child process that has inherited all our descriptors, and holds them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: what a worker pool does
        pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.scenario("A2")
def test_a_forked_child_that_holds_the_descriptor_does_not_keep_the_connection(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """A child forked in mid-stream holds our descriptor open: the provider sees the close within 250 ms."""
    url, options, port = reach("stall(1)")
    agent = adapter.agent(url, **options)
    holder = forked_holder()

    def when(run: Run[Any]) -> None:
        when_a_token_came(wire)(run)
        holder.__enter__()

    try:
        stopped = form.stop(lambda: agent.run("count"), when, port)
        stopped.assert_real()
        wire.assert_closed(T, since=stopped.asked)
    finally:
        holder.__exit__(None, None, None)


@pytest.mark.scenario("A2")
def test_a_name_look_up_is_stopped(
    wire: WireProbe, adapter: Adapter, form: Form, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that hangs holds up neither the run nor its end."""
    import socket

    looked = []

    def slow(*args: Any, **options: Any) -> Any:
        looked.append(args)
        time.sleep(1.0)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    host = f"provider-{next(NUMBERS)}.invalid"  # of its own: a look-up that still runs would be shared
    agent = adapter.agent(f"http://{host}/v1", max_retries=0)
    stopped = form.stop(lambda: agent.run("count"), lambda _: until(lambda: looked), port)
    assert_within(T, stopped.took)
    assert stopped.result.is_cancelled
    assert stopped.result.receipt is not None
    assert stopped.result.receipt.confirmed


# --- A4 -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A4")
def test_a_request_without_streaming_is_stopped_while_it_waits(
    wire: WireProbe, adapter: Adapter, form: Form, reach: Reach
) -> None:
    """`stream=False`, and the answer takes for ever: the socket is gone within 250 ms."""
    url, options, port = reach("stall(5)")
    agent = adapter.agent(url, stream=False, **options)
    stopped = form.stop(lambda: agent.run("count"), when_started(wire), port)
    stopped.assert_real()
    (record,) = wire.assert_closed(T, since=stopped.asked)
    assert '"stream":true' not in record.body


# --- A5, A6 -------------------------------------------------------------------------------------------------


def when_retrying(run: Run[Any]) -> None:
    for event in run.events():
        if isinstance(event, events.ModelRetry):
            return
    raise AssertionError(f"it was not retried: {run.why()}")


@pytest.mark.scenario("A5")
def test_a_run_in_its_back_off_ends_at_once_and_does_not_ask_again(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """429 with 60 s to wait: the stop ends the wait, and the provider has seen one request."""
    agent = adapter.agent(wire.url("rate-limit(1,60)"))
    stopped = form.stop(lambda: agent.run("count"), when_retrying, port)
    assert_within(T, stopped.took)
    assert stopped.result.is_cancelled
    (retry,) = [event for event in stopped.events if isinstance(event, events.ModelRetry)]
    assert retry.delay == 60.0
    time.sleep(0.1)
    assert len(wire.requests()) == 1
    wire.wait("finished")


@pytest.mark.scenario("A6")
@pytest.mark.parametrize(
    "mode", ["status(500)", "cut(0)", "reset(0)", "eof(0)", "error-frame(0)", "rate-limit(100000,0)"]
)
def test_a_stop_never_causes_a_request(wire: WireProbe, adapter: Adapter, form: Form, port: int, mode: str) -> None:
    """A provider that fails each time, stopped at 8 instants: what had been asked at the stop is all that ever is."""
    agent = adapter.agent(wire.url(mode), max_retries=100_000)
    asked = 0
    for index in range(8):
        before = len(wire.requests())

        def when(_: Run[Any], index: int = index, before: int = before) -> None:
            wire.wait("started", before + 1)
            time.sleep(index * 0.001)

        stopped = form.stop(lambda: agent.run("count"), when, port)
        assert_within(T, stopped.took)
        assert stopped.result.is_cancelled
        order = [event.type for event in stopped.events]
        behind = order[order.index("run.cancelling") :]
        assert not {"model.requested", "model.retry", "text.delta"} & set(behind)
        asked += stopped.requests_asked
        wire.assert_no_requests_after(stopped.returned + 0.05)
    time.sleep(0.06)
    assert len(wire.requests()) <= asked


# --- A10 ----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("A10")
def test_an_agent_with_a_second_turn_to_come_asks_once_if_it_is_stopped_in_the_first(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """A message was sent for the next turn; stopped in the first, the next never begins."""
    agent = adapter.agent(wire.url("steady(2000,5)"))

    def when(run: Run[Any]) -> None:
        assert run.send("and now backwards")
        after_tokens(4)(run)

    stopped = form.stop(lambda: agent.run("count"), when, port)
    stopped.assert_real()
    wire.assert_closed(T, since=stopped.asked)
    time.sleep(0.1)
    assert len(wire.requests()) == 1


@pytest.mark.scenario("A10")
def test_three_agents_in_a_loop_stopped_in_the_first_make_one_request(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """The loop goes no further, though its body catches what it may catch."""
    agents = [adapter.agent(wire.url("steady(2000,5)"), name=name) for name in ("one", "two", "three")]
    said = _loop_of(agents)
    stopped = form.stop(lambda: said.run("count"), _first_child_shows, port)
    stopped.assert_real()
    time.sleep(0.1)
    (record,) = wire.assert_closed(T, since=stopped.asked)
    assert record.tokens_sent < 500


def _loop_of(agents: list[Agent]) -> Any:
    @runnable
    async def three(ctx: RunContext) -> list[str]:
        said: list[str] = []
        for agent in agents:
            try:
                said.append((await ctx.start(agent, "go")).text)
            except Exception as error:  # what a loop of somebody's own does
                said.append(str(error))
        return said

    return three


def _first_child_shows(run: Run[Any]) -> None:
    seen = 0
    for event in run.events():
        seen += isinstance(event, events.TextDelta)
        if seen == 4:
            return


@pytest.mark.scenario("A10")
def test_a_stop_that_waits_for_the_turn_makes_no_second_request(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """`after_turn` with a message for the next turn: the first turn's text is whole, and it was the only request."""
    agent = adapter.agent(wire.url("steady(30,3)"))

    def when(run: Run[Any]) -> None:
        run.send("and now backwards")
        after_tokens(4)(run)
        run.cancel(mode=CancelMode.AFTER_TURN)
        wire.wait("finished")
        run._execution.done.block_until(lambda: run.outcome is not None, 5)

    stopped = form.stop(lambda: agent.run("count"), when, port)
    assert not stopped.in_force  # it was over
    assert stopped.result.is_cancelled
    assert stopped.result.text == "".join(f"t{index} " for index in range(30))
    time.sleep(0.05)
    assert len(wire.requests()) == 1


def test_no_socket_of_ours_is_left_to_a_port_that_we_no_longer_use(
    wire: WireProbe, adapter: Adapter, form: Form, port: int
) -> None:
    """The look at `/proc/self/fd` is worth something: while a stream runs, its socket is there."""
    agent = adapter.agent(wire.url("stall(1)"), connections=777)  # a pool of its own: none is kept
    before = set(sockets_to(port))
    held: list[Any] = []

    def when(run: Run[Any]) -> None:
        after_tokens(1)(run)
        held.extend(inode for inode in sockets_to(port) if inode not in before)

    stopped = form.stop(lambda: agent.run("count"), when, port)
    assert held
    assert not set(held) & set(sockets_to(port))
    stopped.assert_real()
