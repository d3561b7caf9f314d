"""ADK's own API server with an agent that says a script. Run with the interpreter that has it.

The argument is `TOKENS,BURST,GAP`: so many tokens, a burst of so many of them every so many
milliseconds. Prints its port; ends with its stdin.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import threading

import uvicorn
from google.adk.agents import LlmAgent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

TOKENS, BURST, GAP = map(int, sys.argv[1].split(","))


def _said(text: str, partial: bool) -> LlmResponse:
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, partial=partial or None)


class Script(BaseLlm):
    """Says its tokens, and then the whole of it, as models of ADK do."""

    async def generate_content_async(self, llm_request, stream=False):
        for number in range(TOKENS):
            if number % BURST == 0:
                await asyncio.sleep(GAP / 1e3)
            yield _said(f"t{number} ", partial=True)
        yield _said("".join(f"t{number} " for number in range(TOKENS)), partial=False)


class Loader(BaseAgentLoader):
    """Knows one agent."""

    def load_agent(self, agent_name):
        return LlmAgent(name="agent", model=Script(model="script"))

    def list_agents(self):
        return ["agent"]

    def list_agents_detailed(self):
        return []


def _end_with_stdin() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    logging.disable(logging.WARNING)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        app = get_fast_api_app(
            agents_dir=place, agent_loader=Loader(), web=False, use_local_storage=False, session_service_uri="memory://"
        )
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(app, log_config=None, access_log=False, loop="uvloop", http="httptools")
        uvicorn.Server(config).run(sockets=[listening])


main()
