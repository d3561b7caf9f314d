"""Traces of runs, as a collector gets them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from halter import Agent, runnable, tool
from halter.compose import Sequential
from halter.core import log
from halter.models.openai import OpenAIChat
from halter.models.scripted import Scripted, calls
from halter.otel import instrument
from halter.otel.attributes import model_attributes
from halter.testing.wire_probe import WireProbe

from ..bounds import assert_within
from .conftest import Trace

INTERNAL, CLIENT = 1, 3
UNSET, ERROR = 0, 2


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"rain in {city}, says the secret"


@tool
def broken() -> str:
    """Fails."""
    raise ValueError("the secret is out")


def test_a_run_its_turns_its_model_calls_and_its_tool_calls_are_spans(trace: Trace) -> None:
    traces = trace()
    agent = Agent(Scripted(calls("weather", city="Paris"), "It rains."), name="forecaster", tools=[weather])
    result = agent.run("What of the secret?", id="r1", tags="nightly").result()
    found = traces.end()
    run = found.named("invoke_agent forecaster")
    first, second = found.named("turn 1"), found.named("turn 2")
    call = found.named("execute_tool weather")
    asked = sorted((span for span in found.spans if span.name == "chat scripted"), key=lambda span: span.begin)
    assert len(found.spans) == 6
    assert (run.parent, first.parent, second.parent) == ("", run.id, run.id)
    assert [span.parent for span in asked] == [first.id, second.id]
    assert call.parent == first.id
    assert (run.kind, asked[0].kind, call.kind) == (INTERNAL, CLIENT, INTERNAL)
    assert {span.trace for span in found.spans} == {run.trace}
    assert {span.status for span in found.spans} == {UNSET}
    assert all(span.begin <= span.end for span in found.spans)
    assert run.begin <= first.begin <= asked[0].begin <= asked[0].end <= call.begin <= call.end <= first.end
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "forecaster",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": result.usage.input,
        "gen_ai.usage.output_tokens": result.usage.output,
        "halter.run.id": "r1",
        "halter.run.root_id": "r1",
        "halter.run.kind": "agent",
        "halter.run.status": "completed",
        "halter.run.tags": ["nightly"],
        "halter.cost_usd": 0.0,
        "halter.usage.estimated": True,  # the model that calls a tool counts no tokens
    }
    assert call.attributes["gen_ai.operation.name"] == "execute_tool"
    assert call.attributes["gen_ai.tool.name"] == "weather"
    assert call.attributes["gen_ai.agent.name"] == "forecaster"
    assert call.attributes["halter.tool.outcome"] == "ok"
    assert asked[1].attributes["gen_ai.operation.name"] == "chat"
    assert asked[1].attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert asked[1].attributes["gen_ai.usage.output_tokens"] == 2
    assert 0 <= asked[1].attributes["gen_ai.response.time_to_first_chunk"] < 5


def test_no_text_is_recorded_unless_it_is_asked_for(trace: Trace) -> None:
    traces = trace()
    agent = Agent(Scripted((calls("weather", city="secret"), calls("broken")), "secret"), tools=[weather, broken])
    agent.run("the secret").result()

    @runnable
    async def fails(ctx: Any) -> None:
        raise ValueError("the secret is out")

    fails.run("secret").start()
    run = fails.run("secret")
    asyncio.run(finished(run))
    stopped = Agent(Scripted("secret " * 50, pace=0.01), name="stopped").run("secret")
    stopped.start()
    stopped.cancel("the secret reason")
    stopped.close()
    found = traces.end()
    assert len(found.spans) > 8
    assert b"secret" not in found.bytes


async def finished(run: Any) -> None:
    await run.finished()


def test_with_content_inputs_answers_arguments_and_results_are_recorded(trace: Trace) -> None:
    traces = trace(content=True)
    agent = Agent(Scripted(calls("weather", city="Paris"), "It rains."), name="forecaster", tools=[weather])
    agent.run("Well?").result()
    found = traces.end()
    run, call = found.named("invoke_agent forecaster"), found.named("execute_tool weather")
    asked = json.loads(run.attributes["gen_ai.input.messages"])
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": "Well?"}]}]
    answered = json.loads(run.attributes["gen_ai.output.messages"])
    assert answered[0]["parts"] == [{"type": "text", "content": "It rains."}]
    assert json.loads(call.attributes["gen_ai.tool.call.arguments"]) == {"city": "Paris"}
    assert call.attributes["gen_ai.tool.call.result"] == "rain in Paris, says the secret"
    first = min((span for span in found.spans if span.name.startswith("chat")), key=lambda span: span.begin)
    said = json.loads(first.attributes["gen_ai.output.messages"])
    assert said[0]["parts"][0]["type"] == "tool_call"


def test_a_stopped_run_ends_its_spans_with_its_outcome(trace: Trace, wire: WireProbe) -> None:
    traces = trace()
    agent = Agent(OpenAIChat("m", base_url=wire.url("stall"), api_key=""), name="agent")
    run = agent.run("Go.")
    run.start()
    wire.wait("token")
    run.cancel("enough", actor="ann")
    run.close()
    found = traces.end()
    span, asked = found.named("invoke_agent agent"), found.named("chat m")
    assert span.status == UNSET
    facts = {name: span.attributes[f"halter.{name}"] for name in ("run.status", "stop.reason", "stop.mode")}
    assert facts == {"run.status": "cancelled", "stop.reason": "user_stop", "stop.mode": "immediate"}
    assert span.attributes["halter.stop.actor"] == "ann"
    assert span.attributes["halter.stop.resources"] >= 1
    assert span.attributes["halter.stop.abandoned"] == 0
    assert span.attributes["halter.usage.estimated"] is True
    assert "run.cancelling" in span.events
    assert asked.attributes["halter.interrupted"] is True
    assert asked.end <= span.end


def test_a_run_that_was_stopped_before_it_began_is_a_span_too(trace: Trace) -> None:
    traces = trace()
    run = Agent(Scripted("Hi."), name="agent").run("Go.")
    run.cancel()
    asyncio.run(finished(run))
    span = traces.end().named("invoke_agent agent")
    assert span.attributes["halter.run.status"] == "cancelled"


def test_errors_are_the_status_of_the_spans_that_they_ended(trace: Trace, wire: WireProbe) -> None:
    traces = trace(content=True)
    agent = Agent(OpenAIChat("m", base_url=wire.url("status(400)"), api_key=""), name="agent")
    run = agent.run("Go.")
    asyncio.run(finished(run))
    outer = Agent(Scripted(calls("broken"), "Well."), name="other", tools=[broken])
    outer.run("Go.").result()
    found = traces.end()
    failed, asked = found.named("invoke_agent agent"), found.named("chat m")
    assert (failed.status, asked.status) == (ERROR, ERROR)
    assert run.outcome is not None
    assert failed.attributes["error.type"] == asked.attributes["error.type"] == type(run.outcome.error).__name__
    call, whole = found.named("execute_tool broken"), found.named("invoke_agent other")
    assert (call.status, whole.status) == (ERROR, UNSET)
    assert call.attributes["error.type"] == "tool_error"
    assert "the secret is out" in call.why


def test_an_attempt_that_is_made_again_has_a_span_of_its_own(trace: Trace, wire: WireProbe) -> None:
    traces = trace()
    agent = Agent(OpenAIChat("m", base_url=wire.url("status(503,1)"), api_key=""), name="agent")
    agent.run("Go.").result()
    found = traces.end()
    attempts = sorted((span for span in found.spans if span.name == "chat m"), key=lambda span: span.begin)
    assert [span.status for span in attempts] == [ERROR, UNSET]
    assert [span.attributes["halter.model.attempt"] for span in attempts] == [1, 2]
    assert attempts[0].end <= attempts[1].begin


def test_runs_are_children_of_the_run_or_the_tool_call_that_started_them(trace: Trace) -> None:
    traces = trace()
    inner = Agent(Scripted("Deep."), name="inner")
    outer = Agent(Scripted(calls("inner", input="x"), "Done."), name="outer", tools=[inner])
    Sequential(outer, Agent(Scripted("Last."), name="last"), name="chain").run("Go.").result()
    found = traces.end()
    chain = found.named("invoke_workflow chain")
    assert chain.attributes["gen_ai.workflow.name"] == "chain"
    assert found.named("invoke_agent outer").parent == chain.id
    assert found.named("invoke_agent last").parent == chain.id
    assert found.named("invoke_agent inner").parent == found.named("execute_tool inner").id
    assert {span.trace for span in found.spans} == {chain.trace}


def test_a_root_run_is_a_child_of_the_callers_span_whoever_starts_it(trace: Trace) -> None:
    traces = trace()
    tracer = otel.get_tracer("the caller", tracer_provider=traces.provider)
    agent = Agent(Scripted("Hi."), name="agent")
    with tracer.start_as_current_span("request"):
        blocking = agent.run("Go.")
    blocking.result()  # started where no span is current any more

    async def serve() -> None:
        with tracer.start_as_current_span("other request"):
            await agent.run("Go.")

    asyncio.run(serve())
    agent.run("Go.").result()
    found = traces.end()
    callers = {found.named("request").id, found.named("other request").id, ""}
    runs = [span for span in found.spans if span.name == "invoke_agent agent"]
    assert {span.parent for span in runs} == callers
    assert len({span.trace for span in runs}) == 3


def test_many_runs_at_once_keep_their_spans_apart_and_leave_nothing(trace: Trace) -> None:
    traces = trace()
    agent = Agent(Scripted(calls("weather", city="Paris"), "It rains."), name="agent", tools=[weather])

    async def many() -> None:
        await asyncio.gather(*(agent.run("Go.", id=f"r{number}") for number in range(50)))

    asyncio.run(many())
    tracer = traces._running[0]._tracer
    found = traces.end()
    assert len(found.spans) == 50 * 6
    by_trace: dict[str, set[str]] = {}
    for span in found.spans:
        by_trace.setdefault(span.trace, set()).add(span.attributes["halter.run.id"])
    assert sorted(len(ids) for ids in by_trace.values()) == [1] * 50
    assert not tracer.origins
    assert not tracer._runs


def test_a_collector_that_is_away_changes_no_run() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter("http://127.0.0.1:9/v1/traces", timeout=0.2)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with instrument(provider):
        before = time.monotonic()
        assert Agent(Scripted("Hi.")).run("Go.").result().text == "Hi."
        assert_within(0.25, time.monotonic() - before)
    provider.shutdown()


def test_without_instrumentation_no_event_is_passed_to_anybody(trace: Trace) -> None:
    traces = trace()
    assert log.publish is not None
    traces.end()
    assert log.publish is None


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai:gpt-5.2", "openai", "gpt-5.2"),
        ("azure-chat:mine", "azure.ai.openai", "mine"),
        ("gemini:gemini-3-pro", "gcp.gemini", "gemini-3-pro"),
        ("xai:grok", "x_ai", "grok"),
        ("ollama:llama3:8b", "ollama", "llama3:8b"),
        ("fallback(openai:a, gemini:b)", "_OTHER", "fallback(openai:a, gemini:b)"),
    ],
)
def test_providers_are_named_as_the_conventions_name_them(name: str, provider: str, model: str) -> None:
    assert model_attributes(name) == {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
