"""One child process of our own, with everything that it starts.

1. It has a supervisor, a session and a process group of its own, marks in its environment, nothing to read on stdin,
and one pipe for what it says on stdout and stderr. 2. It works the same on every loop: what it says, and its end, are
read with `add_reader`; no watcher of children, no signal handler. 3. It has ended when it has ended, whoever still
holds its pipe; it is gone when nothing of its tree is left. 4. Only `end` and `kill_group` may be called from other
threads.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from halter.children.ending import Ending
from halter.children.leader import Leader
from halter.children.limits import TreeLimits
from halter.children.marks import marked, new_mark
from halter.children.orphans import look_once
from halter.children.starting import start
from halter.children.sweeper import bring_to_an_end, wait_for
from halter.children.tree import Tree
from halter.core.lockfree import snapshot
from halter.core.threads import spawn
from halter.errors import ConfigurationError, RunCancelled
from halter.outcome import Ended

if TYPE_CHECKING:
    from halter.children.work import Work

READ = 64 * 1024  # bytes; as much as a pipe holds
LEFT_IN_THE_PIPE = 1024 * 1024  # bytes read at most after its end: somebody else may go on writing for ever
EXIT_GRACE = 0.2
EXIT_PATIENCE = 1.0


def _is_patient() -> bool:
    return False


class _Wish(NamedTuple):
    """For the end of a process; as `Child.end`."""

    grace: float
    is_urgent: Callable[[], bool]

    def sooner(self, grace: float) -> _Wish:
        return _Wish(min(self.grace, grace), self.is_urgent)


class Child:
    """A process and its tree. `exited`: done when it has ended; `gone`: when its whole tree has, and how.

    `work`: what it is started for, if that is a tool call.

    Made on the loop that it belongs to; it runs once `start` has returned. `end` may come at any time: a process that
    is being started meanwhile is ended as soon as it is there.
    """

    def __init__(self, on_output: Callable[[bytes], object]) -> None:
        """`on_output(data)`: called on the loop with what it writes to its stdout and stderr, in order."""
        self.loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self.loop.create_future()
        self.gone: asyncio.Future[Ended] = self.loop.create_future()
        self.outlives_runs = False
        self.work: Work | None = None
        self._on_output = on_output
        self._mark = new_mark()
        self._started: asyncio.Future[None] = self.loop.create_future()
        self._started.add_done_callback(lambda started: started.exception())  # nobody may be left to see it
        self._is_begun = False
        self._limits: TreeLimits | None = None
        self._leader: Leader | None = None
        self._pipe: int | None = None
        self._exit_fd: int | None = None
        self._lock = threading.Lock()
        self._ending: Ending | None = None
        self._wish: _Wish | None = None  # for its end, before it is there

    # --- starting it ----------------------------------------------------------------------------------------

    async def start(
        self,
        command: Callable[[], Sequence[str]],
        *,
        environment: Mapping[str, str],
        cwd: str | None = None,
        stdin: int | None = None,
        stderr: int | None = None,
        apart: bool = False,
        handover: int | None = None,
        limits: TreeLimits | None = None,
    ) -> None:
        """Starts it, once, in a thread: the loop goes on meanwhile. Returns when it has been found and loaded.

        `command()`: the program and its arguments, called in that thread. `environment`: all of it, but for our marks.
        `stdin`: a descriptor to read from; `None`: there is nothing to read. `stderr`: a descriptor for its errors
        alone. `apart`: stdout and stderr stay those of this process, and the pipe is another descriptor, whose number
        is its last argument. `handover`: one more descriptor that it inherits, whose number becomes the very last
        argument. `limits`: of its whole tree, which is ended when it exceeds one. Raises `OSError` if there is no such
        program or directory, `ValueError` for a NUL in an argument, `SandboxUnavailable` where limits cannot be held,
        and what `command()` raises. Cancelled, the start goes on: call `end`, and wait for `gone`.
        """
        if os.name != "posix":
            raise ConfigurationError("processes of tools need a POSIX system: Linux, or another one")
        look_once()
        directory = cwd or os.getcwd()
        theirs = ExitStack()
        try:
            descriptors = self._opened(theirs, stdin, stderr, apart, handover)
            self._limits = limits
            self._begin()
            spawn("start", self._load, command, marked(environment, self._mark), directory, descriptors, theirs)
        except BaseException as error:
            theirs.close()
            self._fail(error)
            raise
        await asyncio.shield(self._started)

    def _opened(
        self, theirs: ExitStack, stdin: int | None, stderr: int | None, apart: bool, handover: int | None
    ) -> list[int]:
        """The program's descriptors: copies, because the caller may close its own before the program has them."""

        def copy(descriptor: int | None) -> int:
            number = os.open(os.devnull, os.O_RDWR) if descriptor is None else os.dup(descriptor)
            theirs.callback(os.close, number)
            return number

        self._pipe, written = os.pipe()
        theirs.callback(os.close, written)
        more = [] if handover is None else [copy(handover)]
        if apart:
            return [copy(stdin), *(copy(number if _is_open(number) else None) for number in (1, 2)), written, *more]
        errors = written if stderr is None else copy(stderr if _is_open(stderr) else None)
        return [copy(stdin), written, errors, *more]

    def _begin(self) -> None:
        with self._lock:
            if self._wish is not None:
                raise RunCancelled("it was to be ended before it was started")
            self._is_begun = True

    def _load(
        self,
        command: Callable[[], Sequence[str]],
        environment: Mapping[str, str],
        directory: str,
        descriptors: Sequence[int],
        theirs: ExitStack,
    ) -> None:
        """In a thread."""
        try:
            with theirs:
                leader = start(command(), environment, directory, descriptors, self._limits)
        except BaseException as error:
            if not self._tell(partial(self._fail, error)):
                self.forget()
            return
        with self._lock:
            self._leader, wish = leader, self._wish
        _live[id(self)] = self
        if not self._tell(self._watch):
            wish = _Wish(0, _is_patient)
        if wish is not None:
            self.begin_to_end(*wish)
        leader.outlast()

    def _tell(self, what: Callable[[], object]) -> bool:
        """Has it called on the loop; from any thread. False if the loop is closed: nobody waits any more."""
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:
            return False
        return True

    def _watch(self) -> None:
        assert self._leader is not None
        assert self._pipe is not None
        try:
            os.set_blocking(self._pipe, False)
            self.loop.add_reader(self._pipe, self._on_readable)
            self._exit_fd = self._leader.watch(self.loop, self._on_exit)
        except OSError as error:  # no descriptor is left to watch it by: it must not run unwatched
            self._started.set_exception(error)
            self.begin_to_end(0)
        else:
            self._started.set_result(None)

    def _fail(self, error: BaseException | None = None) -> None:
        """It was not started, and will not be."""
        self._close_pipe()
        if not self.gone.done():
            self.gone.set_result(Ended.FINISHED)
            self.exited.set_result(None)
        if error is not None and not self._started.done():
            self._started.set_exception(error)

    @property
    def pid(self) -> int | None:
        """The number of its first process; `None` before it is there, and when that one has ended."""
        return None if self._leader is None or self.exited.done() else self._leader.pid

    @property
    def code(self) -> int | None:
        """How it ended, negative for a signal; `None` while it runs, or if somebody else has waited for it."""
        return None if self._leader is None else self._leader.code

    @property
    def has_exceeded_a_limit(self) -> bool:
        """True if its supervisor has ended it for that."""
        return self._leader is not None and self._leader.limit is not None

    @property
    def how_it_ended(self) -> str:
        """The same in words; for one that has exceeded a limit, which one."""
        exceeded = None if self._leader is None else self._leader.limit
        if self._limits is not None and exceeded is not None:
            return self._limits.said(exceeded)
        code = self.code
        if code is None:
            return "exit code unknown"
        names = {number.value: number.name for number in signal.Signals}
        return f"exit code {code}" if code >= 0 else f"ended by signal {-code}, {names.get(-code, 'a nameless one')}"

    # --- what it says, and its end --------------------------------------------------------------------------

    async def wait(self) -> None:
        """Returns when it has ended. Cancellation-safe: it goes on."""
        await asyncio.shield(self.exited)

    def _on_readable(self) -> bool:
        """Reads once. False if there is nothing more to come, or nothing now."""
        if self._pipe is None:
            return False
        try:
            data = os.read(self._pipe, READ)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe()
            return False
        self._on_output(data)
        return True

    def _read_what_is_left(self) -> None:
        for _ in range(LEFT_IN_THE_PIPE // READ):
            if not self._on_readable():
                return

    def _on_exit(self) -> None:
        self._close_exit_fd()
        if not self.exited.done():
            if self._leader is not None:
                self._leader.look()
            self._read_what_is_left()
            self.exited.set_result(None)

    # --- ending it ------------------------------------------------------------------------------------------

    def end(self, grace: float, is_urgent: Callable[[], bool] = _is_patient) -> asyncio.Future[Ended]:
        """Begins to end its whole tree; again, it makes haste. Returns `gone`.

        `grace`: seconds between TERM and KILL; 0: KILL at once. `is_urgent()`: asked meanwhile, in a thread; True: KILL
        now. Call it as well when the process has ended by itself: what it has left behind is ended.
        """
        ending = self.begin_to_end(grace, is_urgent)
        if grace == 0 and ending is not None:
            ending.kill_group()
        return self.gone

    def begin_to_end(self, grace: float, is_urgent: Callable[[], bool] = _is_patient) -> Ending | None:
        """As `end`; from any thread. Returns `None` for a process that is not there: it is ended when it comes."""
        with self._lock:
            leader, is_new = self._leader, self._ending is None
            if leader is None:
                self._wish = _Wish(grace, is_urgent) if self._wish is None else self._wish.sooner(grace)
            else:
                tree = Tree(self._mark, (leader.pid, leader.started) if leader.started is not None else None)
                self._ending = self._ending or Ending(tree, leader, grace, self._on_over, is_urgent)
            ending = self._ending
        if ending is None:
            if not self._is_begun:
                self._tell(self._fail)
        elif not is_new:
            ending.hasten(grace)
        elif not ending.finish_if_gone():
            bring_to_an_end(ending)
        return ending

    def kill_group(self) -> None:
        """KILLs its process group; from any thread, for a loop that does not answer."""
        ending = self.begin_to_end(0)
        if ending is not None:
            ending.kill_group()

    def _on_over(self, how: Ended) -> None:
        """In the sweeper's thread."""
        _live.pop(id(self), None)
        if not self._tell(partial(self._leave, how)):
            self.forget()

    def _leave(self, how: Ended) -> None:
        self._on_exit()
        self._read_what_is_left()
        self._close_pipe()
        if not self.gone.done():
            self.gone.set_result(how)

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self.loop.remove_reader(pipe)
            os.close(pipe)

    def _close_exit_fd(self) -> None:
        descriptor, self._exit_fd = self._exit_fd, None
        if descriptor is not None:
            self.loop.remove_reader(descriptor)
            os.close(descriptor)

    def forget(self) -> None:
        """Lets go of the descriptors, where the loop is gone or another process's."""
        for descriptor in (self._pipe, self._exit_fd):
            if descriptor is not None:
                os.close(descriptor)
        self._pipe = self._exit_fd = None
        if self._leader is not None:
            self._leader.forget()

    def __repr__(self) -> str:
        state = "gone" if self.gone.done() else "ending" if self._ending else "ended" if self.exited.done() else "runs"
        return f"<Child {'without a number' if self._leader is None else self._leader.pid}, {state}>"


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


_live: dict[int, Child] = {}


def live() -> list[Child]:
    """All children of this process that are not gone; from any thread."""
    return snapshot(_live)


def _at_exit() -> None:
    """Ends what no loop will end: all where the loop has stopped, and what outlives runs."""
    left = [child for child in snapshot(_live) if child.outlives_runs or not child.loop.is_running()]
    endings = [ending for child in left if (ending := child.begin_to_end(EXIT_GRACE)) is not None]
    wait_for(endings, time.monotonic() + EXIT_PATIENCE)


def _after_fork() -> None:
    """They are the parent's children: only the copies of its descriptors are closed."""
    for child in snapshot(_live):
        child.forget()
    _live.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
