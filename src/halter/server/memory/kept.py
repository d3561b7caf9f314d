"""What is kept of a run once its log was let go of: packed, and small."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
from msgspec.structs import replace

from halter import events
from halter.events import Failure
from halter.messages import Usage
from halter.outcome import Cancellation, CancelReceipt, RunStatus
from halter.server.port import RunInfo, RunPlan
from halter.snapshot import RunState

LARGEST = 850  # bytes; what is larger loses the end of its text
CUT_TEXT = 350  # characters that are left of it then
MOST_LINES = 10  # of a receipt, and runs under the run, in a record that is too large


class _Facts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run's `RunInfo` without its plan."""

    epoch: int
    status: RunStatus
    seq: int
    usage: Usage
    cost: float | None
    text: str
    output: Any
    error: Failure | None
    cancellation: Cancellation | None
    receipt: CancelReceipt | None
    started_at: float | None
    ended_at: float | None
    runs: tuple[RunState, ...]
    is_cut: bool = False


class KeptRun:
    """A run that is over, without its log.

    Args:
        info: the run as it has ended.
    """

    __slots__ = ("_data", "status")

    def __init__(self, info: RunInfo) -> None:
        self.status = info.status
        facts = _facts(info)
        self._data = _packed(facts)
        if len(self._data) > LARGEST:
            self._data = _packed(_cut(facts))

    def info(self, plan: RunPlan) -> RunInfo:
        """The run of this plan, with as much of its text as was kept."""
        facts = _DECODER.decode(zlib.decompress(self._data))
        fields = {name: getattr(facts, name) for name in _Facts.__struct_fields__}
        return RunInfo(plan=plan, has_log=False, **fields)


def _facts(info: RunInfo) -> _Facts:
    fields: dict[str, Any] = {name: getattr(info, name) for name in _Facts.__struct_fields__}
    fields["runs"] = tuple(replace(run, input=None, cancelling=None) for run in info.runs)
    return _Facts(**fields)


def _cut(facts: _Facts) -> _Facts:
    error, receipt = facts.error, facts.receipt
    return replace(
        facts,
        text=facts.text[:CUT_TEXT],
        output=None,
        error=error and replace(error, message=error.message[:CUT_TEXT]),
        receipt=receipt and replace(receipt, resources=receipt.resources[:MOST_LINES]),
        runs=facts.runs[:MOST_LINES],
        is_cut=True,
    )


def _packed(facts: _Facts) -> bytes:
    return zlib.compress(events.encode_any(facts), 1)


_DECODER = msgspec.json.Decoder(_Facts)
