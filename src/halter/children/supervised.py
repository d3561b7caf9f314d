"""Programs under supervisors: started by a helper process that cannot lose what they start.

The helper, one for each process that runs tools, is started with the first program, which takes some 30 ms; each
program after that costs it two forks. See `supervisor.py` for what it does.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from halter.children import proc, supervisor
from halter.children.leader import Leader, Watching
from halter.children.limits import TreeLimits
from halter.children.proc import Table
from halter.children.supervisor import EXITED, GONE, KILL, LENGTH, LIMIT, NO_DIRECTORY, STARTED, WORD

PATIENCE = 10.0  # seconds for a program to be loaded, and for the helper
_UNEASY = 0.25  # seconds without an answer after which the helper is told to go on: a program may have halted it
_SAID = 16 * WORD.size  # bytes; more than a supervisor ever says
# What programs inherit of this process, and the helper has as it was when it was started.
_INHERITED = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp", b"Cpus_allowed")
T = TypeVar("T")
_logger = logging.getLogger("halter")


class SupervisedLeader(Leader):
    """The first process of a call, which is a child of its supervisor; what that one says comes through `channel`."""

    def __init__(self, pid: int, supervisor_pid: int, channel: socket.socket, helper: _Helper) -> None:
        super().__init__(pid)
        self._helper = helper
        self._channel = channel
        self._channel_lock = threading.Lock()
        self._supervisor = (supervisor_pid, proc.started(supervisor_pid) or 0)
        self._is_gone = False

    def watch(self, loop: Watching, on_exit: Callable[[], object]) -> int | None:
        descriptor = os.dup(self._channel.fileno())
        loop.add_reader(descriptor, on_exit)
        return descriptor

    def look(self) -> None:
        """Notes the code, and whether anything is left. What was said stays there for the loop to see."""
        with self._channel_lock:
            try:
                said = self._channel.recv(_SAID, socket.MSG_PEEK)
            except OSError:  # nothing yet, or closed
                return
        for what, number in WORD.iter_unpack(said[: len(said) // WORD.size * WORD.size]):
            if what == EXITED:
                self.code = number
            elif what == LIMIT:
                self.limit = number
            elif what == GONE:
                self._is_gone = True

    @property
    def is_gone(self) -> bool:
        self.look()
        return self._is_gone

    @property
    def is_supervised(self) -> bool:
        return self._is_gone or not self._is_lost()

    def _is_lost(self) -> bool:
        """True if nobody is there to say how it goes on: the supervisor and its server were killed."""
        with self._channel_lock:
            if self._channel.fileno() < 0:
                return not self._is_gone
            poll = select.poll()
            poll.register(self._channel, select.POLLIN)
            hung_up = any(events & select.POLLHUP for _, events in poll.poll(0))
        self.look()
        return hung_up and not self._is_gone

    def descendants(self) -> Table:
        return proc.below(self._supervisor)

    def kill_descendants(self) -> None:
        with self._channel_lock, contextlib.suppress(OSError):
            self._channel.send(KILL)
        _wake(self._supervisor)
        self._helper.wake()  # it takes over if the supervisor was killed

    def outlast(self) -> None:
        """Nothing to wait for: it was forked by its supervisor, which has one thread."""

    def reap(self) -> None:
        """Lets the supervisor wait for it, and go."""
        self.look()
        with self._lock, self._channel_lock:
            self._is_reaped = True
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)
            self._channel.close()

    def forget(self) -> None:
        self._channel.close()  # without the lock: in a forked child, nobody may be left to release it


def start(
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    descriptors: Sequence[int],
    limits: TreeLimits | None,
) -> SupervisedLeader | None:
    """Starts a program under a supervisor of its own; `None` where there can be none.

    The arguments are those of `starting.start`. Blocks until the program is loaded: some milliseconds.
    """
    more = [str(number) for number in range(3, len(descriptors))]  # the numbers that they have in the program
    request = _packed([*argv, *more], environment, directory, limits)
    for _ in range(2):  # the helper may have been killed
        helper = _current_helper()
        if helper is None:
            return None
        said = helper.ask(request, descriptors)
        if said is not None:
            break
        _discard(helper)
    else:
        return _do_without("its helper process ends at once")
    _note_that_it_works()
    channel, what, number, supervisor_pid = said
    if what == STARTED:
        return SupervisedLeader(number, supervisor_pid, channel, helper)
    channel.close()
    raise OSError(number, os.strerror(number), directory if what == NO_DIRECTORY else argv[0])


def _packed(argv: Sequence[str], environment: Mapping[str, str], directory: str, limits: TreeLimits | None) -> bytes:
    words = [os.fsencode(word) for word in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    where = os.fsencode(directory)
    if any(b"\0" in text for text in (*words, where, *variables, *variables.values())):
        raise ValueError("embedded null byte")
    if any(b"=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    body = marshal.dumps((words, variables, where, None if limits is None else limits.measured))
    return LENGTH.pack(len(body)) + body


class _Helper:
    """The server of supervisors; it ends with this process."""

    def __init__(self) -> None:
        self.inherited = _inherited()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = str(Path(supervisor.__file__))
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", program, str(os.getpid()), str(theirs.fileno())],
                env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
            )
        except BaseException:
            self._requests.close()
            raise
        finally:
            theirs.close()
        try:
            process.wait(PATIENCE)  # what goes on is a fork of it
        except subprocess.TimeoutExpired:  # `sys.executable` may be another program that has Python in it
            self._requests.close()
            process.kill()
            process.wait()
            raise OSError(errno.ETIMEDOUT, f"{sys.executable} did not become a helper within {PATIENCE:g} s") from None
        self._requests.settimeout(PATIENCE)
        said = self._requests.recv(WORD.size)
        pid = WORD.unpack(said)[1] if said else 0  # it may have ended at once, which is found out when it is asked
        self._server = (pid, proc.started(pid) or 0)
        self._requests.settimeout(_UNEASY)

    def wake(self) -> None:
        """Lets it go on if it was halted; from any thread."""
        _wake(self._server)

    def ask(self, request: bytes, descriptors: Sequence[int]) -> tuple[socket.socket, bytes, int, int] | None:
        """A program's channel, and the first words on it; `None` if nobody answered."""
        ours, theirs = socket.socketpair()
        try:
            ours.settimeout(_UNEASY)
            with theirs:
                given = [theirs.fileno(), *descriptors]
                self._patiently(lambda: socket.send_fds(self._requests, [b"r"], given))
            with contextlib.suppress(ConnectionError):  # it may have said no already
                rest = memoryview(request)
                while rest:
                    rest = rest[self._patiently(partial(ours.send, rest)) :]
            what, number = self._patiently(lambda: _heard(ours))
            supervisor_pid = self._patiently(lambda: _heard(ours))[1] if what == STARTED else 0
        except (OSError, EOFError) as error:
            ours.close()
            if isinstance(error, TimeoutError):
                _discard(self)
                raise OSError(errno.EBUSY, f"it was not loaded within {PATIENCE:g} s") from error
            return None
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        return ours, what, number, supervisor_pid

    def _patiently(self, call: Callable[[], T]) -> T:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return call()
            except TimeoutError:
                if time.monotonic() >= until:
                    raise
                self.wake()

    @property
    def descriptor(self) -> int:
        return self._requests.fileno()

    def close(self) -> None:
        self._requests.close()


def _wake(process: tuple[int, int]) -> None:
    """Lets this very process go on."""
    found = proc.read(process[0])
    if found is not None and found.key == process:
        proc.send(found, signal.SIGCONT)


def _heard(channel: socket.socket) -> tuple[bytes, int]:
    said = channel.recv(WORD.size, socket.MSG_WAITALL)
    if len(said) < WORD.size:
        raise EOFError
    return WORD.unpack(said)


def _inherited() -> bytes:
    """What a program would inherit of this process now: rights, masks, limits."""
    status = proc.read_some("/proc/self/status", 1 << 16)
    lines = [line for line in status.splitlines() if line.startswith(_INHERITED)]
    return b"\n".join((*lines, proc.read_some("/proc/self/limits", 1 << 16)))


_lock = threading.Lock()
_helper: _Helper | None = None
is_possible = sys.platform == "linux"
_has_worked = False


def _current_helper() -> _Helper | None:
    """The helper; a new one if this process has changed what programs inherit of it, such as its user."""
    global _helper
    if not is_possible or not proc.HAS_PROC or not sys.executable:
        return None
    with _lock:
        if _helper is not None and _helper.inherited != _inherited():
            _close_helper()
        if _helper is None:
            try:
                _helper = _Helper()
            except OSError as error:
                return _do_without(str(error))
        return _helper


def helper_descriptor() -> int | None:
    """The one descriptor that stays open while this process lives, once a program was started."""
    return _helper.descriptor if _helper is not None else None


def _discard(helper: _Helper) -> None:
    with _lock:
        if _helper is helper:
            _close_helper()


def _note_that_it_works() -> None:
    global _has_worked
    _has_worked = True


def _do_without(why: str) -> None:
    """For this program; for all to come, if no helper has ever worked."""
    global is_possible
    is_possible = _has_worked
    _logger.warning(
        "programs run without a supervisor (%s): what a program hides may outlive a stop, so receipts with processes "
        "are not confirmed",
        why,
    )


def _close_helper() -> None:
    """Its supervisors go on until their programs have ended."""
    global _helper
    if _helper is not None:
        _helper.close()
        _helper = None


def _after_fork() -> None:
    """It is the parent's."""
    global _lock
    _lock = threading.Lock()
    _close_helper()


atexit.register(_close_helper)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
