"""Makes text that others may have written safe for a terminal: it can print nothing but characters.

Names, metrics, errors and paths in storage may come from other people. Control characters could move the cursor, change
the terminal's title or answer in the user's name; bidirectional overrides show a name in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# C0, DEL, C1; line and paragraph separators; bidirectional embeddings, overrides and isolates; lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_AGES = 1e11  # seconds: what lasts longer has no true times
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    """``text`` as one line. Characters that are not safe to print are escaped as in Python; all other Unicode stays."""
    return UNPRINTABLE.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, with tabs: of an error, for example."""
    return _IN_LINES.sub(_escaped, text)


def printable_json(text: str) -> str:
    """JSON that says the same, in characters that are safe to print."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encodable(text: str) -> str:
    """``text`` for files and tables, which accept only valid Unicode: anything else is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def encodable_row(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Names and values of a table's row."""
    return {encodable(name): encodable(value) if isinstance(value, str) else value for name, value in items}


def duration(seconds: float) -> str:
    if not -_AGES < seconds < _AGES:
        return "? s"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} m"


def short_time(seconds: float) -> str:
    """As ``duration``, with more digits of what is less than a minute."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else duration(seconds)


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")
