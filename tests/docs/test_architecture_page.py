"""ARCHITECTURE.md names the files that there are, and imports keep to the rooms that it draws."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "halter"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MARKS = "①②③④⑤"
ENTRANCES = {"halter", "halter.__main__"}  # they load from every room, and belong to none


def drawn_rooms() -> dict[str, int]:
    """Module or package name → the number of its room, as drawn."""
    rooms: dict[str, int] = {}
    room, package = 0, ""
    for line in PAGE[PAGE.index("  ①") : PAGE.index("Tests lie")].splitlines():
        if line[2:3] and line[2:3] in MARKS:
            room = MARKS.index(line[2]) + 1
        elif drawn := re.match(r"  (  )?([\w/]+?)(\.py|/)\s", line):
            name = f"{package}/{drawn[2]}" if drawn[1] else drawn[2]
            package = drawn[2] if drawn[3] == "/" else package
            if drawn[3] == ".py" or room == len(MARKS):
                rooms[".".join(("halter", *name.split("/")))] = room
    return rooms


ROOMS = drawn_rooms()


def room_of(module: str) -> int | None:
    """The room of a module; a package's own `__init__` counts with the highest of its files."""
    if module in ENTRANCES:
        return None
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        if (found := ROOMS.get(".".join(parts[:length]))) is not None:
            return found
    below = [room for name, room in ROOMS.items() if name.startswith(f"{module}.")]
    return max(below, default=None)


def module_of(path: Path) -> str:
    return ".".join(("halter", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported_by(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(node.lineno, name if name in ROOMS else node.module or "") for name in names]
        elif isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
    return [(line, name) for line, name in found if name.split(".")[0] == "halter"]


def test_every_file_of_the_inner_rooms_is_named_and_no_other() -> None:
    inner = ("core", "models", "net", "children", "tools", "sessions", "compaction", "facts")
    inner = (*inner, "crews", "flows", "teams", "terminations")
    files = [*SOURCE.glob("*.py"), *(path for room in inner for path in (SOURCE / room).rglob("*.py"))]
    there = {module_of(path) for path in files if not path.stem.startswith("__")}
    assert {name for name, room in ROOMS.items() if room < len(MARKS)} == there


def test_every_package_of_the_edges_is_named() -> None:
    packages = {module_of(path) for path in SOURCE.rglob("*.py") if not path.stem.startswith("__")}
    assert [name for name in packages if room_of(name) is None] == []


def test_imports_point_one_way() -> None:
    wrong: list[str] = []
    for path in SOURCE.rglob("*.py"):
        here = room_of(module_of(path))
        for line, name in imported_by(path):
            there = room_of(name)
            if here is not None and there is not None and there > here:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which is in a room above")
    assert wrong == []
