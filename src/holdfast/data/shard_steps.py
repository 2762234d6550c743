"""A rank's batches of an epoch, as parts of tables, each with the cursor that holds when all ranks have taken theirs.

Of a batch, any number of rows may be taken, one by one, if all ranks take as many of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from holdfast.data.columns import TablePart
from holdfast.data.data_context import DataContext
from holdfast.data.logical_plan import is_counted
from holdfast.data.pieces import Piece, Rows
from holdfast.data.row_cursor import RowCursor
from holdfast.data.row_flow import CountedRows, CountingRows
from holdfast.data.shard_split import Span, Steps, equal_part, left_after, part, total
from holdfast.errors import DataError

After = Callable[[int | None], RowCursor]  # of how many rows of the batch were taken, None for all
Step = tuple[TablePart, After]


@dataclass(frozen=True)
class ShardWorld:
    """``equal``: leave out rows at the end so that all ranks have as many."""

    rank: int = 0
    size: int = 1
    equal: bool = False


@dataclass(frozen=True)
class BatchRule:
    """``even``: all ranks make as many steps."""

    size: int
    drop_last: bool = False
    even: bool = True

    def steps(self, rows: int, world: ShardWorld) -> Steps:
        return Steps(rows, world.size, self.size, self.drop_last, self.even)


def steps_of(
    pieces: Sequence[Piece], cursor: RowCursor, world: ShardWorld, rule: BatchRule, context: DataContext
) -> Generator[Step, None, None]:
    if is_counted(pieces):
        return _counted(CountedRows(pieces, cursor.epoch, cursor.shuffle, context), cursor, world, rule)
    rows = CountingRows(pieces, cursor.epoch, cursor.shuffle, cursor.mark, context)
    return _counting(rows, cursor, world, rule)


def _counted(rows: CountedRows, cursor: RowCursor, world: ShardWorld, rule: BatchRule) -> Generator[Step, None, None]:
    left = cursor.spans(rows.rows)
    left = equal_part(left, world.size) if world.equal else left
    steps = rule.steps(total(left), world)
    with closing(rows.read(part(left, world.rank, steps))) as chunks:
        yield from _steps(Rows(chunks), left, steps, cursor, world)


def _steps(rows: Rows, left: list[Span], steps: Steps, cursor: RowCursor, world: ShardWorld) -> Iterator[Step]:
    """``rows`` are the rank's own, and all of them."""
    for done in range(1, steps.count + 1):
        size = steps.taken(world.rank, done) - steps.taken(world.rank, done - 1)
        taken = rows.cut(size)
        if size > (0 if taken is None else taken.rows):
            raise DataError("the dataset has fewer rows than were counted: its files have changed. Read it again.")
        if taken is not None:
            yield taken, partial(_after, left, steps, cursor, done)


def _after(left: list[Span], steps: Steps, cursor: RowCursor, done: int, rows: int | None) -> RowCursor:
    spans = left_after(left, steps, done) if rows is None else left_after(left, steps, done - 1, rows)
    return cursor.with_left(spans)


def _counting(rows: CountingRows, cursor: RowCursor, world: ShardWorld, rule: BatchRule) -> Generator[Step, None, None]:
    """Every rank computes all rows and takes its share of each global batch. Their number shows in time: the rest at
    the end, less than two global batches, is shared like counted rows."""
    with closing(rows):
        whole = rule.size * world.size
        if cursor.left is not None and not cursor.is_open:
            yield from _last(rows, cursor.spans(0), cursor, world, rule)
            return
        rows.skip_to(cursor.left[-1][0] if cursor.left is not None else 0)
        while rows.fill(2 * whole) >= 2 * whole:
            at = rows.at
            rows.take(world.rank * rule.size)
            taken = rows.cut(rule.size)
            assert taken is not None
            rows.take((world.size - 1 - world.rank) * rule.size)
            yield taken, partial(_after_global, replace(cursor, mark=rows.mark(at)), at, whole)
        left = [(rows.at, rows.at + rows.fill(2 * whole))]
        if total(left):
            yield from _last(rows, left, replace(cursor, mark=rows.mark(rows.at)), world, rule)


def _after_global(cursor: RowCursor, at: int, whole: int, rows: int | None) -> RowCursor:
    """Single rows are taken of such a batch by one rank alone (``can_be_split``)."""
    return replace(cursor, left=((at + (whole if rows is None else rows), None),))


def can_be_split(pieces: Sequence[Piece], world: ShardWorld) -> bool:
    """Whether the rows of a batch can be taken one by one."""
    return world.size == 1 or is_counted(pieces)


def _last(
    rows: CountingRows, left: list[Span], cursor: RowCursor, world: ShardWorld, rule: BatchRule
) -> Iterator[Step]:
    left = equal_part(left, world.size) if world.equal else left
    steps = rule.steps(total(left), world)
    found = Rows(iter(()))
    for start, stop in part(left, world.rank, steps):
        rows.skip_to(start)
        while rows.at < stop:
            table = rows.take(stop - rows.at)
            if table is None:
                break
            found.add(table)
    yield from _steps(found, left, steps, cursor, world)
