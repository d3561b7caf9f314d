"""The recording provider: a fake LLM provider in its own process that notes what happened to each request.

Tests and benchmarks assert on its record instead of on our own flags: a stop is real when *the other
side* saw the socket close. All instants are `time.monotonic()`, one clock for all processes of a machine.

    with Wire.start() as wire:
        client = AsyncOpenAI(base_url=wire.url("steady(40,10)", tag="a"), api_key="any")
        ...
        [request] = wire.wait("closed", tag="a")
"""

from halter.proof.wire.handle import Wire, WireError, WireTimeout
from halter.proof.wire.records import Record, State, Stats

__all__ = ["Record", "State", "Stats", "Wire", "WireError", "WireTimeout"]
