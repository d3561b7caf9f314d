"""What the tests of processes share: a mother of children, and a provider that replays what is recorded for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from halter.proof.wire import Wire
from halter.testing.wire_probe import WireProbe, provider, tag_for

from .children import Mother
from .recordings import write_all
from .scene import Scene


@pytest.fixture(scope="session")
def mother_process() -> Iterator[Mother]:
    mother = Mother()
    yield mother
    mother.close()


@pytest.fixture
def mother(mother_process: Mother) -> Iterator[Mother]:
    """Those whom it has borne are dead at the end of the test."""
    yield mother_process
    mother_process.end_all()


@pytest.fixture(scope="session")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with provider(write_all(tmp_path_factory.mktemp("answers"))) as wire:
        yield wire


@pytest.fixture
def wire(replaying: Wire, request: pytest.FixtureRequest) -> WireProbe:
    """The provider that knows the recordings."""
    return WireProbe(replaying, tag_for(request.node.name))


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place that is empty, as a path or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "chat.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def scene(where: str, wire: WireProbe, mother: Mother) -> Scene:
    return Scene(where, wire, mother)
