"""The house of `design.md`, section 6, read from the source: imports point one way, tasks are made in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

WORDS, MACHINES, CORE, ADAPTERS, EDGES = 1, 2, 3, 4, 5
ROOMS = {
    **dict.fromkeys(
        ["errors", "messages", "request", "features", "outcome", "events", "checked", "shown", "visible", "risk"], WORDS
    ),
    **dict.fromkeys(
        (
            f"core.{name}"
            for name in ["lifecycle", "fold", "sse", "assembly", "complete_calls", "history", "ids", "tokens"]
        ),
        MACHINES,
    ),
    "snapshot": MACHINES,
    "core": CORE,
    **dict.fromkeys(
        [
            "net",
            "children",
            "models",
            "agent",
            "turns",
            "toolbox",
            "hooks",
            "outputs",
            "codec",
            "schemas",
            "tools",
            "parts",
            "compose",
            "teams",
            "terminations",
            "crews",
            "flows",
            "compaction",
            "facts",
            "stores",
            "sessions",
            "bridges",
        ],
        ADAPTERS,
    ),
    **dict.fromkeys(["server", "client", "cli", "terminal", "otel", "proof", "testing", "__main__"], EDGES),
}
# Adapters see ports, never each other's kind. What is made of others (agents, compositions) may see their kinds.
KINDS = ("models", "tools", "stores", "sessions", "bridges")
# The words and the machines stand on these alone: no asyncio, no I/O.
PURE = {"msgspec", "time"}  # `time`: stamps only
IMPURE = {"asyncio", "socket", "ssl", "threading", "_thread", "subprocess", "signal", "selectors", "aiohttp", "logging"}
# A connection to an MCP server owns its task: the SDK's client is entered and left in one.
TASKS_ARE_MADE_IN = {"core.runtime", "core.execution", "core.body", "tools.mcp_connection"}

# Imports inside functions, each with its reason.
INSIDE_FUNCTIONS = {
    ("core.context", "halter.core.run"): "the handle stands on this module",
    ("tools.isolated_child", "multiprocessing"): "needed only in the child",
    ("tools.isolated_child", "msgspec"): "from the parent's path, which is known when the child runs",
    ("tools.isolated_child", "halter.tools.function"): "from the parent's path, which is known when the child runs",
    ("tools.isolated_child", "halter.messages"): "from the parent's path, which is known when the child runs",
    ("core.threads", "uvloop"): "the one optional dependency of the base install",
    ("models.http", "halter.net.sockets"): "loads aiohttp: at the first request, not when a model is named",
    ("tools.sandboxed", "halter.tools.sandbox_gate"): "loads urllib: for a sandbox whose network is a list of hosts",
    ("sessions.opening", "halter.sessions.sql"): "loads SQLAlchemy, an extra: when sessions are kept in a database",
}


@dataclass(frozen=True)
class Import:
    """`by` imports `what`. `when`: `load`, `typing` or `call`."""

    by: str
    what: str
    when: str
    line: int

    @property
    def is_ours(self) -> bool:
        return self.what == "halter" or self.what.startswith("halter.")

    @property
    def target(self) -> str:
        return self.what.removeprefix("halter").removeprefix(".")

    def __str__(self) -> str:
        return f"{self.by}:{self.line} imports {self.what}"


@cache
def files() -> dict[str, Path]:
    """All modules' files by their name without `halter.`; the root is the empty name."""
    found: dict[str, Path] = {}
    for path in sorted((SOURCE / "halter").rglob("*.py")):
        parts = path.relative_to(SOURCE / "halter").with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return found


@cache
def tree_of(name: str) -> ast.Module:
    """One of them, parsed. Not where tests are collected: each worker does that."""
    return ast.parse(files()[name].read_text(), str(files()[name]))


@cache
def modules() -> dict[str, ast.Module]:
    """All of them, parsed."""
    return {name: tree_of(name) for name in files()}


@cache
def imports() -> tuple[Import, ...]:
    return tuple(one for name, tree in modules().items() for one in _imports_in(name, tree.body, "load"))


def _imports_in(by: str, nodes: Iterable[ast.AST], when: str) -> Iterator[Import]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(by, alias.name, when, node.lineno)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert module is not None, f"{by}:{node.lineno} is a relative import"
                assert level == 0, f"{by}:{node.lineno} is a relative import"
                for alias in names:
                    full = f"{module}.{alias.name}"
                    yield Import(by, full if full.removeprefix("halter.") in modules() else module, when, node.lineno)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _imports_in(by, node.body, "call")
            case ast.If(test=test) if "TYPE_CHECKING" in ast.dump(test):
                yield from _imports_in(by, node.body, "typing")
                yield from _imports_in(by, node.orelse, when)
            case _:
                yield from _imports_in(by, ast.iter_child_nodes(node), when)


def room_of(module: str) -> int | None:
    """The number of its room; `None` for the root, which stands in the door."""
    while module:
        if module in ROOMS:
            return ROOMS[module]
        module = module.rpartition(".")[0]
    return None


def test_every_module_has_a_room() -> None:
    """A new file is put into a room on purpose."""
    homeless = [name for name in files() if name and room_of(name) is None]
    assert not homeless


def test_imports_point_one_way() -> None:
    """① words ← ② machines ← ③ core ← ④ adapters and composers ← ⑤ edges; what is lazy counts as well."""
    wrong = [
        f"{one}: room {room_of(one.by)} sees room {room_of(one.target)}"
        for one in imports()
        if one.is_ours and one.when != "typing" and one.by
        if (room_of(one.by) or 0) < (room_of(one.target) or 0)
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_below_the_root_imports_the_root() -> None:
    """The root stands on the rooms. Edges may use the public names as users do; `from halter import events` is fine."""
    wrong = [str(one) for one in imports() if one.by and (room_of(one.by) or 0) < EDGES and one.what == "halter"]
    assert not wrong, "\n".join(wrong)


def test_the_root_loads_no_module_of_its_own() -> None:
    """Its names come lazily: at import it needs the standard library alone."""
    assert [str(one) for one in imports() if one.by == "" and one.when == "load" and one.is_ours] == []


def test_there_is_no_cycle_among_modules_at_import() -> None:
    """Each module can be loaded after those that it needs."""
    needs = {
        name: {one.target for one in imports() if one.by == name and one.is_ours and one.when == "load"} - {name}
        for name in modules()
    }
    loaded: set[str] = set()
    while ready := {name for name, needed in needs.items() if name not in loaded and needed <= loaded}:
        loaded |= ready
    stuck = {name: sorted(needs[name] - loaded) for name in needs if name not in loaded}
    assert not stuck, stuck


def test_words_and_machines_know_neither_asyncio_nor_any_io() -> None:
    """Pure: input in, output out."""
    wrong = [
        str(one)
        for one in imports()
        if (room_of(one.by) or 9) <= MACHINES and one.what.partition(".")[0] in IMPURE and one.when != "typing"
    ]
    assert not wrong, "\n".join(wrong)


def test_adapters_never_see_each_others_kind() -> None:
    """A model knows no tool, a store no session: they meet in what is composed of them."""
    wrong = [
        str(one)
        for one in imports()
        if one.is_ours and one.when != "typing"
        for kind in KINDS
        if one.by.partition(".")[0] == kind and one.target.partition(".")[0] in {*KINDS} - {kind}
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_is_not_imported_by_its_own_front_door() -> None:
    """`core/runnable.py` imports all of the core, and is imported by none of it."""
    wrong = [
        str(one)
        for one in imports()
        if one.by.startswith("core.") and one.target == "core.runnable" and one.when != "typing"
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_inside_functions_are_listed_with_a_reason() -> None:
    """Only what cannot stand at the top; edges, which are optional, may load what they compose when it is asked for."""
    wrong = [
        str(one)
        for one in imports()
        if one.when == "call" and (room_of(one.by) or 0) < EDGES and (one.by, one.what) not in INSIDE_FUNCTIONS
    ]
    assert not wrong, "\n".join(wrong)


def test_every_reason_for_a_late_import_still_has_its_import() -> None:
    """The list holds no reasons without their cases."""
    found = {(one.by, one.what) for one in imports() if one.when == "call"}
    assert set(INSIDE_FUNCTIONS) <= found, set(INSIDE_FUNCTIONS) - found


def _tasks_made_in(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called.split(".")[-1] in ("create_task", "ensure_future") or called in ("asyncio.Task", "Task"):
            yield node.lineno


@pytest.mark.parametrize("name", [name for name in files() if name not in TASKS_ARE_MADE_IN])
def test_tasks_are_made_by_the_runtime_and_executions_only(name: str) -> None:
    """One owner per task: in the rooms ① to ④ nobody else makes one."""
    if (room_of(name) or 0) < EDGES:
        assert list(_tasks_made_in(tree_of(name))) == []


def test_no_module_is_called_after_nothing() -> None:
    """One obvious module per concept: never `utils`, `helpers`, `common`, `manager`, `base`."""
    vague = {"util", "utils", "helpers", "common", "manager", "base", "misc"}
    assert not [name for name in files() if name.rpartition(".")[2] in vague]
