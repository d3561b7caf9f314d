"""Run with the interpreter that has `google-adk`: reads requests as lines of JSON from stdin, and answers them.

Its standard output belongs to the answers alone; whatever else is printed goes to standard error.
"""

import asyncio
import json
import sys
import traceback
from typing import Any

from google.adk.cli.adk_web_server import RunAgentRequest
from google.adk.cli.conformance.adk_web_server_client import AdkWebServerClient
from google.adk.events.event import Event
from google.adk.live.live_request_queue import LiveRequest
from google.adk.sessions.session import Session
from google.genai import types


def read_events(streams: list[list[str]]) -> list[list[dict[str, Any]]]:
    """The events of each stream as ADK reads them, and writes them again."""
    return [[_again(Event.model_validate_json(line)) for line in lines] for lines in streams]


def _again(event: Event) -> dict[str, Any]:
    return event.model_dump(exclude_none=True, by_alias=True, mode="json")


def final_responses(lines: list[str]) -> list[str]:
    """The texts of the events that ADK takes for final answers."""
    read = [Event.model_validate_json(line) for line in lines]
    final = [event for event in read if event.is_final_response() and event.content and event.content.parts]
    return ["".join(part.text or "" for part in event.content.parts) for event in final]


def read_session(data: dict[str, Any]) -> dict[str, Any]:
    return Session.model_validate(data).model_dump(by_alias=True, mode="json", exclude_none=True)


def live_request(text: str) -> str:
    """A message of `/run_live`, as ADK writes it."""
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return LiveRequest(content=content).model_dump_json(exclude_none=True)


def run_request(by_alias: bool, text: str, streaming: bool) -> dict[str, Any]:
    """A request as ADK writes it, in camelCase or in snake_case."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    request = RunAgentRequest(
        app_name="agent", user_id="anna", session_id="s", new_message=message, streaming=streaming, state_delta={"a": 1}
    )
    return request.model_dump(by_alias=by_alias, exclude_none=True, mode="json")


def converse(url: str, text: str, streaming: bool) -> dict[str, Any]:
    """What ADK's own client does with a server: a session, a state, a run, the conversation, its deletion."""
    return asyncio.run(_converse(url, text, streaming))


async def _converse(url: str, text: str, streaming: bool) -> dict[str, Any]:
    async with AdkWebServerClient(base_url=url) as client:
        of = {"app_name": "agent", "user_id": "anna"}
        session = await client.create_session(**of, state={"city": "Paris"})
        of["session_id"] = session.id
        changed = await client.update_session(**of, state_delta={"day": 1})
        message = types.Content(role="user", parts=[types.Part(text=text)])
        request = RunAgentRequest(**of, new_message=message, streaming=streaming)
        events, error = [], None
        try:
            async for event in client.run_agent(request):
                events.append(_again(event))
        except RuntimeError as raised:
            error = str(raised)
        after = await client.get_session(**of)
        version = await client.get_version_data()
        await client.delete_session(**of)
        return {
            "state": changed.state,
            "events": events,
            "error": error,
            "said": [[event.author, event.content.parts[0].text] for event in after.events],
            "version": version,
        }


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    functions = {each.__name__: each for each in (read_events, final_responses, read_session, live_request)}
    functions |= {each.__name__: each for each in (run_request, converse)}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": functions[request["what"]](**request["given"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
