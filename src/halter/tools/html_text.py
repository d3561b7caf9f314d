"""A web page reduced to its text: what a reader would see, line by line, with its links; scripts and styles dropped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

from halter.tools.contents import Look

PIECE = 64 * 1024  # characters that are parsed between two looks
LONGEST_UNCLOSED = 256 * 1024  # characters of a tag or comment; each piece has the parser begin anew at its begin
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
_BLANK_LINES = re.compile(r"\n{3,}")


def text_of(page: str, url: str, look: Look) -> str:
    """The text of an HTML page that came from `url`; links as `text (https://…)`. Broken HTML is read as it comes.

    `look`: called between pieces; what it raises ends the work.
    """
    reader = _Reader(url)
    for begin in range(0, len(page), PIECE):
        look()
        reader.feed(page[begin : begin + PIECE])
        reader.bound()
    # Not closed: at its end the parser takes a time that grows with the square of what nobody has closed.
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._hidden: list[str] = []  # the elements that we are in and do not show, outermost first
        self._in_title = False
        self._preformatted = 0
        self._link: tuple[str | None, int] = (None, 0)  # where the open link leads, and where its text begins

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
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif not self._hidden:
            self._open(tag, dict(attrs))

    def _open(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _BLOCKS:
            self._new_line(tag)
        elif tag in ("td", "th"):
            self._pieces.append("\t")
        elif tag == "a":
            self._link = (self._target(attributes.get("href")), len(self._pieces))
        elif tag == "img" and attributes.get("alt"):
            self._pieces.append(f"[{attributes['alt']}]")
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
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        elif not self._hidden:
            self._close(tag)

    def _close(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._pieces.append("\n\n" if tag == "p" or tag[0] == "h" else "\n")
        elif tag == "a":
            target, begin = self._link
            if target is not None and "".join(self._pieces[begin:]).strip():
                self._pieces.append(f" ({target})")
            self._link = (None, 0)
        self._preformatted = max(0, self._preformatted - (tag == "pre"))

    def _target(self, href: str | None) -> str | None:
        """Where a link leads; `None` for one within the page, and for one that no reader follows."""
        if href is None or href.startswith("#"):
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
            self._pieces.append(data.replace(" ", _KEPT) if self._preformatted else _SPACES.sub(" ", data))

    def text(self) -> str:
        lines = (line.rstrip() if line.startswith("\t") else line.strip() for line in "".join(self._pieces).split("\n"))
        title = _SPACES.sub(" ", "".join(self._title)).strip()
        body = _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()
        return (f"{title}\n\n{body}" if title else body).replace(_KEPT, " ")
