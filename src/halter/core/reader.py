"""Readers: cursors over the log of a tree, for tasks and for threads.

1. A reader holds the handle, a number, and nothing else that could pile up. 2. Cancelling an *owning* reader cancels
the run, waits once for its teardown, and lets the very same exception go on. 3. An owning reader skips what was
buffered at the cut: a stop shows at once. 4. Two at once on one cursor is `BusyError`. 5. A loop over ready events
yields now and then, so that a flood never starves a stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from halter.core.current import current_execution
from halter.core.execution import Execution
from halter.core.home import begin
from halter.core.lockfree import TaskWaker, forbid_blocking, require_asyncio
from halter.core.sealing import surfaces
from halter.errors import BusyError
from halter.events import Event, TextDelta
from halter.outcome import CancelReason, RunStatus

if TYPE_CHECKING:
    from halter.core.run import Run

YIELD_EVERY = 128
TEARDOWN_PATIENCE = 0.25


def _nobody() -> None:
    return None


class Cursor:
    """A place in a run's log, and the ways to move it on: in a task (`wait_for_next`), in a thread (`block_for_next`).

    It does not know the handle: a handle keeps its one cursor, and a cycle would hide that the handle was dropped.
    """

    def __init__(self, execution: Execution, *, after: int | None, owning: bool) -> None:
        self.seen = after or 0
        self.is_active = False
        self.inside = False
        self._execution = execution
        self._owning = owning
        self._cell = execution.cell
        self._batch: Iterator[Event] = iter(())
        self._past_cut = not owning
        self._waits = False
        self._key = object()  # of its watch on the task that reads
        self.has_told = False  # some of the run's own text
        self._waker: TaskWaker | None = None
        self._reading_task: Callable[[], asyncio.Task[Any] | None] = _nobody

    @property
    def at(self) -> int:
        return self.seen

    # --- the cursor -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The first use starts the run, and lets this reader slow it down."""
        execution = self._execution
        begin(execution)
        current = current_execution()
        self.inside = current is not None and current.root is execution.root
        self.is_active = True
        execution.log.add_reader(self)

    def take(self) -> Event | None:
        """The next event of the batch at hand. `None`: look for more with `wait_for_next` or `block_for_next`."""
        if self._cell and not self._past_cut:
            return None
        event = next(self._batch, None)
        if event is not None:
            self.seen = event.seq
        return event

    def take_batch(self, first: Event) -> list[Event]:
        """`first`, and the rest of the batch at hand."""
        batch = [first]
        while (event := self.take()) is not None:
            batch.append(event)
        return batch

    def look(self) -> Event | None:
        """The next event that is there already, from any thread. Raises `BusyError` while somebody waits here."""
        self._enter()
        try:
            return self._refill()
        finally:
            self._waits = False

    def _refill(self) -> Event | None:
        """The next event that is there already; `None` if there is none yet, or no more."""
        execution = self._execution
        head = execution.log.head
        if not self._cell and not self.seen < head >= execution.first_seq:
            return None
        # Looked at in each turn: a stop may come between any two of these lines.
        while not self._cell or self._past_cut or self._skip_to_cut():
            event = self.take()
            if event is not None or self.seen >= execution.last_seq:
                return event
            after = max(self.seen, execution.first_seq - 1)
            found = execution.log.read(after, YIELD_EVERY)
            if not found:
                return None
            self.seen = after
            self._batch = iter(found if execution.parent is None else self._of_family(found))
        return None

    def _of_family(self, found: Sequence[Event]) -> Iterator[Event]:
        """The events of this run and those under it; what is passed over counts as seen."""
        family = self._execution.family
        for event in found:
            if event.run_id in family:
                yield event
            else:
                self.seen = max(self.seen, event.seq)

    def _skip_to_cut(self) -> bool:
        """Goes on behind what was buffered at the cut. False while the cut is not written yet."""
        execution = self._execution
        if execution.is_cut:
            stop = execution.stop
            cut = stop.cut_seq if stop is not None and stop.cut_seq is not None else None
            if cut is None:
                if execution.result is None:
                    return False
                cut = execution.last_seq
            self._batch = iter(())
            self.seen = max(self.seen, cut - 1)
        self._past_cut = True
        return True

    def _is_over(self) -> bool:
        return self._execution.is_over() and self.seen >= self._execution.last_seq

    def _may_have_more(self) -> bool:
        execution = self._execution
        if self._cell:
            if execution.result is not None:
                return True
            if not self._past_cut and execution.is_cut:
                return execution.stop is not None and execution.stop.cut_seq is not None
        return self.seen < execution.log.head >= execution.first_seq

    def close(self) -> None:
        """Reads no more, and slows nothing down any more."""
        self.is_active = False
        self._execution.log.resumed.wake(threadsafe=True)

    def leave(self) -> None:
        """Its loop is left, by `break` or by an error: nothing waits for it, and its task owns the run no more.

        A task that is being cancelled leaves its loop as well: it stays the owner until it has ended.
        """
        if not self.is_active or self._waits:
            return
        self.close()
        self._waker = None  # the next wait watches its task anew
        task = self._reading_task()
        if task is None or task.done() or task.cancelling() == 0:
            self._watch(None)

    def _end(self) -> None:
        self.close()
        error = self._execution.result.error if self._execution.result is not None else None
        if self._owning and self._execution.status is RunStatus.FAILED and error is not None and surfaces(error):
            raise error  # not a clean end for whoever waits

    @property
    def _is_owner(self) -> bool:
        return self._owning and not self._execution.is_detached

    # --- in a task ------------------------------------------------------------------------------------------

    async def wait_for_next(self) -> Event:
        """The next event, which is not at hand; raises `StopAsyncIteration` behind the last."""
        self._enter()
        try:
            if not self.is_active:
                require_asyncio("`for event in run` in a thread")
                self._begin()
            waker = self._waker
            if waker is None or not waker.serves(self._reading_task()):
                waker = self._new_waker()
            log = self._execution.log
            if log.head > self.seen:
                await asyncio.sleep(0)  # a batch has been read: let others run before the next
            while (event := self._refill()) is None and not self._is_over():
                if log.resumed.waiting:
                    log.resumed.wake()  # nothing left to read: whoever waited for this reader goes on
                await log.arrived.next_wake(waker, self._may_have_more)
        except asyncio.CancelledError:
            self._stop_waiting()
            if self._is_owner:
                await cancelled_by_caller(self._execution)
            raise
        except GeneratorExit:
            self._stop_waiting()
            self._disown()
            raise
        finally:
            self._waits = False
        if event is None:
            self._end()
            raise StopAsyncIteration
        return event

    def _stop_waiting(self) -> None:
        if self._waker is not None:
            self._execution.log.arrived.remove(self._waker)

    def _enter(self) -> None:
        if self._waits:
            raise BusyError("this cursor is being read already; run.events() gives another reader")
        self._waits = True

    def _new_waker(self) -> TaskWaker:
        """This task's waker, kept from one wait to the next."""
        waker = self._waker = TaskWaker()
        task = asyncio.current_task()
        # Weakly: a task holds its frame, and that the handle; a cycle would hide that the handle was dropped.
        self._reading_task = ref(task) if task is not None else _nobody
        self._watch_owner(task)
        return waker

    def _watch_owner(self, task: asyncio.Task[Any] | None) -> None:
        """If the task that reads ends cancelled, in its own loop body too, that is the owner's cancel."""
        execution = self._execution
        if self._is_owner and task is not None and execution.result is None:
            self._watch(_OwnerWatch(task, execution, self._key))

    def _watch(self, watch: _OwnerWatch | None) -> None:
        """The task that has read last is the owner; those that have read before it are not."""
        execution = self._execution
        before = execution.on_done.pop(self._key, None)
        if before is not None:
            before()
        if watch is not None:
            execution.on_done[self._key] = watch.remove

    def _disown(self) -> None:
        if self._is_owner:
            self._execution.cancel(reason=CancelReason.CALLER_CANCELLED)

    # --- in a thread ----------------------------------------------------------------------------------------

    def block_for_next(self) -> Event:
        """The next event, which is not at hand; raises `StopIteration` behind the last."""
        self._enter()
        try:
            if not self.is_active:
                self._begin()
            log = self._execution.log
            while (event := self._refill()) is None and not self._is_over():
                if log.resumed.waiting:
                    log.resumed.wake()
                log.arrived.block_until(self._may_have_more)
        except BaseException:
            if self._is_owner:
                caller_interrupted(self._execution)
            raise
        finally:
            self._waits = False
        if event is None:
            self._end()
            raise StopIteration
        return event

    def __repr__(self) -> str:
        return f"<Cursor of run {self._execution.id}, at {self.seen} of {self._execution.log.head}>"


class EventReader:
    """Reads a run's events, from any point, in any task or thread; the last is the terminal one.

    Iteration itself raises nothing of the run's. Closing it, or dropping it, stops nothing. It holds the handle.
    """

    __slots__ = ("_cursor", "_run")

    def __init__(self, run: Run[Any], cursor: Cursor) -> None:
        self._run = run
        self._cursor = cursor

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> Event:
        return self._cursor.take() or await self._cursor.wait_for_next()

    async def next_batch(self) -> list[Event]:
        """Waits for the next event and returns all that are there; an empty list after the last one.

        At most 128 events. Cancellation-safe: an event that was not returned is returned by the next call.
        """
        try:
            first = self._cursor.take() or await self._cursor.wait_for_next()
        except StopAsyncIteration:
            return []
        return self._cursor.take_batch(first)

    def ready(self) -> list[Event]:
        """Returns the next events that are there already, at most 128; never waits, and starts nothing."""
        first = self._cursor.take() or self._cursor.look()
        return [] if first is None else self._cursor.take_batch(first)

    async def aclose(self) -> None:
        """Reads no more; stops nothing."""
        self._cursor.close()

    def __del__(self) -> None:
        self._cursor.leave()  # by `break`, or by an error in the loop's body

    def __iter__(self) -> EventReader:
        forbid_blocking("async for event in run")
        return self

    def __next__(self) -> Event:
        return self._cursor.take() or self._cursor.block_for_next()

    def close(self) -> None:
        """Reads no more; stops nothing."""
        self._cursor.close()

    def __repr__(self) -> str:
        return f"<EventReader {self._cursor!r}>"


class TextReader:
    """Reads the run's own text alone. Raises `RunFailed` at its end if the run failed; a stop ends it quietly.

    Of a run that has shown none, and whose answer is text all the same, that comes as a whole at the end.
    """

    def __init__(self, run: Run[Any], cursor: Cursor, execution: Execution, check: Callable[[], object]) -> None:
        self._run = run
        self._cursor = cursor
        self._execution = execution
        self._check = check

    def _at_end(self) -> str:
        """What is left to be said."""
        result = self._execution.result
        is_told = self._cursor.has_told or result is None or result.is_cancelled  # after a stop, nothing more is shown
        said = "" if is_told or result is None else result.text
        self._cursor.has_told = True
        if not said and result is not None and result.status is RunStatus.FAILED:
            self._check()
        return said

    def __aiter__(self) -> TextReader:
        return self

    async def __anext__(self) -> str:
        execution, cursor = self._execution, self._cursor
        try:
            while True:
                event = cursor.take() or await cursor.wait_for_next()
                if type(event) is TextDelta and execution.voice.speaks_as(event.run_id):
                    self._cursor.has_told = True
                    return event.text
        except StopAsyncIteration:
            if rest := self._at_end():
                return rest
            raise

    async def aclose(self) -> None:
        """Reads no more; stops nothing."""
        self._cursor.close()

    def __del__(self) -> None:
        self._cursor.leave()

    def close(self) -> None:
        """Reads no more; stops nothing."""
        self._cursor.close()

    def __iter__(self) -> TextReader:
        forbid_blocking("async for text in run.text_stream()")
        return self

    def __next__(self) -> str:
        try:
            while True:
                event = self._cursor.take() or self._cursor.block_for_next()
                if type(event) is TextDelta and self._execution.voice.speaks_as(event.run_id):
                    self._cursor.has_told = True
                    return event.text
        except StopIteration:
            if rest := self._at_end():
                return rest
            raise


class _OwnerWatch:
    """Looks at how the owner's task ends, without keeping the run alive after its own end."""

    def __init__(self, task: asyncio.Task[Any], execution: Execution, key: object) -> None:
        self._is_off = False
        self._key = key
        self._task = task
        task.add_done_callback(self)
        self._loop = task.get_loop()
        self._execution = execution

    def __call__(self, task: asyncio.Task[Any]) -> None:
        if self._is_off:
            return
        self._execution.on_done.pop(self._key, None)
        if task.cancelled() and not self._execution.is_detached:
            self._execution.cancel(reason=CancelReason.CALLER_CANCELLED)

    def remove(self) -> None:
        self._is_off = True
        try:
            self._loop.call_soon_threadsafe(self._task.remove_done_callback, self)
        except RuntimeError:
            pass  # the reader's loop is closed


async def cancelled_by_caller(execution: Execution) -> None:
    """An owning use was cancelled from outside: cancels the run, and waits for its teardown, once and briefly.

    A second cancel ends the wait: a scope that is cancelled may deliver thousands in a second.
    """
    execution.cancel(reason=CancelReason.CALLER_CANCELLED)
    waker = TaskWaker()
    execution.done.add(waker)
    timer = asyncio.get_running_loop().call_later(TEARDOWN_PATIENCE, waker.wake, False)
    try:
        if execution.result is None:
            await waker.future
    except asyncio.CancelledError:
        pass  # the first one goes on in our caller
    finally:
        timer.cancel()
        execution.done.remove(waker)


def caller_interrupted(execution: Execution) -> None:
    """The same in a thread: `KeyboardInterrupt` in a blocking wait."""
    execution.cancel(reason=CancelReason.CALLER_CANCELLED)
    execution.done.block_until(lambda: execution.result is not None, TEARDOWN_PATIENCE)
