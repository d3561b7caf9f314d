"""Logs of the server: lines for people, or JSON lines for programs; each with its run's id where there is one."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal, TypeAlias

import msgspec

from halter.core.run import current_run
from halter.errors import NoCurrentRun

LogFormat: TypeAlias = Literal["text", "json"]
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "run_id"}


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
        return msgspec.json.encode(fields, enc_hook=repr).decode()


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
