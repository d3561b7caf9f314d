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

from halter.children.ending import Ending
from halter.children.leader import Leader
from halter.children.marks import marked, new_mark
from halter.children.orphans import look_once
from halter.children.starting import start
from halter.children.sweeper import bring_to_an_end, wait_for
from halter.children.tree import Tree
from halter.core.lockfree import snapshot
from halter.errors import ConfigurationError
from halter.outcome import Ended

READ = 64 * 1024  # bytes; as much as a pipe holds
LEFT_IN_THE_PIPE = 1024 * 1024  # bytes read at most after its end: somebody else may go on writing for ever
EXIT_GRACE = 0.2
EXIT_PATIENCE = 1.0


class Child:
    """A process that runs, and its tree. `exited`: done when it has ended; `gone`: when its whole tree has, and how."""

    def __init__(self, leader: Leader, mark: str, pipe: int, on_output: Callable[[bytes], object]) -> None:
        self.loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self.loop.create_future()
        self.gone: asyncio.Future[Ended] = self.loop.create_future()
        self.outlives_runs = False
        self._leader = leader
        self._tree = Tree(mark, (leader.pid, leader.started) if leader.started is not None else None)
        self._pipe: int | None = pipe
        self._on_output = on_output
        self._lock = threading.Lock()
        self._ending: Ending | None = None
        _live[id(self)] = self
        os.set_blocking(pipe, False)
        self.loop.add_reader(pipe, self._on_readable)
        self._exit_fd = leader.watch(self.loop, self._on_exit)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str | None = None,
        on_output: Callable[[bytes], object],
        stdin: int | None = None,
        stderr: int | None = None,
        apart: bool = False,
    ) -> Child:
        """Starts it, on the loop that runs here; returns when the program has been found and loaded.

        `environment`: all of it, but for our marks. `on_output(data)`: called on the loop with what it writes to its
        stdout and stderr, in order. `stdin`: a descriptor to read from; `None`: there is nothing to read. `stderr`: a
        descriptor for its errors alone. `apart`: stdout and stderr stay those of this process, and the pipe is another
        descriptor, whose number is its last argument. Raises `OSError` if there is no such program or directory,
        `ValueError` for a NUL in an argument.
        """
        if os.name != "posix":
            raise ConfigurationError("processes of tools need a POSIX system: Linux, or another one")
        look_once()
        mark = new_mark()
        with ExitStack() as ours_only:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            ours_only.callback(os.close, nothing)
            ours, theirs = os.pipe()
            ours_only.callback(os.close, theirs)
            inputs = nothing if stdin is None else stdin
            if apart:
                descriptors = [inputs, *(fd if _is_open(fd) else nothing for fd in (1, 2)), theirs]
            else:
                errors = nothing if stderr is None or not _is_open(stderr) else stderr
                descriptors = [inputs, theirs, theirs if stderr is None else errors]
            try:
                leader = start(argv, marked(environment, mark), cwd or os.getcwd(), descriptors)
            except BaseException:
                os.close(ours)
                raise
        return cls(leader, mark, ours, on_output)

    @property
    def pid(self) -> int:
        return self._leader.pid

    @property
    def code(self) -> int | None:
        """How it ended, negative for a signal; `None` while it runs, or if somebody else has waited for it."""
        return self._leader.code

    @property
    def how_it_ended(self) -> str:
        """The same in words."""
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
            self._leader.look()
            self._read_what_is_left()
            self.exited.set_result(None)

    # --- ending it ------------------------------------------------------------------------------------------

    def end(self, grace: float, is_urgent: Callable[[], bool] = lambda: False) -> asyncio.Future[Ended]:
        """Begins to end its whole tree; again, it makes haste. Returns `gone`.

        `grace`: seconds between TERM and KILL; 0: KILL at once. `is_urgent()`: asked meanwhile, in a thread; True: KILL
        now. Call it as well when the process has ended by itself: what it has left behind is ended.
        """
        ending = self.begin_to_end(grace, is_urgent)
        if grace == 0:
            ending.kill_group()
        return self.gone

    def begin_to_end(self, grace: float, is_urgent: Callable[[], bool] = lambda: False) -> Ending:
        """As `end`; from any thread."""
        with self._lock:
            is_new = self._ending is None
            ending = self._ending = self._ending or Ending(self._tree, self._leader, grace, self._on_over, is_urgent)
        if not is_new:
            ending.hasten(grace)
        elif not ending.finish_if_gone():
            bring_to_an_end(ending)
        return ending

    def kill_group(self) -> None:
        """KILLs its process group; from any thread, for a loop that does not answer."""
        self.begin_to_end(0).kill_group()

    def _on_over(self, how: Ended) -> None:
        """In the sweeper's thread."""
        _live.pop(id(self), None)
        try:
            self.loop.call_soon_threadsafe(self._leave, how)
        except RuntimeError:  # the loop is closed: nobody waits, and nothing reads any more
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
        self._leader.forget()

    def __repr__(self) -> str:
        state = "gone" if self.gone.done() else "ending" if self._ending else "ended" if self.exited.done() else "runs"
        return f"<Child {self.pid}, {state}>"


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


_live: dict[int, Child] = {}


def _at_exit() -> None:
    """Ends what no loop will end: all where the loop has stopped, and what outlives runs."""
    left = [child for child in snapshot(_live) if child.outlives_runs or not child.loop.is_running()]
    wait_for([child.begin_to_end(EXIT_GRACE) for child in left], time.monotonic() + EXIT_PATIENCE)


def _after_fork() -> None:
    """They are the parent's children: only the copies of its descriptors are closed."""
    for child in snapshot(_live):
        child.forget()
    _live.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
