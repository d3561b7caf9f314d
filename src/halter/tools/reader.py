"""The article of a page, without menus, banners and footers, as Markdown: Trafilatura's work, in a process of its own.

Nobody can interrupt a parser written in C, and a page may be made to keep it busy: the process is killed at the call's
time-out, or at a stop.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from halter.errors import ConfigurationError


def check_installed() -> None:
    """Raises `ConfigurationError` where the extra is missing."""
    if find_spec("trafilatura") is None:
        raise ConfigurationError("reader=True needs Trafilatura: install it by pip install 'halter[web]'")


def article_of(page: str, url: str) -> str:
    """Returns the title and the text of an HTML page with its links; empty if no article is found. Blocks."""
    trafilatura: Any = import_module("trafilatura")
    options: dict[str, Any] = {"include_links": True, "include_tables": True, "output_format": "markdown"}
    text = trafilatura.extract(page, url=url, **options) or ""
    title = getattr(trafilatura.extract_metadata(page, default_url=url), "title", None) if text else None
    return f"{title}\n\n{text}" if title and not text.startswith(f"# {title}") else text
