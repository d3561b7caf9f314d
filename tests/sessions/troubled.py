"""A store that takes its time, hangs, or fails, where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from halter.errors import SessionsUnavailable
from halter.sessions import Sessions
from halter.sessions.memory import MemoryStore

GONE = "the database is away"


class Troubled:
    """A store in memory with troubles: `troubles["write"]` is awaited before each `write`, and may raise.

    `pace`: seconds before and after each step. `done`: the steps, as they have ended.
    """

    def __init__(self, pace: float = 0.0, **troubles: Callable[[], Awaitable[object]]) -> None:
        self.inner = MemoryStore()
        self.pace = pace
        self.troubles = troubles
        self.begun: list[str] = []
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **options: Any) -> Any:
            self.begun.append(name)
            if self.pace:
                await asyncio.sleep(self.pace)
            if name in self.troubles:
                await self.troubles[name]()
            result = await method(*args, **options)
            if self.pace:
                await asyncio.sleep(self.pace)
            self.done.append(name)
            return result

        return call

    def __repr__(self) -> str:
        return f"<Troubled {sorted(self.troubles)}>"


class Times:
    """A trouble that is there `first` to `last` time that it is come across, from 1."""

    def __init__(self, trouble: Callable[[], Awaitable[object]], first: int = 1, last: int = 1_000_000) -> None:
        self.trouble = trouble
        self.first, self.last = first, last
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1
        if self.first <= self.count <= self.last:
            await self.trouble()


async def away() -> None:
    raise SessionsUnavailable(GONE)


async def hang() -> None:
    await asyncio.sleep(3600)


def delayed(seconds: float) -> Callable[[], Awaitable[object]]:
    return lambda: asyncio.sleep(seconds)


def troubled(pace: float = 0.0, **troubles: Callable[[], Awaitable[object]]) -> Sessions:
    return Sessions(Troubled(pace, **troubles))  # pyright: ignore[reportArgumentType]  # a store by its attributes
