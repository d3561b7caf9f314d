"""Sweeps: every step, every seed, every cut; and a failure says which."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from halter.testing import (
    DeadlockError,
    LivelockError,
    Sweep,
    SweepOutcome,
    cancel_sweep,
    schedule_sweep,
    split_sweep,
)

# -- cancel_sweep: what passes


async def three_sleeps() -> str:
    for _ in range(3):
        await asyncio.sleep(10)
    return "slept"


def test_a_scenario_is_stopped_once_at_each_of_its_steps() -> None:
    outcomes: list[SweepOutcome] = []
    swept = cancel_sweep(three_sleeps, check=outcomes.append)
    assert swept == len(outcomes)
    assert [outcome.step for outcome in outcomes] == list(range(swept))
    # Each sleep is two steps, its timer and the task's wake-up; the first step begins the task.
    assert swept == 7


def test_the_outcome_says_how_the_stopped_run_ended() -> None:
    async def scenario() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.25)
            return "sealed"
        return "slept"

    outcomes: list[SweepOutcome] = []
    cancel_sweep(scenario, check=outcomes.append)
    first, second, *_ = outcomes
    assert (first.cancelled, first.result, first.stopped_after) == (True, None, 0.0)  # before it began
    assert (second.cancelled, second.result, second.stopped_after) == (False, "sealed", 0.25)


def test_the_number_of_steps_is_the_same_in_each_sweep() -> None:
    assert len({cancel_sweep(three_sleeps) for _ in range(5)}) == 1
    assert len({cancel_sweep(three_sleeps, seed=4) for _ in range(5)}) == 1


def test_a_task_group_and_a_time_out_leave_nothing_at_any_step() -> None:
    async def scenario() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def produce() -> None:
            for item in range(3):
                await queue.put(item)

        async def consume() -> None:
            for _ in range(3):
                async with asyncio.timeout(5):
                    await queue.get()
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())

    assert cancel_sweep(scenario) > 10
    assert cancel_sweep(scenario, seed=1) > 10


# -- cancel_sweep: a canceller of the scenario's own


class Work:
    """A thing with a stop of its own, as a run has."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.stops = 0

    def cancel(self) -> bool:
        self.stops += 1
        self.stopped.set()
        return True

    async def finished(self) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopped.wait(), 30)
        return "stopped" if self.stops else "done"


def test_a_published_canceller_is_called_instead_and_only_after_it_was_published() -> None:
    works: list[Work] = []

    async def scenario(sweep: Sweep) -> str:
        await asyncio.sleep(1)
        work = Work()
        works.append(work)
        sweep.cancel = work.cancel
        return await work.finished()

    outcomes: list[SweepOutcome] = []
    swept = cancel_sweep(scenario, check=outcomes.append)
    assert swept == len(outcomes) >= 2
    assert outcomes[0].step == 3  # begun, timer, woken: published in step 2
    assert not any(outcome.cancelled for outcome in outcomes)
    assert outcomes[0].result == "stopped"
    # The undisturbed run, each stopped one, and the last try, which found that the run had ended.
    assert [work.stops for work in works] == [0, *[1] * swept, 0]


def test_a_scenario_that_takes_a_sweep_may_leave_its_canceller_as_it_is() -> None:
    async def scenario(sweep: Sweep) -> None:
        assert sweep.cancel is None
        await asyncio.sleep(1)

    outcomes: list[SweepOutcome] = []
    assert cancel_sweep(scenario, check=outcomes.append) == 3
    assert all(outcome.cancelled for outcome in outcomes)


def test_an_argument_with_a_default_is_the_scenarios_own() -> None:
    async def scenario(delay: float = 2.0) -> float:
        await asyncio.sleep(delay)
        return delay

    assert cancel_sweep(scenario) == 3


def test_a_canceller_that_is_a_coroutine_function_is_refused() -> None:
    async def scenario(sweep: Sweep) -> None:
        async def cancel() -> None: ...

        sweep.cancel = cancel
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="must be a plain function"):
        cancel_sweep(scenario)


# -- cancel_sweep: what fails


def test_a_failing_step_is_named_with_its_cause_and_place() -> None:
    async def scenario() -> None:
        await asyncio.sleep(1)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise ValueError("broken by the stop") from None

    with pytest.raises(AssertionError) as caught:
        cancel_sweep(scenario)
    assert str(caught.value).startswith("cancelled at step 3 of 6: ValueError('broken by the stop')")
    place = f"{__file__}:{scenario.__code__.co_firstlineno + 3} in"
    assert f"the scenario was at {place}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_task_left_behind_by_a_stop_is_found_and_named() -> None:
    async def scenario() -> None:
        child = asyncio.create_task(asyncio.sleep(100), name="the child")
        await asyncio.sleep(1)
        child.cancel()
        await asyncio.wait([child])

    with pytest.raises(AssertionError, match=r"cancelled at step 1 of \d+: left behind:\n  task 'the child'"):
        cancel_sweep(scenario)


def test_a_task_left_behind_without_a_stop_is_found_too() -> None:
    async def scenario() -> None:
        scenario_tasks.append(asyncio.create_task(asyncio.sleep(100)))

    scenario_tasks: list[asyncio.Task[None]] = []
    with pytest.raises(AssertionError, match=r"^not cancelled: left behind:"):
        cancel_sweep(scenario)


def test_a_task_that_ends_within_settle_is_not_left_behind() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(0.25)))

    assert cancel_sweep(scenario, settle=0.25) >= 1
    with pytest.raises(AssertionError, match="left behind"):
        cancel_sweep(scenario, settle=0.2)


def test_a_suspended_async_generator_is_found_and_named() -> None:
    kept: list[AsyncIterator[int]] = []

    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def scenario() -> None:
        kept.append(numbers())
        await anext(kept[-1])

    with pytest.raises(AssertionError, match=r"open async generator: .*test_sweeps\.py:\d+ in .*numbers"):
        cancel_sweep(scenario)


def test_finished_and_closed_generators_are_not_left_behind() -> None:
    kept: list[AsyncGenerator[int, None]] = []

    async def numbers() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.sleep(1)
        yield 2

    async def scenario() -> None:
        kept.append(numbers())
        async with contextlib.aclosing(kept[-1]) as items:
            async for _ in items:
                await asyncio.sleep(1)

    assert cancel_sweep(scenario) > 5


def test_an_error_that_only_the_loop_saw_is_found() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match=r"reported to the loop: .*ZeroDivisionError"):
        cancel_sweep(scenario)


def test_a_scenario_that_swallows_the_stop_and_waits_for_ever_is_a_deadlock_at_that_step() -> None:
    async def scenario() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"^cancelled at step 1 of \d+: DeadlockError") as caught:
        cancel_sweep(scenario)
    assert isinstance(caught.value.__cause__, DeadlockError)


def test_a_scenario_that_cancels_itself_is_no_clean_end() -> None:
    async def scenario() -> None:
        raise asyncio.CancelledError

    with pytest.raises(AssertionError, match="nobody stopped it"):
        cancel_sweep(scenario)


def test_a_scenario_longer_than_max_steps_is_refused() -> None:
    async def scenario() -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="not cancelled: LivelockError") as caught:
        cancel_sweep(scenario, max_steps=100)
    assert isinstance(caught.value.__cause__, LivelockError)


def test_a_failing_check_is_reported_with_its_step() -> None:
    def check(outcome: SweepOutcome) -> None:
        assert outcome.step != 4, "I do not like four"

    with pytest.raises(AssertionError, match=r"^cancelled at step 4 of 8: I do not like four"):
        cancel_sweep(three_sleeps, check=check)


# -- schedule_sweep


def test_a_scenario_is_run_under_each_seed() -> None:
    outcomes: list[SweepOutcome] = []
    assert schedule_sweep(three_sleeps, seeds=range(7), check=outcomes.append) == 7
    assert [outcome.seed for outcome in outcomes] == list(range(7))
    assert {outcome.result for outcome in outcomes} == {"slept"}


def test_a_race_that_asyncios_order_hides_is_found_and_its_seed_replays_it() -> None:
    async def scenario() -> None:
        ready: list[str] = []

        async def first() -> None:
            ready.append("first")

        async def second() -> None:
            assert ready, "second came first"

        await asyncio.gather(first(), second())

    asyncio.run(scenario())
    with pytest.raises(AssertionError, match=r"under seed (\d+): second came first(?s:.*)\nreplay: ") as caught:
        schedule_sweep(scenario)
    seed = int(str(caught.value).split()[2].rstrip(":"))
    with pytest.raises(AssertionError, match=f"under seed {seed}:"):
        schedule_sweep(scenario, seeds=[seed])
    assert schedule_sweep(scenario, seeds=range(seed)) == seed


def test_what_a_schedule_leaves_behind_is_found() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(9), name="forgotten"))

    with pytest.raises(AssertionError, match=r"under seed 5: left behind:\n  task 'forgotten'"):
        schedule_sweep(scenario, seeds=[5])


# -- split_sweep


def decode_lines(chunks: list[bytes]) -> list[bytes]:
    buffer, lines = b"", list[bytes]()
    for chunk in chunks:
        *whole, buffer = (buffer + chunk).split(b"\n")
        lines += whole
    return lines


def decode_lines_wrongly(chunks: list[bytes]) -> list[bytes]:
    return [line for chunk in chunks for line in chunk.split(b"\n") if line]


def test_a_decoder_that_does_not_care_passes_every_cut() -> None:
    data = b"one\ntwo\n\nthree\n"
    assert split_sweep(decode_lines, data, expected=data.split(b"\n")[:-1]) == (len(data) - 1) + 1 + 1000


def test_a_decoder_that_cares_is_told_where_it_was_cut() -> None:
    with pytest.raises(AssertionError) as caught:
        split_sweep(decode_lines_wrongly, b"one\ntwo\n")
    assert str(caught.value).startswith("cut at [1] (…b'o' | b'ne\\ntwo\\n'…): [b'o', b'ne', b'two']")
    assert "in one piece: [b'one', b'two']" in str(caught.value)


def test_each_offset_is_tried_in_two_parts_and_all_bytes_one_by_one() -> None:
    seen: list[list[bytes]] = []

    def decode(chunks: list[bytes]) -> bytes:
        seen.append(chunks)
        return b"".join(chunks)

    assert split_sweep(decode, b"abcd", cuts=0) == 4
    assert seen == [
        [b"abcd"],
        [b"a", b"bcd"],
        [b"ab", b"cd"],
        [b"abc", b"d"],
        [b"a", b"b", b"c", b"d"],
    ]


def test_long_data_is_cut_in_two_at_about_four_thousand_places_or_as_told() -> None:
    data = bytes(1_000_000)
    assert split_sweep(len_of, data, cuts=0) == 4082 + 1  # every 245th byte, and one by one
    assert split_sweep(len_of, data, every=250_000, cuts=2) == 3 + 1 + 2 + 1


def len_of(chunks: list[bytes]) -> int:
    return sum(map(len, chunks))


def test_a_cut_that_only_fails_in_three_parts_is_found_and_made_small() -> None:
    def decode(chunks: list[bytes]) -> bool:
        return len(chunks) > 2 and any(chunk.startswith(b"e") for chunk in chunks[1:])

    with pytest.raises(AssertionError, match=r"^cut at \[\d+, \d+\] ") as caught:
        split_sweep(lambda chunks: decode(chunks) and len(chunks) < 7, b"abcdefghij")
    assert " | b'ef" in str(caught.value)


def test_an_exception_of_the_decoder_is_chained_to_its_cut() -> None:
    with pytest.raises(AssertionError, match=r"^cut at \[2\] .*UnicodeDecodeError") as caught:
        split_sweep(lambda chunks: "".join(chunk.decode() for chunk in chunks), "aé".encode())
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_the_whole_must_give_what_was_expected() -> None:
    with pytest.raises(AssertionError, match=r"^in one piece: 2, expected None"):
        split_sweep(len_of, b"ab", expected=None)


def test_no_bytes_and_one_byte_cannot_be_cut() -> None:
    assert split_sweep(len_of, b"") == 0
    assert split_sweep(len_of, b"a") == 0


def test_random_cuts_are_the_same_for_the_same_seed() -> None:
    def cuts(seed: int) -> list[list[bytes]]:
        seen: list[list[bytes]] = []
        split_sweep(seen.append, bytes(range(50)), seed=seed)
        return seen

    assert cuts(1) == cuts(1) != cuts(2)
