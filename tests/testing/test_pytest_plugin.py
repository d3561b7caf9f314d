"""The plugin in somebody else's suite, and what this suite's own conftest guards: each in a pytest of its own."""

from __future__ import annotations

import asyncio
import http.client
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import halter
import halter.testing
from halter.proof.wire import WireTimeout
from halter.testing.wire_probe import WireProbe

TESTS = Path(__file__).parents[1]
SOURCES = Path(halter.__file__).parents[1]
PLUGIN = ("-p", "no:halter", "-p", "halter.testing.pytest_plugin")
ALONE = ("-p", "no:randomly", "-p", "no:cacheprovider", "--strict-markers", "-W", "error")


@pytest.fixture(autouse=True)
def sources_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins take longer to load than a suite to run


def suite(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """A suite of one file, run with the plugin."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*PLUGIN, *ALONE, *options)


# -- importing it


def test_importing_the_plugin_imports_next_to_nothing() -> None:
    code = "import sys, pytest, asyncio, halter.testing.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "halter.testing.pytest_plugin" in loaded
    ours = {name for name in loaded if name.split(".")[0] == "halter"}
    assert ours == {"halter", "halter.testing", "halter.testing.pytest_plugin"}
    assert not {"aiohttp", "msgspec", "uvloop"} & set(loaded)


def test_the_package_finds_all_that_it_names() -> None:
    for name in halter.testing.__all__:
        assert getattr(halter.testing, name) is not None
    assert set(halter.testing.__all__) <= set(dir(halter.testing))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = halter.testing.nothing


def test_its_markers_are_registered(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_subprocess(*PLUGIN, "--markers").stdout.str()
    for marker in ("virtual_time(", "real_loop(", "loops:"):
        assert f"@pytest.mark.{marker}" in listed


# -- virtual time


def test_a_marked_test_runs_in_virtual_time_with_its_fixtures(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        """
        import asyncio, pytest
        from halter.testing import VirtualTimeLoop

        @pytest.fixture
        def hours():
            return 2

        @pytest.mark.virtual_time
        @pytest.mark.parametrize("seconds", [1, 3600])
        async def test_it(hours, seconds):
            await asyncio.sleep(hours * seconds)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop) and loop.time() == hours * seconds

        @pytest.mark.virtual_time(start=10.0, seed=3)
        class TestClass:
            async def test_a_method(self, hours):
                assert asyncio.get_running_loop().time() == 10.0

            def test_a_plain_one(self):
                assert True
        """,
    )
    result.assert_outcomes(passed=4)


def test_virtual_time_fails_what_hangs_or_takes_too_long(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        """
        import asyncio, pytest

        @pytest.mark.virtual_time
        async def test_hangs():
            await asyncio.Event().wait()

        @pytest.mark.virtual_time(timeout=60)
        async def test_late():
            await asyncio.sleep(61)
        """,
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*DeadlockError: deadlock at 0 s*", "*VirtualTimeoutError: past the deadline of 60 s*"]
    )


# -- real loops


LOOPS = """
    import asyncio, pytest

    def name():
        return type(asyncio.get_running_loop()).__module__.split(".")[0]
"""


def test_a_test_marked_loops_runs_on_both(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        LOOPS
        + """
    @pytest.mark.loops
    @pytest.mark.parametrize("n", [1, 2])
    async def test_it(n, halter_loop):
        assert name() == halter_loop
        """,
        "-v",
    )
    result.assert_outcomes(passed=4)
    assert "test_it[asyncio-1]" in result.stdout.str() or "test_it[1-asyncio]" in result.stdout.str()


def test_one_loop_is_named_or_plain_asyncio(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        LOOPS
        + """
    pytestmark = pytest.mark.virtual_time

    @pytest.mark.real_loop
    async def test_default():
        assert name() == "asyncio" and not asyncio.get_running_loop().get_debug()

    @pytest.mark.real_loop("uvloop")
    async def test_uvloop():
        assert name() == "uvloop"

    @pytest.mark.real_loop("asyncio-debug")
    async def test_debug():
        assert asyncio.get_running_loop().get_debug()

    async def test_the_module_decides_otherwise():
        assert name() == "halter"

    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.real_loop("uvloop"))])
    async def test_by_parameter(n):
        assert name() == "uvloop"
        """,
        "-v",
    )
    result.assert_outcomes(passed=5)
    assert "test_default[" not in result.stdout.str()


def test_an_eager_loop_starts_tasks_at_once_or_is_skipped(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        LOOPS
        + """
    @pytest.mark.real_loop("asyncio-eager")
    async def test_it():
        begun = []
        async def child():
            begun.append(True)
        task = asyncio.create_task(child())
        assert begun
        await task
        """,
    )
    outcome = "passed" if sys.version_info >= (3, 12) else "skipped"
    result.assert_outcomes(**{outcome: 1})


def test_an_unknown_loop_is_an_error_that_lists_the_known(pytester: pytest.Pytester) -> None:
    result = suite(pytester, LOOPS + "    @pytest.mark.real_loop('trio')\n    async def test_it(): ...")
    assert result.ret != 0
    assert "real_loop knows asyncio, uvloop, asyncio-debug, asyncio-eager; not 'trio'" in (
        result.stdout.str() + result.stderr.str()
    )


# -- the tests of others


def test_an_async_test_without_our_marker_is_left_alone(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        """
        import pytest

        @pytest.mark.anyio
        async def test_of_anyio(anyio_backend_name):
            assert anyio_backend_name == "asyncio"

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        async def test_of_nobody():
            assert False
        """,
        "-p",
        "anyio.pytest_plugin",
    )
    outcomes = result.parseoutcomes()
    assert outcomes.pop("passed") == 1
    assert set(outcomes) <= {"failed", "skipped", "warnings"}  # what pytest says of an async test without a plugin
    assert "async def functions are not natively supported" in result.stdout.str()


# -- the recording provider


def post(url: str) -> http.client.HTTPConnection:
    """A streaming request on a connection that the test must close."""
    parts = urlsplit(url)
    assert parts.hostname
    client = http.client.HTTPConnection(parts.hostname, parts.port)
    client.request("POST", parts.path + "/chat/completions", '{"stream": true}')
    return client


def test_the_probe_sees_the_requests_of_its_own_test_only(wire: WireProbe, request: pytest.FixtureRequest) -> None:
    other = WireProbe(wire.wire, "somebody-else")
    clients = [post(wire.url("stall")), post(other.url("stall"))]
    try:
        [record] = wire.wait("token")
        assert record.tag == wire.tag
        assert wire.tag.startswith(request.node.name)
        assert [seen.id for seen in wire.requests()] == [record.id]
    finally:
        for client in clients:
            client.close()


def test_a_close_by_the_client_is_asserted_on_the_providers_record(wire: WireProbe) -> None:
    clients = [post(wire.url("steady(1000,5)")) for _ in range(3)]
    wire.wait("token", count=3)
    since = time.monotonic()
    for client in clients:
        client.close()
    assert len(wire.assert_closed(within=0.25, since=since)) == 3


def test_what_is_open_or_was_closed_too_late_fails(wire: WireProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halter.testing.wire_probe._SLACK", 0.05)
    client = post(wire.url("stall"))
    wire.wait("token")
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"within 0\.01 s:\n  request \d+ \(stall\): still open"):
        wire.assert_closed(within=0.01, since=began)
    client.close()
    wire.wait("closed")
    with pytest.raises(AssertionError, match=r"\d s after the instant"):
        wire.assert_closed(within=0.0, since=began)


def test_a_connection_that_the_provider_ended_is_not_closed_by_the_client(wire: WireProbe) -> None:
    client = post(wire.url("cut"))
    wire.wait("closed")
    with pytest.raises(AssertionError, match="ended by the provider itself"):
        wire.assert_closed()
    client.close()


def test_without_a_request_nothing_can_be_asserted(wire: WireProbe) -> None:
    with pytest.raises(AssertionError, match="has seen no request tagged"):
        wire.assert_closed(within=0.0)
    with pytest.raises(WireTimeout):
        wire.wait("started", timeout=0.01)


def test_requests_after_an_instant_are_named(wire: WireProbe) -> None:
    before = time.monotonic()
    client = post(wire.url("stall"))
    wire.wait("token")
    wire.assert_no_requests_after(time.monotonic())
    with pytest.raises(AssertionError, match=r"after the instant:\n  request \d+ \(stall\): 0\.\d+ s after"):
        wire.assert_no_requests_after(before)
    client.close()


@pytest.mark.loops
async def test_waiting_does_not_block_the_loop(wire: WireProbe) -> None:
    client = post(wire.url("stall"))
    waiting = asyncio.create_task(wire.awaited("token"))
    await asyncio.sleep(0)
    [record] = await waiting
    assert record.tokens_sent == 1
    client.close()


def test_there_is_tls_where_a_certificate_can_be_made(wire: WireProbe) -> None:
    assert wire.tls_url().startswith("https://127.0.0.1:")
    assert Path(wire.ca_file).exists()
    assert wire.no_accept_url().startswith("http://127.0.0.1:")


def test_the_process_starts_when_a_test_asks_for_it_and_ends_with_the_session(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        """
        import os, sys, pytest

        @pytest.fixture(scope="session")
        def wire_recordings():
            return "."

        def test_one():
            assert "halter.proof.wire" not in sys.modules

        pids = []

        def test_two(wire):
            pids.append(wire.wire.pid)
            print("pid", wire.wire.pid, "ended")

        def test_three(wire, no_leaks):
            assert pids == [wire.wire.pid]
        """,
        "-s",
    )
    result.assert_outcomes(passed=3)
    match = re.search(r"pid (\d+) ended", result.stdout.str())
    assert match
    assert not Path(f"/proc/{match[1]}").exists()


# -- leaks


def test_no_leaks_names_what_a_test_leaves(pytester: pytest.Pytester) -> None:
    result = suite(
        pytester,
        """
        import threading, time, halter, pytest

        @halter.runnable
        async def quick(ctx):
            ctx.text("done")

        @pytest.mark.parametrize("n", [1, 2])
        def test_blocking_runs_leave_nothing(no_leaks, n):
            assert quick.run().result().text == "done"

        @pytest.mark.loops
        async def test_async_runs_leave_nothing(no_leaks):
            await quick.run()

        def test_a_thread(no_leaks):
            threading.Thread(target=time.sleep, args=(30,), name="forgotten", daemon=True).start()
        """,
    )
    result.assert_outcomes(passed=5, errors=1)
    result.stdout.fnmatch_lines(["*LeakError: left behind: 1*", "*daemon thread 'forgotten'*"])


# -- this suite's own conftest


def own_suite(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """A suite that has this suite's conftest and list of scenarios."""
    tests = pytester.mkdir("tests")
    for name in ("conftest.py", "conformance_report.py", "bounds.py"):
        shutil.copy(TESTS / name, tests)
    shutil.copytree(TESTS.parent / "docs", pytester.path / "docs")
    pytester.makefile(
        ".ini",
        pytest="[pytest]\naddopts = --import-mode=importlib\nfilterwarnings = error\n"
        "testpaths = tests\nmarkers =\n    scenario(*numbers)\n",
    )
    pytester.makepyfile(**{"tests/test_it": source})
    return pytester.runpytest_subprocess(*ALONE[:-2], *options)


def test_the_table_says_what_ran_and_passed_and_nothing_else(pytester: pytest.Pytester) -> None:
    result = own_suite(
        pytester,
        """
        import pytest

        @pytest.mark.scenario("A1", "2")
        @pytest.mark.parametrize("n", [1, 2])
        def test_passes(n): pass

        @pytest.mark.scenario("A1")
        def test_is_skipped(): pytest.skip("no such service")

        @pytest.mark.scenario("A2", 3)
        def test_fails(): assert False

        @pytest.mark.scenario("A4")
        @pytest.mark.skip
        def test_is_always_skipped(): pass

        @pytest.fixture
        def broken():
            yield
            assert False

        @pytest.mark.scenario("A5")
        def test_fails_afterwards(broken): pass

        @pytest.mark.scenario("A6")
        @pytest.mark.xfail
        def test_is_expected_to_fail(): assert False

        @pytest.mark.scenario("J93")
        def test_last(): pass
        """,
        "--conformance",
    )
    rows = dict(re.findall(r"^([A-L]\d+) +(pass|fail|skipped|not built)\b", result.stdout.str(), re.MULTILINE))
    assert len(rows) == 112
    named = {row: rows[row] for row in ("A1", "A2", "A3", "A4", "A5", "A6", "A7", "J93")}
    assert named == {
        "A1": "pass", "A2": "fail", "A3": "fail", "A4": "skipped", "A5": "fail", "A6": "fail",
        "A7": "not built", "J93": "pass",
    }  # fmt: skip
    assert "(2 passed, 1 skipped)" in result.stdout.str()
    assert "112 scenarios: 2 pass, 4 fail, 1 skipped, 105 not built" in result.stdout.str()


def test_without_the_option_there_is_no_table(pytester: pytest.Pytester) -> None:
    assert "scenarios:" not in own_suite(pytester, "def test_it(): pass").stdout.str()


@pytest.mark.parametrize("name", ["A113", "A1-A3"])
def test_a_scenario_that_is_not_listed_stops_the_collection(pytester: pytest.Pytester, name: str) -> None:
    result = own_suite(pytester, f"import pytest\n@pytest.mark.scenario({name!r})\ndef test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"there is no conformance scenario '{name}'" in result.stderr.str()


def test_the_list_has_each_number_once_and_in_order() -> None:
    rows = re.findall(r"^\| ([A-J])(\d+) \|", (TESTS.parent / "docs/conformance.md").read_text(), re.MULTILINE)
    assert [int(number) for _, number in rows] == list(range(1, 94))
    assert [letter for letter, _ in rows] == sorted(letter for letter, _ in rows)


def test_a_run_left_behind_fails_its_test_and_not_the_next(pytester: pytest.Pytester) -> None:
    result = own_suite(
        pytester,
        """
        import asyncio, halter

        @halter.runnable
        async def endless(ctx):
            await asyncio.sleep(3600)

        kept = []

        def test_leaves_a_run():
            kept.append(endless.run().start())

        def test_comes_next():
            assert kept[0].is_cancelled
        """,
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*test_leaves_a_run has left live runs behind:*", "*<Execution endless*"])


def test_what_is_raised_where_nobody_looks_is_a_failure(pytester: pytest.Pytester) -> None:
    result = own_suite(
        pytester,
        """
        import threading

        def test_a_file_left_open():
            open("/dev/null")

        def test_an_error_in_del():
            class Bad:
                def __del__(self):
                    raise KeyError
            Bad()

        def test_an_error_in_a_thread():
            def work():
                raise KeyError
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        """,
        "-W",
        "ignore::DeprecationWarning",
    )
    result.assert_outcomes(failed=3)


def test_a_service_that_is_missing_skips_or_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
        def test_there(require): require("python", True)
        def test_missing(require): require("nginx", False)
    """
    monkeypatch.delenv("HALTER_REQUIRE_SERVICES", raising=False)
    own_suite(pytester, source).assert_outcomes(passed=1, skipped=1)
    monkeypatch.setenv("HALTER_REQUIRE_SERVICES", "1")
    shutil.rmtree(pytester.path / "tests")
    shutil.rmtree(pytester.path / "docs")
    result = own_suite(pytester, source)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*nginx was not found, and HALTER_REQUIRE_SERVICES is set*"])


def test_a_test_that_was_late_is_measured_again_and_the_summary_tells_it(pytester: pytest.Pytester) -> None:
    """Late twice, then in time: passed. Late three times: failed. Each time with fixtures of its own."""
    result = own_suite(
        pytester,
        """
        import pytest
        from .bounds import assert_within

        measured = {"in the end": 0, "always": 0}

        @pytest.fixture
        def fresh():
            return []

        def test_late_twice(fresh):
            assert not fresh
            fresh.append("used")
            measured["in the end"] += 1
            assert_within(0.25, 0.1 if measured["in the end"] == 3 else 0.4)

        def test_late_each_time():
            measured["always"] += 1
            assert_within(0.25, 0.1 if measured["always"] == 4 else 0.5)
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*Late: it took 0.500 s*", "*measured again*", "*test_late_each_time: 2 x", "*test_late_twice: 2 x"]
    )


def test_what_fails_for_another_reason_fails_at_once(pytester: pytest.Pytester) -> None:
    """A wrong answer, an error in the clean-up of a late test: nothing that a second try could hide."""
    result = own_suite(
        pytester,
        """
        import pytest
        from .bounds import Late

        tries = []

        def test_is_wrong():
            tries.append("wrong")
            assert tries.count("wrong") > 1

        @pytest.fixture
        def breaks():
            yield
            tries.append("late")
            assert tries.count("late") > 1

        def test_is_late_and_breaks(breaks):
            raise Late("late")
        """,
    )
    result.assert_outcomes(failed=2, errors=1)
    assert "measured again:" not in result.stdout.str()
