"""Owners: a process is called dead only where that is certain."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from halter.core import owner as owners
from halter.core.owner import Owner, is_dead

UNUSED = 2**22 + 1  # larger than any number that Linux gives to a process
SAY = "from halter.core.owner import Owner; print(Owner.here(), flush=True); input()"


@pytest.fixture
def place() -> str:
    here = Owner.here().where
    if here != owners._place():
        pytest.skip("this system does not say where a process is")
    return here


def test_an_owner_is_known_by_its_number_and_its_start(place: str) -> None:
    me = Owner.here()
    assert Owner.parse(str(me)) == me
    assert not me.is_dead
    assert Owner(place, me.pid, me.started - 1).is_dead, "the number was given to another"
    assert Owner(place, UNUSED, 1).is_dead


def test_of_another_machine_or_container_nothing_is_known(place: str) -> None:
    boot, *namespaces = place.split("-")
    assert not Owner("-".join(["0" * len(boot), *namespaces]), UNUSED, 1).is_dead, "the same numbers, another machine"
    assert not Owner("-".join([boot, *("1" for _ in namespaces)]), UNUSED, 1).is_dead, "the same machine"


@pytest.mark.parametrize("text", ["", "x", "1.2", "1.a.2", "1.2.b", "..", ".1.2", f"a.{2**31}.1", "a.999999999999.1"])
def test_what_is_no_owner_is_not_dead(text: str) -> None:
    assert Owner.parse(text) is None
    assert not is_dead(text)


@pytest.mark.parametrize("suffix", ["", "/1", "/12/more"])
def test_an_owner_dies_with_its_process_whatever_else_its_name_says(place: str, suffix: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", SAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip() + suffix
        assert owner.startswith(place)
        assert not is_dead(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(owner), "it has ended; that nobody has waited for it changes nothing"
    assert is_dead(owner)


def test_a_process_that_is_hidden_from_us_is_not_dead(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "stat", lambda _pid: None)
    assert not is_dead(f"{place}.{os.getpid()}.1")
    assert is_dead(f"{place}.{UNUSED}.1")


def test_without_a_word_of_the_system_nobody_is_dead_and_each_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = str(Owner.here())
    monkeypatch.setattr(owners, "_here", [])
    monkeypatch.setattr(owners, "_places", [])
    monkeypatch.setattr(owners, "stat", lambda _pid: None)
    monkeypatch.setattr(owners, "_look_around", lambda: "")
    first = str(Owner.here())
    assert first == str(Owner.here())
    owners._here.clear()
    assert first != str(Owner.here()), "numbers are given again: the name must not be"
    assert not any(is_dead(owner) for owner in (before, first, str(Owner.here())))


def test_a_forked_child_has_a_name_of_its_own() -> None:
    before = Owner.here()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(Owner.here()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as pipe:
        found = Owner.parse(pipe.read())
    assert found is not None
    assert (found.where, found.pid) == (before.where, child)
