"""What all frameworks are measured with: the CPU of the whole process, for the second answer of its life."""

import gc
import resource
from collections.abc import Awaitable, Callable


async def measured(read: Callable[[], Awaitable[int]], tokens: int) -> None:
    """`read()` reads one whole answer and says how many tokens it saw. Prints microseconds of CPU for each."""
    spent = 0.0
    for _ in range(2):
        gc.collect()
        before = _cpu()
        seen = await read()
        spent = _cpu() - before
        if seen < tokens:
            raise SystemExit(f"{seen} tokens arrived, {tokens} were sent")
    print(spent / tokens * 1e6)


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
