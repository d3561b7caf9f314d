"""`client.js` in Node: the same fold as the server's, each event once, and nothing after a stop."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import tarfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import halter
from halter import Agent, events, tool
from halter.models.scripted import Scripted, calls
from halter.server.routes.browser import CLIENT
from halter.snapshot import Fold
from halter.testing.wire_probe import WireProbe

from ...server.test_client import Relay
from .conftest import Script, Serve, Served
from .logs import RandomLog, merged

AgentOn = Callable[..., Agent]
ROOT = Path(__file__).parents[3]


def plain(value: Any) -> Any:
    return json.loads(events.encode_any(value))


def words(count: int) -> str:
    return " ".join(f"t{number}" for number in range(count))


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


# --- the fold


def test_the_fold_of_client_js_equals_the_servers_for_all_event_types(script: Script) -> None:
    cases: list[dict[str, Any]] = []
    seen: set[type] = set()
    for seed in range(60):
        log = RandomLog(seed).write(80)
        seen |= {type(event) for event in log}
        fold, half = Fold("root"), Fold("root")
        fold.apply(log)
        half.apply(log[: len(log) // 2])
        begin = {"type": "snapshot", "cursor": "1.1", **msgspec.structs.asdict(half.snapshot())}
        cases.append(
            {
                "log": plain(log),
                "merged": plain(merged(log)),
                "resumed": [plain(begin), *plain(log[len(log) // 2 :])],
                "snapshot": plain(fold.snapshot()),
            }
        )
    assert seen == set(get_args(events.AnyEvent))
    found = script(
        """
        const folded = (log) => {
          const fold = new Fold("root")
          fold.apply(log)
          return { ...fold.snapshot(), terminal: fold.terminal?.type }
        }
        print(given.cases.map(({ log, merged, resumed }) => [log, merged, resumed].map(folded)))
        """,
        cases=cases,
    )
    for case, results in zip(cases, found, strict=True):
        for result in results:
            assert result.pop("terminal") == case["log"][-1]["type"]
            assert result == case["snapshot"]


def test_frames_are_found_in_any_pieces_of_bytes(script: Script) -> None:
    found = script(
        """
        const text = 'id: 1.1\\nevent: x\\ndata: {"text":"ü😀"}\\n\\n: ping\\n\\ndata: {"n":2}\\n\\n'
        const bytes = new TextEncoder().encode(text)
        const results = new Set()
        for (let cut = 0; cut <= bytes.length; cut++) {
          const splitter = new FrameSplitter()
          results.add(JSON.stringify([...splitter.feed(bytes.slice(0, cut)), ...splitter.feed(bytes.slice(cut))]))
        }
        const splitter = new FrameSplitter()
        results.add(JSON.stringify([...bytes].flatMap((byte) => splitter.feed(new Uint8Array([byte])))))
        print([...results].map((each) => JSON.parse(each)))
        """
    )
    assert found == [['{"text":"ü😀"}', '{"n":2}']]


# --- runs


def test_a_run_is_iterated_to_its_end(serve: Serve, script: Script) -> None:
    @tool
    async def look(city: str) -> str:
        """Looks."""
        return f"sunny in {city}"

    served = serve(Agent(Scripted(calls("look", city="Rome"), "It is sunny."), name="agent", tools=[look]))
    found = script(
        """
        const run = halter.run("agent", "Go.", { tags: ["demo"], session: "s" })
        const seen = []
        for await (const event of run) seen.push(event)
        const late = []
        for await (const event of run) late.push(event.type)
        let text = ""
        for await (const piece of halter.find(run.id, { from: "start" }).text()) text += piece
        const { outcome } = run
        print({ seen, late, text, outcome, status: run.status, snapshot: run.snapshot(), cursor: run.cursor })
        """,
        url=served.url,
    )
    record = served.client.get("/v1/runs").json()["runs"][0]
    assert [event["seq"] for event in found["seen"]] == list(range(1, len(found["seen"]) + 1))
    assert found["seen"][-1]["type"] == "run.completed"
    assert found["late"] == ["snapshot"]
    assert (found["text"], found["outcome"]["text"], found["status"]) == ("It is sunny.", "It is sunny.", "completed")
    assert (record["tags"], record["session"], record["cursor"]) == (["demo"], "s", found["cursor"])
    fold = Fold(record["id"])
    fold.apply([events.decode(json.dumps(event)) for event in found["seen"]])
    assert found["snapshot"] == plain(fold.snapshot())


@pytest.mark.scenario("G66")
def test_a_stop_closes_the_provider_and_gives_the_receipt(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, script: Script
) -> None:
    served = serve(agent_on("steady(2000,5)"))
    found = script(
        """
        const run = halter.run("agent", "Go.")
        let pieces = 0
        for await (const text of run.text()) if (++pieces === 5) var record = run.cancel("enough", { mode: "kill" })
        record = await record
        print({ record, outcome: run.outcome, at: Date.now() })
        """,
        url=served.url,
    )
    assert (found["record"]["status"], found["record"]["effective"]) == ("cancelled", True)
    outcome = found["outcome"]
    assert (outcome["cancellation"]["message"], outcome["cancellation"]["mode"]) == ("enough", "kill")
    assert outcome["receipt"]["confirmed"] is True
    assert outcome["receipt"] == found["record"]["receipt"]
    [request] = wire.assert_closed(0.25)
    assert request.tokens_sent < 1_000


def test_a_run_that_is_stopped_before_it_is_used_is_never_started(serve: Serve, script: Script) -> None:
    served = serve(Agent("scripted:Hi.", name="agent"))
    found = script(
        """
        const run = halter.run("agent", "Go.")
        await run.cancel()
        const seen = []
        for await (const event of run) seen.push(event)
        print([seen, await run.finished()])
        """,
        url=served.url,
    )
    assert (found[0], found[1]["status"]) == ([], "cancelled")
    assert served.client.get("/v1/runs").json()["runs"] == []


def test_a_stop_that_overtakes_the_start_keeps_the_run_from_beginning(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, script: Script
) -> None:
    served = serve(agent_on("steady(500,5)"))
    found = script(
        """
        const sent = []
        const real = globalThis.fetch
        let letGo
        globalThis.fetch = async (url, options) => {
          sent.push(`${options.method} ${new URL(url).pathname.split("/").at(-1)}`)
          if (sent.length === 1) await new Promise((resolve) => (letGo = resolve))
          return real(url, options)
        }
        const run = halter.run("agent", "Go.")
        const over = run.finished()
        await sleep(0)
        const answer = await run.cancel("never mind")
        letGo()
        print({ answer: answer.status, outcome: await over, sent })
        """,
        url=served.url,
    )
    assert (found["answer"], found["outcome"]["status"]) == ("tombstone", "cancelled")
    assert found["sent"] == ["POST runs", "POST cancel"]
    assert wire.requests() == []


@pytest.mark.scenario("G67")
def test_a_lost_connection_is_resumed_and_each_event_comes_once(
    relay: Callable[[str], tuple[Relay, Served]], wire: WireProbe, script: Script
) -> None:
    through, _served = relay("steady(150,10)")
    found = script(
        """
        const run = halter.run("agent", "Go.")
        const numbers = []
        const deltas = []
        for await (const event of run) {
          numbers.push([event.first_seq ?? event.seq, event.seq])
          if (event.type === "text.delta") deltas.push(event.text)
          if ([20, 60, 100].includes(numbers.length)) await fetch(given.cut)
        }
        print({ numbers, text: deltas.join(""), status: run.status, gaps: run.gaps })
        """,
        url=through.url,
        cut=_cutting(through),
    )
    covered = [number for first, last in found["numbers"] for number in range(first, last + 1)]
    assert covered == list(range(1, len(covered) + 1))
    assert (found["text"].strip(), found["status"], found["gaps"]) == (words(150), "completed", [])
    assert through.accepted >= 4
    assert len(wire.requests()) == 1


def _cutting(relay: Relay) -> str:
    """A URL that cuts the relay's connections."""

    class Cut(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            relay.cut()
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Cut)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    closing = relay.close

    def close() -> None:
        closing()
        server.shutdown()
        server.server_close()

    relay.close = close  # type: ignore[method-assign]
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_after_a_stop_no_stream_is_opened_and_the_record_tells_the_end(
    relay: Callable[[str], tuple[Relay, Served]], wire: WireProbe, script: Script
) -> None:
    through, _served = relay("steady(2000,5)")
    found = script(
        """
        const run = halter.run("agent", "Go.")
        const sent = []
        const real = globalThis.fetch
        let stopped
        let pieces = 0
        for await (const event of run) {
          if (event.type !== "text.delta" || ++pieces !== 5) continue
          globalThis.fetch = async (url, options) => {
            sent.push(`${options?.method ?? "GET"} ${new URL(url).pathname.split("/").at(-1)}`)
            return real(url, options)
          }
          await real(given.cut)
          stopped = run.cancel("enough")
        }
        await stopped
        print({ sent, outcome: run.outcome, status: run.snapshot().status })
        """,
        url=through.url,
        cut=_cutting(through),
    )
    assert (found["outcome"]["status"], found["status"]) == ("cancelled", "cancelled")
    assert found["outcome"]["receipt"]["confirmed"] is True
    assert not [each for each in found["sent"] if each.endswith((" runs", " events"))]
    wire.assert_closed(0.25)


@pytest.mark.scenario("J84")
def test_a_page_that_comes_back_within_linger_goes_on_where_it_was(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, script: Script
) -> None:
    served = serve(agent_on("steady(120,10)"))
    found = script(
        """
        const notes = new Map()
        const storage = {
          getItem: (key) => notes.get(key) ?? null,
          setItem: (key, value) => notes.set(key, value),
          removeItem: (key) => notes.delete(key),
        }
        const before = new Halter({ url: given.url, storage })
        const run = before.run("agent", "Go.", { remember: "chat" })
        let text = ""
        for await (const event of run) {
          if (event.type === "text.delta") text += event.text
          if (event.seq >= 30) break
        }
        run.close()
        const noted = JSON.parse(notes.get("halter.run.chat"))
        await sleep(100)
        const after = new Halter({ url: given.url, storage })
        const rest = after.resume("chat", { from: "cursor" })
        const whole = after.resume("chat")
        const first = (await whole.batches().next()).value[0]
        for await (const piece of rest.text()) text += piece
        const outcome = await whole.finished()
        print({ noted, first: first.type, text, outcome, whole: whole.snapshot(), left: [...notes.keys()],
          same: whole.id === run.id, none: after.resume("chat") })
        """,
        url=served.url,
    )
    assert (found["text"].strip(), found["outcome"]["text"].strip()) == (words(120), words(120))
    assert found["whole"]["messages"][0]["text"].strip() == words(120)
    assert (found["first"], found["same"], found["none"], found["left"]) == ("snapshot", True, None, [])
    assert found["noted"]["cursor"].endswith(".30")
    assert len(wire.requests()) == 1


@pytest.mark.scenario("J84")
def test_a_page_that_does_not_come_back_within_linger_stops_its_run_once(
    serve: Serve, agent_on: AgentOn, wire: WireProbe, script: Script
) -> None:
    served = serve(agent_on("stall"))
    script(
        """
        const run = halter.run("agent", "Go.", { id: "r" })
        for await (const event of run) if (event.type === "model.requested") break
        while ((await halter.request("GET", "/healthz")).live_runs < 1) await sleep(5)
        print(1)
        process.exit(0)
        """,
        url=served.url,
        options={"linger": 0.3},
    )
    assert served.until("r", "cancelled")["cancellation"]["reason"] == "client_disconnect"
    wire.assert_closed(0.25)


def test_questions_are_answered_and_runs_steered(serve: Serve, script: Script) -> None:
    @tool(approval="always")
    async def send(to: str) -> str:
        """Sends."""
        return f"sent to {to}"

    served = serve(Agent(Scripted(calls("send", to="ann"), "Done."), name="agent", tools=[send]))
    found = script(
        """
        const run = halter.run("agent", "Go.")
        const answers = []
        for await (const event of run) {
          if (event.type !== "input.requested") continue
          answers.push(run.status, await run.send("Quickly."), await run.answer("no-such-question", "yes"))
          answers.push(await run.answer(event.request_id, "yes"), await run.answer(event.request_id, "yes"))
        }
        answers.push(await run.send("Too late."))
        print({ answers, tools: run.snapshot().tools })
        """,
        url=served.url,
    )
    assert found["answers"] == ["waiting", True, False, True, False, False]
    assert found["tools"][0]["result"] == "sent to ann"


def test_refusals_and_lost_servers_are_typed_errors(serve: Serve, script: Script) -> None:
    served = serve(Agent("scripted:Hi.", name="agent"))
    found = script(
        """
        const problem = (promise) => promise.then(() => null, ({ name, code }) => ({ name, code }))
        const nowhere = new Halter({ url: "http://127.0.0.1:9", patience: 0.2 })
        print({
          refused: await problem(halter.run("nobody", "Go.").finished()),
          lost: await problem(halter.find("unknown").finished()),
          away: await problem(nowhere.run("agent", "Go.").finished()),
          list: await problem(nowhere.agents()),
          iterated: await problem((async () => { for await (const _ of halter.find("unknown")); })()),
        })
        """,
        url=served.url,
    )
    assert (found["refused"]["name"], found["refused"]["code"]) == ("ServerRefused", "unknown_agent")
    assert found["lost"]["name"] == found["iterated"]["name"] == "RunLost"
    assert found["away"]["name"] == found["list"]["name"] == "ConnectionFailed"


def test_a_reader_that_is_behind_gets_merged_deltas_and_all_of_the_text(serve: Serve, script: Script) -> None:
    served = serve(Agent(Scripted(words(2_000)), name="agent"))
    found = script(
        """
        const run = halter.run("agent", "Go.")
        const slow = run.batches()
        const first = (await slow.next()).value
        await run.finished()
        const rest = []
        for await (const batch of slow) rest.push(...batch)
        const text = [...first, ...rest].filter((event) => event.type === "text.delta").map((event) => event.text)
        print({ text: text.join(""), batches: rest.length })
        """,
        url=served.url,
    )
    assert found["text"] == words(2_000)
    assert found["batches"] < 200


# --- the package


def test_the_package_holds_the_file_that_the_server_serves(serve: Serve, programs: None, tmp_path: Path) -> None:
    served = serve(Agent("scripted:Hi.", name="agent"))
    for name in ("client.js", "client.d.ts"):
        answer = served.client.get(f"/{name}")
        assert answer.content == (CLIENT / name).read_bytes()
        again = served.client.get(f"/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert served.client.get("/client.js").headers["content-type"].startswith("text/javascript")
    assert json.loads((CLIENT / "package.json").read_text())["version"] == halter.__version__
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    packed = subprocess.run(
        ["npm", "pack", "--offline", "--pack-destination", tmp_path], cwd=CLIENT, capture_output=True, check=True
    )
    with tarfile.open(tmp_path / packed.stdout.decode().split()[-1]) as package:
        names = {name.removeprefix("package/") for name in package.getnames()}
    assert names == {"client.js", "client.d.ts", "package.json", "README.md", "LICENSE"}


# --- what the docs show


def blocks() -> list[str]:
    page = (ROOT / "docs" / "browser.md").read_text(encoding="utf-8")
    return re.findall(r"^```js\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", blocks())
def test_the_blocks_of_the_docs_run(block: str, serve: Serve, script: Script) -> None:
    @tool(approval="always")
    async def send() -> str:
        """Sends."""
        return "sent"

    poet = Agent(Scripted("A river."), name="poet")
    served = serve([poet, Agent(Scripted(calls("send"), "Done."), name="clerk", tools=[send])])
    around = (
        "const stopButton = {}, shown = [], output = { append: (text) => shown.push(text) }, show = output.append\n"
    )
    block = block.replace('import { Halter } from "/client.js"\n', "").replace("const halter = new Halter()", "")
    assert script(around + block + "\nprint((await run.finished()).status)", url=served.url) in (
        "completed",
        "cancelled",
    )
