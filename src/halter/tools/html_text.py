"""A web page reduced to its text: the text a reader would see, line by line, with its links; no scripts or styles.

Pages are made to harm, too: the work grows with their length alone, however they are nested or broken, and it can be
ended after each small piece. 1. Whether an element is open is counted, never searched for. 2. An unclosed tag, comment
or script is given up after a bound, since the standard library's parser reads it anew with each piece. 3. Links, which
are longer as whole URLs than in the page, stop being shown once they have doubled its length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urljoin

PIECE = 8 * 1024  # characters that are parsed between two looks: some 5 ms, far below the patience with a thread
LONGEST_UNCLOSED = 64 * 1024  # characters of a tag or comment
_HIDDEN = frozenset(("script", "style", "template", "svg", "noscript", "iframe", "object", "head"))
_BLOCKS = frozenset(
    (
        *("address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "fieldset", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "option"),
        *("p", "pre", "section", "summary", "table", "tr", "ul"),
    )
)
_SPACES = re.compile(r"[ \t\r\f\v\n\u00a0]+")
_KEPT = "\ue000"  # a space of preformatted text, for as long as other spaces are taken off


def text_of(page: str, url: str, look: Callable[[], object]) -> str:
    """Returns the text of an HTML page that came from `url`; links as `text (https://…)`. Broken HTML is accepted.

    `look`: called between pieces; an exception that it raises ends the work.
    """
    reader = _Reader(url, len(page))
    for begin in range(0, len(page), PIECE):
        look()
        reader.feed(page[begin : begin + PIECE])
        reader.bound()
        reader.write_lines()
    # Not closed: at its end the parser takes a time that grows with the square of what nobody has closed.
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self, url: str, length: int) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._room = length  # characters that links may still take
        self._pieces: list[str] = []  # since the last whole line
        self._looked_at = 0  # so many of the pieces hold no end of a line
        self._lines: list[str] = []
        self._title: list[str] = []
        self._hidden: list[str] = []  # the open elements that are not shown, outermost first
        self._counts = Counter[str]()  # the same, by tag
        self._in_title = False
        self._preformatted = 0
        self._link: str | None = None  # the address that the open link leads to
        self._link_shows = False  # it has text

    def bound(self) -> None:
        """Lets go of what is open for too long; of a script or a comment the end is still looked for."""
        if len(self.rawdata) > LONGEST_UNCLOSED:
            end = self.rawdata[-len("</template") :]
            is_comment = self.rawdata.startswith("<!--")
            self.rawdata = end if self.cdata_elem else f"<!--{end}" if is_comment else ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag == "body":
            self._hidden.clear()  # a head may be left open
            self._counts.clear()
        if tag in _HIDDEN:
            self._hidden.append(tag)
            self._counts[tag] += 1
        elif not self._hidden:
            self._open(tag, dict(attrs))

    def _open(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _BLOCKS:
            self._new_line(tag)
        elif tag in ("td", "th"):
            self._pieces.append("\t")
        elif tag == "a":
            self._link, self._link_shows = self._target(attributes.get("href")), False
        elif tag == "img" and attributes.get("alt"):
            self._pieces.append(f"[{attributes['alt']}]")
            self._link_shows = True
        self._preformatted += tag == "pre"

    def _new_line(self, tag: str) -> None:
        heading = "#" * int(tag[1]) + " " if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit() else ""
        self._pieces.append(("\n\n" if heading or tag == "p" else "\n") + (heading or ("- " if tag == "li" else "")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._counts[tag]:
            closed = ""
            while closed != tag:  # with all that is open inside of it
                closed = self._hidden.pop()
                self._counts[closed] -= 1
        elif not self._hidden:
            self._close(tag)

    def _close(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._pieces.append("\n\n" if tag == "p" or tag[0] == "h" else "\n")
        elif tag == "a":
            if self._link is not None and self._link_shows:
                self._room -= len(self._link)
                self._pieces.append(f" ({self._link})")
            self._link = None
        self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def _target(self, href: str | None) -> str | None:
        """Where a link leads; `None` for one within the page, and for one that no reader follows."""
        if href is None or href.startswith("#") or self._room <= 0:
            return None
        try:
            target = urljoin(self._url, href.strip())
        except ValueError:
            return None
        return target if target.startswith(("http://", "https://")) else None

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._hidden:
            self._link_shows = self._link_shows or not data.isspace()
            self._pieces.append(data.replace(" ", _KEPT) if self._preformatted else _SPACES.sub(" ", data))

    def write_lines(self) -> None:
        """Finishes the lines that are whole; of empty ones next to each other, one stays."""
        new, self._looked_at = self._pieces[self._looked_at :], len(self._pieces)
        if not any("\n" in piece for piece in new):
            return  # a long line is not put together once for each of its pieces
        *whole, rest = "".join(self._pieces).split("\n")
        self._pieces, self._looked_at = [rest], 1
        for line in whole:
            self._write(line)

    def _write(self, line: str) -> None:
        line = (line.rstrip() if line.startswith("\t") else line.strip()).replace(_KEPT, " ")
        if line or (self._lines and self._lines[-1]):
            self._lines.append(line)

    def text(self) -> str:
        """Returns all of it, beneath the title."""
        self.write_lines()
        self._write("".join(self._pieces))
        title = _SPACES.sub(" ", "".join(self._title)).strip()
        return "\n".join([*((title, "") if title else ()), *self._lines]).strip("\n")
