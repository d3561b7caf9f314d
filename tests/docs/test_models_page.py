"""The tables in docs/models.md are those of the code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("providers", DOCS / "providers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_the_tables_are_as_the_code_has_them() -> None:
    """If this fails: `make docs`."""
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    assert generator().remade(page) == page


def test_every_name_has_a_row() -> None:
    """All prefixes but that of the model without a provider."""
    from halter.models.names import COMPATIBLE_PREFIXES, PREFIXES

    rows = [provider.server.prefix for provider in generator().providers()]
    assert rows == [name for name in (*PREFIXES, *COMPATIBLE_PREFIXES) if name != "scripted"]
