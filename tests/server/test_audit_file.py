"""The file of the audit log on a bad day: a pipe, a torn line, a full disk, a path that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halter.errors import ConfigurationError
from halter.server.audit import AuditLog


def write(log: AuditLog, target: str) -> None:
    log.write("", "ann", "run.start", target, "new")


def targets(path: Path) -> list[str]:
    return [entry.target for entry in reversed(AuditLog(path).newest("", limit=9))]


def test_the_audit_log_can_go_to_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    log = AuditLog(f"/dev/fd/{writing}")
    write(log, "r")
    assert b'"target":"r"' in os.read(reading, 1_000)
    log.close()
    os.close(reading)
    os.close(writing)


def test_a_line_that_a_killed_process_has_torn_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"at":1.0,"tenant":"","act')
    for target in ("a", "b"):
        log = AuditLog(path)
        write(log, target)
        log.close()
    assert targets(path) == ["a", "b"]


def test_a_line_that_a_full_disk_has_cut_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    log, to_disk = AuditLog(path), os.write
    monkeypatch.setattr(os, "write", lambda file, data: to_disk(file, data[:20]))
    write(log, "cut")
    monkeypatch.undo()
    write(log, "whole")
    log.close()
    assert targets(path) == ["whole"]


def test_a_directory_is_no_audit_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot write the audit log"):
        AuditLog(tmp_path)
