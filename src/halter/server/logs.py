"""Logs of the server: lines for people, or JSON lines for programs; each with its run's id where there is one."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal, TypeAlias

from halter import events
from halter.core.run import current_run
from halter.errors import NoCurrentRun
from halter.server.port import RunInfo

LogFormat: TypeAlias = Literal["text", "json"]
_logger = logging.getLogger("halter.server")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "run_id"}


def log_end(info: RunInfo) -> None:
    """One line for a run that is over: who ended it and why, with figures for programs.

    `seconds` since it began, `stopped_after_ms` since the stop was asked for.
    """
    if not _logger.isEnabledFor(logging.INFO):
        return
    plan, stop = info.plan, info.cancellation
    facts = {
        "tenant": plan.key.tenant,
        "agent": plan.agent,
        "status": info.status.value,
        "reason": stop.reason.value if stop else None,
        "actor": stop.actor if stop else None,
        "error": info.error.type if info.error else None,
        "seconds": round(info.ended_at - info.started_at, 3) if info.ended_at and info.started_at else None,
        "tokens": info.usage.total,
        "stopped_after_ms": round(info.receipt.stopped_after_ms, 1) if info.receipt else None,
    }
    told = {"run_id": plan.key.id, **{name: value for name, value in facts.items() if value not in (None, "")}}
    why = facts["reason"] or facts["error"]
    _logger.info("%s %s%s", plan.agent, info.status.value, f": {why}" if why else "", extra=told)


class _WithRun(logging.Filter):
    """Adds the id of the run that the line is written in."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "run_id"):
            try:
                record.run_id = current_run().id
            except NoCurrentRun:
                record.run_id = None
        return True


class _Json(logging.Formatter):
    """One JSON object for each line; what `extra=` gave is in it."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if getattr(record, "run_id", None):
            fields["run_id"] = getattr(record, "run_id", None)
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return events.encode_any(fields).decode()


class _Text(logging.Formatter):
    """For people: time, level, words."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s%(of_run)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        run_id = getattr(record, "run_id", None)
        record.of_run = f" [{run_id}]" if run_id else ""
        return super().format(record)


def set_up_logs(form: LogFormat) -> None:
    """Sends the process's log lines to stderr in this form, from INFO up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(_WithRun())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)
