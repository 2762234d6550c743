"""A table that fits a given width: which columns are shown, how wide each is, and what is shortened.

The first column names the rows. It is shortened in its middle, because the ends of names differ. Columns of rank 0 are
always shown, the others by rank while there is space. No two columns have the same heading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

GAP = 2


@dataclass(frozen=True)
class Column:
    heading: str
    cells: Sequence[str]
    rank: int = 1
    is_number: bool = True  # aligned to the right
    longest: int = 20  # of its cells
    width: int = 0  # as it is shown


def fitted(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns to show, in the order given, with their widths and headings."""
    columns = [replace(column, cells=[shortened(cell, column.longest) for cell in column.cells]) for column in columns]
    columns = [replace(column, width=_least(column, number == 0, width)) for number, column in enumerate(columns)]
    shown = [0]
    left = width - columns[0].width
    for number in sorted(range(1, len(columns)), key=lambda number: columns[number].rank):
        needed = columns[number].width + GAP
        if needed <= left or columns[number].rank == 0:
            shown.append(number)
            left -= needed
    if left < 0:  # prefer a short name to a missing result
        columns[0] = replace(columns[0], width=max(4, columns[0].width + left))
    kept = _stretched([columns[number] for number in sorted(shown)], max(0, left))
    return _headed(kept, [column.heading for column in columns])


def _least(column: Column, first: bool, width: int) -> int:
    """A sixth of the width for names, an eighth for headings; but enough to be readable, and not more than they
    need."""
    widest = max((_length(cell) for cell in column.cells), default=0)
    if first:
        return min(max(12, width // 6), max(widest, _length(column.heading)))
    enough = max(8, width // 8) if column.rank == 0 else max(8, min(13, width // 6))
    return max(widest, min(enough, _length(column.heading)))


def _stretched(columns: list[Column], left: int) -> list[Column]:
    """The remaining width goes to the important results, then to the names, then to the other headings."""
    order = sorted(range(len(columns)), key=lambda number: (columns[number].rank > 0, number))
    for number in order:
        column = columns[number]
        wanted = max(_length(column.heading), *(_length(cell) for cell in column.cells), 0)
        more = min(left, max(0, wanted - column.width))
        columns[number] = replace(column, width=column.width + more)
        left -= more
    return columns


def _headed(columns: list[Column], names: Sequence[str]) -> list[Column]:
    """With headings that fit, and that name no other column: "model/decay" beside "optimizer/decay" is not "decay",
    even if only one of them is shown."""
    found = [_shorter(column.heading, names, column.width) for column in columns]
    doubled = {heading for heading, count in Counter(found).items() if count > 1}
    for number, heading in enumerate(found):
        if heading in doubled:
            found[number] = shortened(f"{number}:{columns[number].heading}", columns[number].width)
    return [replace(column, heading=heading) for column, heading in zip(columns, found, strict=True)]


def _shorter(name: str, names: Sequence[str], width: int) -> str:
    """The last parts of a path, if they distinguish it from the others; otherwise its two ends."""
    if _length(name) <= width:
        return name
    parts = name.split("/")
    for start in range(1, len(parts)):
        tail = "/".join(parts[start:])
        if _length(tail) <= width and sum(other == tail or other.endswith(f"/{tail}") for other in names) == 1:
            return tail
    return shortened(name, width)


def shortened(text: str, width: int) -> str:
    """Cut in the middle."""
    if _length(text) <= width:
        return text
    if width <= 1:
        return text[:width]
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def lines(columns: Sequence[Column], width: int) -> list[str]:
    """The table as text: headings, a rule and the rows."""
    kept = fitted(columns, width)
    separator = " " * GAP
    heads = separator.join(aligned(column.heading, column) for column in kept).rstrip()
    rule = "─" * (sum(column.width for column in kept) + GAP * (len(kept) - 1))
    rows = zip(*(column.cells for column in kept), strict=True)
    return [
        heads,
        rule,
        *(
            separator.join(aligned(cell, column) for cell, column in zip(row, kept, strict=True)).rstrip()
            for row in rows
        ),
    ]


def aligned(text: str, column: Column) -> str:
    text = shortened(text, column.width)
    space = " " * max(0, column.width - _length(text))
    return f"{space}{text}" if column.is_number else f"{text}{space}"


def _length(text: str) -> int:
    """In cells of a terminal: some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
