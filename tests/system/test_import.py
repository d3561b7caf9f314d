"""What `import halter` loads, how long it takes, and which names it promises."""

from __future__ import annotations

from typing import Any

NAMES = [
    "Agent",
    "Budget",
    "CancelMode",
    "CancelReason",
    "CancellationToken",
    "HalterError",
    "Message",
    "Policy",
    "Run",
    "RunCancelled",
    "RunContext",
    "RunFailed",
    "RunResult",
    "RunStatus",
    "RunTimedOut",
    "Usage",
    "cancel_on_signals",
    "configure",
    "current_run",
    "runnable",
    "runtime",
    "tool",
]


def test_the_public_names_are_pinned(script: Any) -> None:
    """What the root promises; a new name is a decision, and a lost one breaks somebody."""
    ended = script(
        """
        import halter
        print(*sorted(halter.__all__))
        for name in halter.__all__:
            assert getattr(halter, name).__name__ == name, name
            assert name in dir(halter)
        try:
            halter.no_such_name
        except AttributeError as error:
            assert "no_such_name" in str(error)
        """
    )
    assert ended.quietly().split() == sorted(NAMES)


def test_importing_halter_loads_no_adapter_and_starts_nothing(script: Any) -> None:
    """No aiohttp, uvloop or asyncio machinery, no thread, no descriptor: names load when they are used."""
    ended = script(
        """
        import os, sys, threading
        import asyncio, msgspec                       # what it stands on
        before, fds = set(sys.modules), len(os.listdir("/proc/self/fd"))
        import halter
        loaded = {name for name in set(sys.modules) - before}
        assert loaded == {"halter"}, loaded
        from halter import Agent, runnable, runtime, cancel_on_signals, current_run
        agent = Agent("scripted:Hello")
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        assert not loaded & {"aiohttp", "uvloop", "yarl", "multidict", "ssl", "openai", "anyio"}, loaded
        assert "ssl" not in set(sys.modules) - before
        assert "halter.models.http" not in sys.modules
        assert threading.active_count() == 1
        assert len(os.listdir("/proc/self/fd")) == fds
        assert agent.run("?").result().text == "Hello"
        assert "aiohttp" not in sys.modules
        """
    )
    ended.quietly()


def test_importing_halter_takes_a_tenth_of_a_second_at_most(script: Any) -> None:
    """`import halter` and the first use of its names, best of five processes; asyncio, which all need, included.

    Processor time, which a busy machine does not lengthen.
    """
    program = """
        import time
        began = time.process_time()
        import halter
        for name in halter.__all__:
            getattr(halter, name)
        print(time.process_time() - began)
        """
    took = [float(script(program).quietly()) for _ in range(5)]
    assert min(took) < 0.2
    bare = [
        float(script("import time; t = time.process_time(); import halter; print(time.process_time() - t)").quietly())
        for _ in range(5)
    ]
    assert min(bare) < 0.1
