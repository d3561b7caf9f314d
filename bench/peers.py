"""The candidates: Halter, and what one would use without it. Each does the same with every token: keep its text.

`start(url, texts)` begins to read an answer in a task of its own; the text of each token is appended to `texts`.
A candidate's module is loaded when it is chosen, so that none pays for another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from typing import Any, Protocol

MODEL = "bench"
PROMPT = "Go."
BODY = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}).encode()

Read = Callable[[str, list[str]], Coroutine[Any, Any, None]]


class Stream(Protocol):
    """One answer being read."""

    def cancel(self) -> object:
        """Asks it to stop, as the candidate's users would."""
        ...

    def ended(self) -> Awaitable[object]:
        """Waits until it is over, however it ended."""
        ...


class Client(Protocol):
    """A candidate with its connections. `read`: one answer to its end, in the caller's own task."""

    read: Read

    def start(self, url: str, texts: list[str]) -> Stream: ...

    async def close(self) -> None: ...


class TaskStream:
    """A stream that is stopped by cancelling the task that reads it."""

    def __init__(self, reading: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(reading)

    def cancel(self) -> object:
        return self._task.cancel()

    def ended(self) -> Awaitable[object]:
        return asyncio.wait((self._task,))


class TaskClient:
    """A candidate that is no more than a way to read."""

    read: Read

    def start(self, url: str, texts: list[str]) -> Stream:
        return TaskStream(self.read(url, texts))

    async def close(self) -> None:
        """Nothing is kept."""


class Floor(TaskClient):
    def __init__(self) -> None:
        from bench.floor import read_floor

        self._read_floor = read_floor

    async def read(self, url: str, texts: list[str]) -> None:
        await self._read_floor(url, BODY, texts)


class Handwritten(TaskClient):
    """The loop that people write: aiohttp, line by line, `json.loads`."""

    def __init__(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))

    async def read(self, url: str, texts: list[str]) -> None:
        headers = {"content-type": "application/json"}
        async with self._session.post(f"{url}/chat/completions", data=BODY, headers=headers) as response:
            async for line in response.content:
                if not line.startswith(b"data: "):
                    continue
                data = line[6:].strip()
                if data == b"[DONE]":
                    break
                choices = json.loads(data)["choices"]
                if choices and (text := choices[0]["delta"].get("content")):
                    texts.append(text)

    async def close(self) -> None:
        await self._session.close()


class OpenAISDK(TaskClient):
    """The official SDK, with `async with`, so that a cancel closes the stream at once."""

    def __init__(self) -> None:
        import openai

        self._client = openai.AsyncOpenAI(base_url="http://127.0.0.1", api_key="none", max_retries=0, timeout=None)
        self._at = cache(lambda url: self._client.with_options(base_url=url))

    async def read(self, url: str, texts: list[str]) -> None:
        completions = self._at(url).chat.completions
        messages: Any = [{"role": "user", "content": PROMPT}]
        async with await completions.create(model=MODEL, messages=messages, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices and (text := chunk.choices[0].delta.content):
                    texts.append(text)

    async def close(self) -> None:
        await self._client.close()


class Halter:
    """A whole run: numbered, stamped, logged, assembled, stoppable."""

    def __init__(self) -> None:
        from halter import Agent
        from halter.events import TextDelta
        from halter.models.openai import OpenAIChat

        self.delta = TextDelta
        self._at = cache(lambda url: Agent(OpenAIChat(MODEL, base_url=url, api_key="")))

    def run(self, url: str) -> Any:
        return self._at(url).run(PROMPT)

    async def read(self, url: str, texts: list[str]) -> None:
        async for event in self.run(url):
            if isinstance(event, self.delta):
                texts.append(event.text)

    def read_blocking(self, url: str, texts: list[str]) -> None:
        for event in self.run(url):
            if isinstance(event, self.delta):
                texts.append(event.text)

    def start(self, url: str, texts: list[str]) -> Stream:
        return HalterStream(self, url, texts)

    async def close(self) -> None:
        """Pools are closed with the loop."""


class HalterText(Halter):
    """The same, by `text_stream()`."""

    async def read(self, url: str, texts: list[str]) -> None:
        async for text in self.run(url).text_stream():
            texts.append(text)


class HalterStream:
    """A run that a task reads, and that anybody may stop."""

    def __init__(self, client: Halter, url: str, texts: list[str]) -> None:
        self.run = client.run(url)
        self._delta = client.delta
        self._task = asyncio.create_task(self._read(texts))

    async def _read(self, texts: list[str]) -> None:
        async for event in self.run:
            if isinstance(event, self._delta):
                texts.append(event.text)

    def cancel(self) -> object:
        return self.run.cancel()

    def ended(self) -> Awaitable[object]:
        return asyncio.wait((self._task,))


CLIENTS: dict[str, Callable[[], Client]] = {
    "floor": Floor,
    "handwritten": Handwritten,
    "openai": OpenAISDK,
    "halter": Halter,
    "halter text_stream": HalterText,
}
