"""`halter.client`: the words of `Run`, over HTTP; it resumes by itself, and never after a stop."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Generator

import pytest

from halter import Agent, RunCancelled, RunFailed
from halter.client import Client
from halter.errors import ConnectionFailed, RunLost, ServerRefused
from halter.models.scripted import Scripted
from halter.testing.wire_probe import WireProbe

from .conftest import Serve, Served

AgentOn = Callable[..., Agent]


class Relay:
    """A TCP relay in front of a server, whose connections can be cut."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            far = socket.create_connection(self._target)
            self._pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass  # cut
        _shut(source, sink)
        source.close()  # the other one is closed by the thread that reads from it

    def cut(self) -> None:
        """Cuts all connections that there are."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _shut(*pair)

    def close(self) -> None:
        self._listening.close()
        self.cut()


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # gone already


@pytest.fixture
def relay(serve: Serve, agent_on: AgentOn) -> Generator[Callable[[str], tuple[Relay, Served]]]:
    made: list[Relay] = []

    def make(mode: str) -> tuple[Relay, Served]:
        served = serve(agent_on(mode))
        made.append(Relay(served.url))
        return made[-1], served

    yield make
    for each in made:
        each.close()


def test_a_run_is_started_iterated_and_awaited(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(20,5)"))

    async def main() -> None:
        async with Client(served.url) as client:
            run = client.run("agent", "Go.")
            found = [event async for event in run]
            assert [event.seq for event in found] == list(range(1, len(found) + 1))
            result = await run
            assert result.text.split() == [f"t{number}" for number in range(20)]
            assert [message.text for message in result.messages] == [result.text]

    asyncio.run(main())


def test_a_blocking_program_does_the_same(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(20,5)"))
    with Client(served.url) as client:
        run = client.run("agent", "Go.")
        assert "".join(run.text_stream()).split()[-1] == "t19"
        assert run.result(5).is_completed
        assert run.id in [each["id"] for each in client.runs().result()["runs"]]


def test_leaving_the_block_stops_the_run_down_to_the_provider(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("steady(1000,10)"))

    async def main() -> float:
        async with Client(served.url) as client:
            async with client.run("agent", "Go.") as run:
                async for _ in run.text_stream():
                    break
            assert run.is_cancelled
            with pytest.raises(RunCancelled):
                await run
            return time.monotonic()

    wire.assert_closed(since=asyncio.run(main()))


def test_a_cancel_from_a_thread_ends_the_reader_and_says_by_whom(
    serve: Serve, agent_on: AgentOn, wire: WireProbe
) -> None:
    served = serve(agent_on("stall"))
    with Client(served.url) as client:
        run = client.run("agent", "Go.").start()
        wire.wait("token")
        threading.Thread(target=run.cancel, args=("enough",)).start()
        list(run)
        assert run.outcome is not None
        assert run.outcome.cancellation is not None
        assert (run.outcome.cancellation.message, run.outcome.cancellation.actor) == ("enough", "anonymous")
        assert run.outcome.receipt is not None
        assert run.outcome.receipt.confirmed
        assert run.cancel() is False
    wire.assert_closed()


def test_a_connection_that_is_cut_is_resumed_without_a_gap(
    relay: Callable[[str], tuple[Relay, Served]], wire: WireProbe
) -> None:
    front, _ = relay("steady(120,10)")
    with Client(front.url) as client:
        run = client.run("agent", "Go.")
        numbers: list[int] = []
        for event in run:
            numbers.append(event.seq)
            if len(numbers) in (10, 40, 80):
                front.cut()
        firsts = [getattr(event, "first_seq", event.seq) for event in run.events()]
        assert firsts[1:] == [number + 1 for number in numbers[:-1]]
        assert run.text.split() == [f"t{number}" for number in range(120)]
        assert run.gaps == ()
    assert front.accepted >= 4
    assert len(wire.requests()) == 1


def test_after_a_stop_nothing_is_sent_again(relay: Callable[[str], tuple[Relay, Served]], wire: WireProbe) -> None:
    front, served = relay("stall")
    with Client(front.url) as client:
        run = client.run("agent", "Go.").start()
        wire.wait("token")
        run.close(5)
        before = front.accepted
        front.cut()
        time.sleep(0.3)
        assert front.accepted == before
        assert served.run(run.id)["status"] == "cancelled"


def test_a_dropped_handle_lets_the_server_stop_the_run(serve: Serve, agent_on: AgentOn, wire: WireProbe) -> None:
    served = serve(agent_on("stall"))
    client = Client(served.url, linger=0)
    run = client.run("agent", "Go.").start()
    wire.wait("token")
    del run
    gc.collect()
    wire.assert_closed(1.0)
    client.close()


def test_a_detached_run_is_found_again_by_another_client(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(60,10)"))
    with Client(served.url) as client:
        run = client.run("agent", "Go.", on_disconnect="detach")
        next(iter(run))
        id = run.detach()
    with Client(served.url) as other:
        assert other.find(id).result(10).text.split()[-1] == "t59"


def test_what_the_server_refuses_is_raised_and_not_tried_again(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on())
    with Client(served.url) as client:
        with pytest.raises(ServerRefused, match="no agent 'nobody'") as caught:
            client.run("nobody", "Go.").result(5)
        assert caught.value.status == 422
        with pytest.raises(RunLost):
            client.find("nobody").result(5)


def test_a_run_whose_log_is_gone_still_has_its_end(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("steady(5,1)"), retain=0.0)
    served.start(id="r")
    served.until("r", "completed")
    with Client(served.url) as client:
        run = client.find("r")
        assert run.result(5).text.split() == [f"t{number}" for number in range(5)]
        assert len(run.gaps) == 1


def test_a_failed_run_raises_with_the_servers_words(serve: Serve, agent_on: AgentOn) -> None:
    served = serve(agent_on("status(401)"))
    with Client(served.url) as client, pytest.raises(RunFailed, match="AuthenticationFailed"):
        client.run("agent", "Go.").result(5)


def test_a_server_that_is_not_there_is_an_error_after_the_patience() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Client(url, patience=0.2) as client, pytest.raises(ConnectionFailed, match="no answer from"):
        client.run("agent", "Go.").result(5)


def test_a_question_is_answered_and_a_run_steered(serve: Serve) -> None:
    from halter import tool
    from halter.models.scripted import calls

    @tool(approval="always")
    async def pay(to: str) -> str:
        """Pays."""
        return "paid"

    served = serve(Agent(Scripted(calls("pay", to="anna"), "Done."), name="agent", tools=[pay]))
    with Client(served.url) as client:
        run = client.run("agent", "Go.")
        for event in run:
            if event.type == "input.requested":
                assert run.send("And hurry.").result(5)
                assert run.answer(event.request_id, "yes").result(5)
        assert run.is_completed
        assert run.send("Too late.").result(5) is False
