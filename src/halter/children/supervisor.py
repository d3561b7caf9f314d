"""The program that stands between this process and the programs of its tools; it uses the standard library alone.

Usage: supervisor.py HOST DESCRIPTOR. It becomes a server that forks one supervisor for each program that it is asked
for, which is far cheaper than an interpreter for each. Both are child subreapers: a process whose parent ends becomes
their child, whatever it did to its environment, its session or its rights.

1. A supervisor starts one program, says how it ended, and says `GONE` when it has no descendant left. 2. It ends all of
its descendants when it is told to `KILL`, and when the host has ended or has let go of its channel. 3. The program is
waited for last, so that its number and its group stay its own. 4. If a supervisor is killed, the server gets its
descendants, ends them, and says `GONE` in its place. 5. Programs may halt processes of their user: the server lets
supervisors go on that were halted, and a supervisor that ends lets the server go on. 6. A program may have limits: its
supervisor looks what the whole tree uses, says which `LIMIT` it exceeds, and ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

# What is said on a channel: each is a letter and a number of four bytes.
STARTED, SUPERVISOR, NO_DIRECTORY, NO_PROGRAM, EXITED, GONE = b"s", b"v", b"d", b"p", b"x", b"g"
LIMIT = b"l"  # with the place of the limit in a request: memory, processes, CPU seconds, seconds
SERVER = b"h"  # the server's first word, with its number
WORD = struct.Struct("=ci")
LENGTH = struct.Struct("=Q")
KILL = b"k"  # the only word to a supervisor
MOST_DESCRIPTORS = 6  # of a request: the channel, stdin, stdout, stderr, two more

GRACE = 0.25  # seconds between TERM and KILL where the host has ended
AGAIN = 0.002  # seconds between two rounds of KILL
MEASURE_AGAIN = 0.05  # seconds between two looks at what a program with limits uses
_SPARED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)  # sent to whole containers: we end last
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def main() -> None:
    host, descriptor = map(int, sys.argv[1:])
    if os.readlink("/proc/self") != str(os.getpid()):
        sys.exit("/proc belongs to another namespace of processes")
    watch = _watch(host)
    if os.getppid() != host or os.fork():
        os._exit(0)  # the server is no child of the host: a host may wait for all of its children
    os.setsid()
    os.chdir("/")
    _become_subreaper()
    original = {number: signal.signal(number, signal.SIG_IGN) for number in _SPARED}
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    requests = socket.socket(fileno=descriptor)
    say(requests, SERVER, os.getpid())
    _Server(requests, watch, original).serve()


def _watch(host: int) -> int | None:
    """A descriptor that can be read when the host has ended, even if its forks hold copies of its sockets."""
    try:
        return os.pidfd_open(host)
    except (OSError, AttributeError):  # an old kernel: the sockets have to do
        return None


def _become_subreaper() -> None:
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(ctypes.get_errno())}")


class _Events:
    """What a process waits for: readable descriptors, and the end of a child."""

    def __init__(self, descriptors: Iterable[int | None]) -> None:
        self._ends, wake = os.pipe()
        os.set_blocking(self._ends, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        self._poll = select.poll()
        for descriptor in (self._ends, *descriptors):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def wait(self, timeout: float | None) -> set[int]:
        """Returns the descriptors that can be read."""
        ready = {fd for fd, _ in self._poll.poll(None if timeout is None else timeout * 1e3)}
        if self._ends in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._ends, 4096)
        return ready

    def forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)


def _wake(number: int, frame: object) -> None:
    """A handler, so that the signal writes to the descriptor for wake-ups."""


class _Server:
    """Forks supervisors, and takes over from those that were killed."""

    def __init__(self, requests: socket.socket, host: int | None, original: dict[signal.Signals, Any]) -> None:
        self._requests = requests
        self._host = host
        self._original = original
        self._channels: dict[int, socket.socket] = {}  # of each supervisor: copies, to speak in its place
        self._orphaned: list[socket.socket] = []  # those of supervisors that were killed

    def serve(self) -> None:
        events = _Events((self._requests.fileno(), self._host))
        is_leaving = False
        while not is_leaving or self._channels or self._orphaned:
            ready = events.wait(AGAIN if self._orphaned else None)
            if self._requests.fileno() in ready and not self._take_request():
                is_leaving = True
                events.forget(self._requests.fileno())
            if self._host is not None and self._host in ready:
                is_leaving = True
                events.forget(self._host)
            self._look_after_children()

    def _take_request(self) -> bool:
        """Forks a supervisor. False if nobody will ask any more."""
        try:
            word, descriptors, _, _ = socket.recv_fds(self._requests, 1, MOST_DESCRIPTORS)
        except OSError:
            return False
        if not word:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # what is received is inheritable, whatever the flags
        channel = socket.socket(fileno=descriptors[0])
        try:
            pid = os.fork()
        except OSError as error:  # the limit of processes
            say(channel, NO_PROGRAM, error.errno or 0)
            channel.close()
            pid = None
        if pid == 0:
            self._supervise(channel, descriptors[1:])
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        if pid is not None:
            self._channels[pid] = channel
        return True

    def _supervise(self, channel: socket.socket, descriptors: list[int]) -> NoReturn:
        code = 1
        try:
            self._requests.close()
            for other in (*self._channels.values(), *self._orphaned):
                other.close()
            _become_subreaper()
            _Supervisor(channel, self._host).run(descriptors, self._original)
            code = 0
        finally:
            os._exit(code)

    def _look_after_children(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                kill([pid], signal.SIGCONT)
                continue
            channel = self._channels.pop(pid, None)
            if channel is not None and status == 0:
                channel.close()
            elif channel is not None:
                self._orphaned.append(channel)
        strays = [pid for pid in children() if pid not in self._channels]
        kill(strays)
        if not strays:
            for channel in self._orphaned:
                say(channel, GONE)
                channel.close()
            self._orphaned.clear()


class _Supervisor:
    """Looks after one program, and all that descends from it."""

    def __init__(self, channel: socket.socket, host: int | None) -> None:
        self._channel = channel
        self._host = host
        self._program = 0
        self._has_exited = False
        self._is_alone = False  # nobody reads the channel any more
        self._kill_at: float | None = None
        self._meter: _Meter | None = None

    def run(self, descriptors: list[int], original: dict[signal.Signals, Any]) -> None:
        """Returns when no descendant is left, and the host knows."""
        events = _Events((self._channel.fileno(), self._host))
        if not self._start(descriptors, original):
            return
        self._channel.setblocking(False)
        while True:
            left = self._look()
            if self._has_exited and not left:
                break
            self._measure()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                kill((*left, *(() if self._has_exited else (self._program,))))
            self._listen(events.wait(self._patience()), events)
        while not self._is_alone:
            self._listen(events.wait(None), events)
        os.waitpid(self._program, 0)
        kill([os.getppid()], signal.SIGCONT)

    def _patience(self) -> float | None:
        if self._kill_at is None:
            return None if self._meter is None else MEASURE_AGAIN
        return max(AGAIN, self._kill_at - time.monotonic())

    def _measure(self) -> None:
        """Ends the tree if it exceeds a limit, and says which."""
        exceeded = self._meter.exceeded() if self._meter is not None else None
        if exceeded is not None:
            self._meter = None
            say(self._channel, LIMIT, exceeded)
            self._kill_at = 0.0

    def _start(self, descriptors: list[int], original: dict[signal.Signals, Any]) -> bool:
        request = _read_request(self._channel)
        if request is None:
            return False
        argv, environment, directory, limits = request
        outcome, number = start(argv, environment, directory, descriptors, original)
        for descriptor in descriptors:
            os.close(descriptor)
        self._program = number
        self._meter = None if limits is None else _Meter(limits)
        say(self._channel, outcome, number)
        if outcome == STARTED:
            say(self._channel, SUPERVISOR, os.getpid())
        return outcome == STARTED

    def _look(self) -> list[int]:
        """Waits for all that have ended but the program; says what has happened. Returns who is left beside it."""
        words: list[tuple[bytes, int]] = []
        if not self._has_exited:
            found = os.waitid(os.P_PID, self._program, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if found is not None:
                self._has_exited = True
                code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
                words.append((EXITED, code))
        left = wait_for_others(self._program)
        if self._has_exited and not left:
            words.append((GONE, 0))
        if words:
            _send(self._channel, b"".join(WORD.pack(*word) for word in words))
        return left

    def _listen(self, ready: set[int], events: _Events) -> None:
        if not self._is_alone and self._channel.fileno() in ready:
            try:
                word = self._channel.recv(16)
            except BlockingIOError:
                return
            except OSError:
                word = b""
            if word:
                self._kill_at = 0.0
            else:
                self._be_alone(events)
        if self._host is not None and self._host in ready:
            events.forget(self._host)
            self._host = None
            if not self._is_alone:
                self._be_alone(events)

    def _be_alone(self, events: _Events) -> None:
        """The host has ended: TERM, and KILL soon."""
        self._is_alone = True
        kill([os.getppid()], signal.SIGCONT)
        events.forget(self._channel.fileno())
        if self._kill_at is None:
            self._kill_at = time.monotonic() + GRACE
            with contextlib.suppress(OSError):
                os.killpg(self._program, signal.SIGTERM)
            kill(wait_for_others(self._program), signal.SIGTERM)


# --- a program, started -------------------------------------------------------------------------------------


class _Request(NamedTuple):
    """A program to start. `limits`: as `TreeLimits.measured`, or none."""

    argv: list[bytes]
    environment: dict[bytes, bytes]
    directory: bytes
    limits: tuple[float | None, ...] | None


def _read_request(channel: socket.socket) -> _Request | None:
    with channel.makefile("rb") as file:
        head = file.read(LENGTH.size)
        body = file.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""
    return _Request(*marshal.loads(body)) if body else None


def start(
    argv: list[bytes],
    environment: dict[bytes, bytes],
    directory: bytes,
    descriptors: list[int],
    original: dict[signal.Signals, Any],
) -> tuple[bytes, int]:
    """Returns `STARTED` and its number once it has been loaded; else what was wrong, and the system's error."""
    failure, report = os.pipe()
    supervisor = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        return NO_PROGRAM, error.errno or 0
    if pid == 0:
        _become(lambda: _prepare(supervisor, descriptors, original), argv, environment, directory, report)
    os.close(report)
    said = os.read(failure, WORD.size)
    os.close(failure)
    if not said:
        return STARTED, pid
    os.waitpid(pid, 0)
    what, number = WORD.unpack(said)
    return what, number


def _become(
    prepare: Callable[[], None], argv: list[bytes], environment: dict[bytes, bytes], directory: bytes, report: int
) -> NoReturn:
    what = NO_PROGRAM
    try:
        prepare()
        what = NO_DIRECTORY
        os.chdir(directory)
        what = NO_PROGRAM
        os.execvpe(argv[0], argv, environment)
    except Exception as error:
        os.write(report, WORD.pack(what, getattr(error, "errno", None) or errno.EINVAL))
    finally:
        os._exit(127)


def _prepare(supervisor: int, descriptors: list[int], original: dict[signal.Signals, Any]) -> None:
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # our parent has one thread: it ends with the process
    if os.getppid() != supervisor:
        os._exit(127)
    safe = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64) for descriptor in descriptors]
    for target, descriptor in enumerate(safe):
        os.dup2(descriptor, target)
    signal.set_wakeup_fd(-1)
    for number, handler in (*original.items(), (signal.SIGPIPE, signal.SIG_DFL), (signal.SIGXFSZ, signal.SIG_DFL)):
        signal.signal(number, signal.SIG_IGN if handler is signal.SIG_IGN else signal.SIG_DFL)


# --- limits -------------------------------------------------------------------------------------------------


class _Meter:
    """Looks what all descendants of this process use together. `limits`: as `TreeLimits.measured`."""

    def __init__(self, limits: tuple[float | None, ...]) -> None:
        self._limits = limits
        self._began = time.monotonic()

    def exceeded(self) -> int | None:
        """The place of the first limit that is exceeded."""
        found = _descendants(os.getpid())
        before = os.times()  # of those that have ended, and were this process's to wait for
        used = (
            sum(one.memory for one in found.values()),
            sum(one.threads for one in found.values()),
            sum(one.cpu_seconds for one in found.values()) + before.children_user + before.children_system,
            time.monotonic() - self._began,
        )
        for place, (most, now) in enumerate(zip(self._limits, used, strict=True)):
            if most is not None and now > most and (place > 0 or sum(map(_share, found, found.values())) > most):
                return place
        return None


class _Use(NamedTuple):
    """What one process uses. `memory`: bytes, with shared ones; `cpu_seconds`: with those of its ended children."""

    memory: int
    threads: int
    cpu_seconds: float


def _descendants(pid: int) -> dict[int, _Use]:
    found: dict[int, _Use] = {}
    unread = _children_of(pid)
    while unread:
        pid = unread.pop()
        use = _use(pid)
        if use is not None and pid not in found:
            found[pid] = use
            unread += _children_of(pid)
    return found


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _use(pid: int) -> _Use | None:
    """From proc_pid_stat(5): fields 14 to 17 are times, 20 the threads, 24 the pages in RAM."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Use(int(fields[21]) * _PAGE, int(fields[17]), sum(map(int, fields[11:15])) / _TICKS)


def _share(pid: int, use: _Use) -> int:
    """Its memory, where each shared page counts for its part of it alone; slow, and not to be seen of every process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return use.memory


# --- children -----------------------------------------------------------------------------------------------


def children() -> list[int]:
    """The direct children of this process, also those that have ended and were not waited for.

    Nobody else waits for them: a number in this list is certainly theirs.
    """
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # a kernel that was built without it
        return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _parent(pid) == me]


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def wait_for_others(program: int) -> list[int]:
    """Waits for all children that have ended, but for the program. Returns those that have not, without it.

    It looks again after each that had ended: its children have become ours.
    """
    while True:
        found = [pid for pid in children() if pid != program]
        left = [pid for pid in found if not _has_ended(pid)]
        if len(left) == len(found):
            return left


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Signals children that were not waited for; their own children become ours as they end."""
    for pid in pids:
        with contextlib.suppress(OSError):  # one that acts as another user now is not ours to end
            os.kill(pid, number)


# --- words --------------------------------------------------------------------------------------------------


def say(channel: socket.socket, what: bytes, number: int = 0) -> None:
    """Says one word, if somebody listens."""
    _send(channel, WORD.pack(what, number))


def _send(channel: socket.socket, words: bytes) -> None:
    with contextlib.suppress(OSError):
        channel.send(words)


if __name__ == "__main__":
    main()
