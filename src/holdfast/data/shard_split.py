"""Which rows each rank takes, and which remain. Pure: positions in, positions out.

The rows of an epoch have positions from 0. ``left`` are those that have not been taken yet, as spans in order. A world
of ranks shares them evenly: each takes one run of them, so that it reads only the blocks that it needs. All ranks make
the same number of steps, whatever the number of rows, as collectives require; after any step every rank knows what is
left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Span = tuple[int, int]  # from, and before


@dataclass(frozen=True)
class Steps:
    """The steps of a world of ranks over so many rows, with at most ``batch`` rows of each rank in a step.

    Without ``drop_last`` every row is in a step, and no rank is left without a row in one, unless there are fewer rows
    than ranks: where the last step would have none for some rank, it shares with the step before. With ``even`` False
    ranks may differ in their number of steps.
    """

    rows: int
    world: int
    batch: int
    drop_last: bool = False
    even: bool = True

    @property
    def count(self) -> int:
        if self.drop_last:
            return (self.rows // self.world) // self.batch
        largest = (self.rows + self.world - 1) // self.world
        most = (largest + self.batch - 1) // self.batch
        return most - 1 if self._lacks(most) and self.batch == 1 else most

    def _lacks(self, steps: int) -> bool:
        """Whether the last of so many would have no row for some rank."""
        return self.even and steps > 1 and self.rows // self.world <= (steps - 1) * self.batch

    def length(self, rank: int) -> int:
        return (rank + 1) * self.rows // self.world - rank * self.rows // self.world

    def taken(self, rank: int, steps: int) -> int:
        """How many rows the rank has taken after so many steps."""
        length, count = self.length(rank), self.count
        if self.drop_last:
            return min(steps, count) * self.batch
        if steps >= count:
            return length
        if steps == count - 1 and self.batch > 1 and self._lacks(count):
            before = (count - 2) * self.batch
            return before + (length - before) // 2
        return min(steps * self.batch, length)


def total(left: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in left)


def cut(left: Iterable[Span], start: int, stop: int) -> list[Span]:
    """Of the rows that are left, those from the ``start``-th to before the ``stop``-th."""
    found: list[Span] = []
    at = 0
    for first, last in left:
        begin, end = max(start - at, 0), min(stop - at, last - first)
        at += last - first
        if begin < end:
            found.append((first + begin, first + end))
    return found


def part(left: list[Span], rank: int, steps: Steps) -> list[Span]:
    """The rows that are the rank's."""
    first = rank * steps.rows // steps.world
    return cut(left, first, first + steps.length(rank))


def left_after(left: list[Span], steps: Steps, done: int, more: int = 0) -> list[Span]:
    """The rows that remain after this many steps of all ranks, and this many rows of the next one."""
    if done >= steps.count:
        return []
    found: list[Span] = []
    for rank in range(steps.world):
        first, length = rank * steps.rows // steps.world, steps.length(rank)
        found += cut(left, first + min(steps.taken(rank, done) + more, length), first + length)
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        elif start < stop:
            found.append((start, stop))
    return found


def equal_part(left: list[Span], world: int) -> list[Span]:
    """Without the last rows, if they do not divide evenly."""
    rows = total(left)
    return cut(left, 0, rows - rows % world)
