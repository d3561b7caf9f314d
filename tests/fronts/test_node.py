"""The harness itself: what a script says and is told, and how its failure is shown."""

from __future__ import annotations

import pytest

from .node import Node


def test_a_script_has_the_packages_and_what_it_is_given(node: Node) -> None:
    source = 'import { DefaultChatTransport } from "ai"\nsay({ name: given.name, kind: typeof DefaultChatTransport })'
    assert node.run(source, name="x") == {"name": "x", "kind": "function"}


def test_a_running_script_is_told_more_and_a_failing_one_shows_its_error(node: Node) -> None:
    with node.start("say(await told() + 1)\nsay(await told() + 1)") as script:
        script.tell(1)
        assert script.heard() == 2
        script.tell(2)
        assert script.result() == 3
    with pytest.raises(AssertionError, match="Error: no such thing"):
        node.run('throw new Error("no such thing")')
