"""How a run ended, for people: one line of a stop, and all of its receipt."""

from __future__ import annotations

from collections import Counter
from typing import Any

from halter.messages import Usage
from halter.outcome import CancelReceipt, RunResult
from halter.terminal.safe import safe, safe_line


def in_one_line(result: RunResult[Any]) -> str:
    """What was stopped, when and how: `stopped after 1.4 ms: 1 socket closed, 1 task cancelled`."""
    receipt = result.receipt
    if receipt is None:
        return safe_line(result.why())
    state = "stopped" if receipt.confirmed else "stopped, NOT confirmed,"
    ended = Counter((line.kind, str(line.ended)) for line in receipt.resources)
    what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''} {how}" for (kind, how), count in ended.items())
    return safe_line(f"{state} after {receipt.stopped_after_ms:.1f} ms: {what or 'nothing was open'}")


def in_full(receipt: CancelReceipt) -> str:
    """Each thing that was open at the stop, and how it ended."""
    return safe(str(receipt))


def tokens_and_cost(usage: Usage, cost: float | None) -> str:
    """`1,204 in, 380 out, $0.0042`; the cost only where it is known."""
    about = "~" if usage.estimated else ""
    said = f"{about}{usage.input:,} in, {about}{usage.output:,} out"
    return said if not cost else f"{said}, ${cost:.4f}"
