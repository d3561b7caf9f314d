"""The marks by which a process is known as ours: two variables of its environment, which its own children inherit.

`HALTER_CALL` names the calls that it belongs to, the outermost first: a tool may run a program that runs Halter, whose
tools' processes are then part of both calls. `HALTER_OWNER` names the process that started it, and outlives that one.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from halter.core.owner import Owner

CALL = "HALTER_CALL"
OWNER = "HALTER_OWNER"


def new_mark() -> str:
    """A mark that no other call has, or can guess."""
    return secrets.token_hex(16)


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """The environment of a process that belongs to the call of this mark, and to those that we ourselves belong to."""
    above = os.environ.get(CALL)
    return {**environment, CALL: f"{above}/{mark}" if above else mark, OWNER: str(Owner.here())}
