"""Texts that others wrote, before they are shown: what one sees is all there is."""

from __future__ import annotations

import hashlib
import re
import unicodedata

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of what steers instead of being seen: control characters, those that turn the writing direction or have
no width, halves of characters, line and paragraph separators."""
BYTES = range(0xDC80, 0xDD00)
"""How Python holds the bytes of a file name that is not UTF-8."""


def printable(text: object, *, lines: bool = False) -> str:
    """The text with everything unseen spelled out (`\\x1b`, `\\u202e`, `\\n`), so that it cannot steer a terminal or mislead.

    With `lines`, line breaks and tabs stay: for a page's blocks of text.
    """
    said = str(text)
    if said.isprintable():
        return said
    kept = "\n\t" if lines else ""
    return "".join(c if c in kept or unicodedata.category(c) not in HIDDEN else _spelled(c) for c in said)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and its end where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


def file_name(text: str, most: int = 120) -> str:
    """The text as a part of a file's name, about so many bytes; one that had to be changed gets some letters of its own."""
    tame = re.sub(r"[^\w .,+=@()-]+", "-", text).encode()[:most].decode(errors="ignore")
    own = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return tame if tame == text else f"{tame}-{own}"


def _spelled(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code - 0xDC00:02x}" if code in BYTES else letter.encode("unicode_escape").decode("ascii")
