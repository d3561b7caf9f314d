"""Text with nothing hidden in it, for a person who decides by what is shown."""

from __future__ import annotations

import re

# Characters that show nothing, move a terminal's cursor, or turn the direction of the text, as ranges.
HIDDEN = (
    # Control characters but tab and line feed; surrogates; line and paragraph separator (categories Cc, Cs, Zl, Zp).
    *((0x0000, 0x0008), (0x000B, 0x001F), (0x007F, 0x009F), (0xD800, 0xDFFF), (0x2028, 0x2029)),
    # Default_Ignorable_Code_Point, which holds all of Bidi_Control (061C, 200E-200F, 202A-202E, 2066-2069).
    # Source: https://www.unicode.org/Public/16.0.0/ucd/DerivedCoreProperties.txt, PropList.txt (2024-09-10)
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
    # The other format characters (category Cf), and symbols that are blank: of braille, of musical notation, of Khitan.
    *((0x0600, 0x0605), (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2), (0xFFF9, 0xFFFB)),
    *((0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x2800, 0x2800), (0x1D159, 0x1D159)),
    (0x16FE4, 0x16FE4),
)
_RANGES = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in HIDDEN)
_HIDDEN = re.compile(f"[{_RANGES}]")
_HIDDEN_IN_LINE = re.compile(f"[\\t\\n{_RANGES}]")


def visible(text: str) -> str:
    """The text with each character written out (`\\u202e`) that shows nothing, moves the cursor or turns the direction.

    Tabs and line feeds stay. Visible text stays as it is, so that it may be called twice.
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_written_out, text)


def visible_line(text: str) -> str:
    """As `visible`, for a text that has to stay one line, as a file's name: tabs and line feeds are written out too."""
    return text if text.isascii() and text.isprintable() else _HIDDEN_IN_LINE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
