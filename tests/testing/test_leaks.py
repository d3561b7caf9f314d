"""Leak checks: what is left is named, what goes away in time is no leak."""

# ruff: noqa: PT012  # the whole block under a leak check is what must raise
# What such a block assigned is there, though it raised:
# pyright: reportPossiblyUnboundVariable=false

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from halter.testing import LeakError, Snapshot, leak_check, run

from ..bounds import assert_within

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are read from /proc")


def test_a_block_that_leaves_nothing_passes_at_once() -> None:
    started = time.monotonic()
    with leak_check(wait=60) as before:  # far longer than a slow machine's garbage collection
        asyncio.run(asyncio.sleep(0))
        run(lambda: asyncio.sleep(10))
    assert_within(30, time.monotonic() - started)
    assert isinstance(before, Snapshot)


def test_an_exception_from_the_block_goes_on_as_it_is() -> None:
    release = threading.Event()
    with pytest.raises(KeyError), leak_check(wait=0):
        thread = threading.Thread(target=release.wait)
        thread.start()
        raise KeyError
    release.set()
    thread.join()


# -- threads


def test_a_thread_left_behind_is_named_with_its_line() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten", daemon=True)
    with pytest.raises(LeakError) as caught, leak_check(wait=0.02):
        thread.start()
    release.set()
    thread.join()
    assert isinstance(caught.value, AssertionError)
    assert [line.startswith("daemon thread 'forgotten': ") for line in caught.value.left] == [True]
    assert "threading.py" in caught.value.left[0]
    assert str(caught.value) == f"left behind: 1\n  {caught.value.left[0]}"


def test_a_thread_that_ends_within_the_wait_is_no_leak() -> None:
    with leak_check():
        threading.Thread(target=time.sleep, args=(0.05,)).start()


def test_threads_are_tolerated_by_number_and_by_the_beginning_of_their_name() -> None:
    release = threading.Event()
    threads = [threading.Thread(target=release.wait, name=f"tolerated-{index}") for index in range(2)]
    with leak_check(threads=2, wait=0):
        for thread in threads:
            thread.start()
    before = Snapshot(tasks={}, threads={}, fds={}, children={})
    names = [line for line in Snapshot.take().since(before) if "tolerated-" in line]
    assert len(names) == 2
    ignored = Snapshot.take().since(before, ignore_threads=("pytest", "tolerated-"))
    assert not [line for line in ignored if "tolerated-" in line]
    release.set()
    for thread in threads:
        thread.join()


def test_more_threads_than_tolerated_are_all_listed() -> None:
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(2)]
    with pytest.raises(LeakError) as caught, leak_check(threads=1, wait=0):
        for thread in threads:
            thread.start()
    release.set()
    for thread in threads:
        thread.join()
    assert len(caught.value.left) == 2


def test_what_the_warm_up_creates_belongs_to_the_baseline() -> None:
    release = threading.Event()
    threads: list[threading.Thread] = []

    def background() -> None:
        if not threads:
            threads.append(threading.Thread(target=release.wait))
            threads[0].start()

    with leak_check(warmup=background, wait=0):
        background()
    release.set()
    threads[0].join()


# -- descriptors


@needs_proc
def test_an_open_socket_a_pipe_and_a_file_are_named() -> None:
    with pytest.raises(LeakError) as caught, leak_check(wait=0.02):
        pair = socket.socketpair()
        pipe = os.pipe()
        file = Path(__file__).open()  # noqa: SIM115  # left open on purpose
    for end in (*pair, file):
        end.close()
    for fd in pipe:
        os.close(fd)
    left = "\n".join(caught.value.left)
    assert left.count(": socket:[") == 2
    assert left.count(": pipe:[") == 2
    assert __file__ in left
    assert len(caught.value.left) == 5


@needs_proc
def test_a_reopened_descriptor_with_the_same_number_is_a_new_one() -> None:
    first = socket.socket()
    number = first.fileno()
    with pytest.raises(LeakError, match=f"descriptor {number}: socket:"), leak_check(wait=0):
        first.close()
        second = socket.socket()
        assert second.fileno() == number
    second.close()


@needs_proc
def test_descriptors_are_tolerated_by_number() -> None:
    with leak_check(fds=2, wait=0):
        pair = socket.socketpair()
    for end in pair:
        end.close()


@needs_proc
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_nothing_holds_any_more_is_no_leak() -> None:
    class Knot:
        def __init__(self) -> None:
            self.me = self
            self.socket = socket.socket()

    gc.disable()
    try:
        with leak_check():
            Knot()
    finally:
        gc.enable()


@needs_proc
def test_an_unclosed_event_loop_is_found_by_its_descriptors() -> None:
    with pytest.raises(LeakError, match="eventpoll"), leak_check(wait=0):
        loop = asyncio.new_event_loop()
    loop.close()


# -- children


@needs_proc
def test_a_child_process_left_running_is_named_by_its_command() -> None:
    with pytest.raises(LeakError) as caught, leak_check(wait=0.02):
        child = subprocess.Popen(SLEEPER)
    child.kill()
    child.wait()
    [line] = caught.value.left
    assert line == f"child process {child.pid}: {' '.join(SLEEPER)}"


@needs_proc
def test_a_child_that_ended_unwaited_is_named_as_such() -> None:
    with pytest.raises(LeakError) as caught, leak_check(wait=0.3):
        pid = os.posix_spawn("/bin/true", ["true"], {})
    assert f"child process {pid}: true ended, but nobody has waited for it" in caught.value.left
    os.waitpid(pid, 0)


@needs_proc
def test_a_child_started_by_another_thread_is_found() -> None:
    children: list[subprocess.Popen[bytes]] = []
    stay = threading.Event()

    def spawn() -> None:
        children.append(subprocess.Popen(SLEEPER))
        stay.wait()

    thread = threading.Thread(target=spawn, name="spawner")
    with pytest.raises(LeakError, match="child process"), leak_check(threads=1, wait=0.2):
        thread.start()
        while not children:
            time.sleep(0.005)
    stay.set()
    thread.join()
    children[0].kill()
    children[0].wait()


@needs_proc
def test_a_child_that_was_waited_for_is_no_leak() -> None:
    with leak_check():
        subprocess.run(["/bin/true"], check=True)


# -- tasks


def test_a_task_left_on_a_given_loop_is_named_with_the_line_where_it_waits() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    with pytest.raises(LeakError) as caught, leak_check(loop, wait=0):
        task = loop.create_task(wait(), name="forgotten")
        loop.run_until_complete(asyncio.sleep(0))
    line = f"{__file__}:{wait.__code__.co_firstlineno + 1} in "
    assert caught.value.left[0].startswith(f"task 'forgotten': {line}")
    assert caught.value.left[0].endswith("inside asyncio's Event.wait")
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))
    loop.close()


def test_a_task_on_a_loop_in_another_thread_gets_its_time_to_end() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with leak_check(loop):
        sleeping = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # by now it is a task
    assert sleeping.done()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
