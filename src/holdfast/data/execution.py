"""Pieces computed in order, ahead of the consumer, in threads and with a bounded amount of memory.

One set of threads reads: a thread for each piece, as many pieces ahead as the context says, each with a bounded queue.
Another applies the ops to the chunks. All of them end when the stream is closed, exhausted or dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from holdfast.data.calls import Computation
from holdfast.data.data_context import DataContext
from holdfast.data.pieces import Chunk, MappedPiece, Op, Piece, between

T = TypeVar("T")
R = TypeVar("R")


class Span(NamedTuple):
    """Rows of a piece that are wanted; ``stop`` is None for all that follow."""

    piece: Piece
    start: int = 0
    stop: int | None = None


def computed(spans: Iterable[Span], context: DataContext) -> Generator[tuple[int, Chunk], None, None]:
    """The chunks of the spans in order, each with the number of its span. A span may have none."""
    with Computation(context) as run:
        yield from computed_in(run, spans)


def computed_in(run: Computation, spans: Iterable[Span]) -> Generator[tuple[int, Chunk], None, None]:
    """``computed``, as a part of a pass that computes more."""
    groups = _by_ops(enumerate(spans))
    for ops, numbered in groups:
        sources = [(number, _source(run, span)) for number, span in numbered]
        with closing(_read_ahead(sources, run.context)) as chunks:
            if not ops:
                yield from chunks
                continue
            made = _in_order(partial(_applied, run, ops), chunks, run.context)
            with closing(made):
                yield from _cut(made, dict(numbered), all(op.keeps_rows for op in ops))


def _applied(run: Computation, ops: Sequence[Op], item: tuple[int, Chunk]) -> tuple[int, Chunk]:
    return item[0], run.apply(ops, item[1])


def _by_ops(spans: Iterable[tuple[int, Span]]) -> Iterator[tuple[tuple[Any, ...], list[tuple[int, Span]]]]:
    """Groups of neighbouring pieces with the same operations."""
    ops: tuple[Any, ...] | None = None
    group: list[tuple[int, Span]] = []
    for number, span in spans:
        own = span.piece.ops if isinstance(span.piece, MappedPiece) else ()
        if group and own is not ops and own != ops:
            yield ops or (), group
            group = []
        ops = own
        group.append((number, span))
    if group:
        yield ops or (), group


def _source(run: Computation, span: Span) -> Callable[[], Iterator[Chunk]]:
    piece = span.piece
    if isinstance(piece, MappedPiece):
        return lambda: piece.source(run, span.start, span.stop)
    return lambda: piece.stream(run, span.start, span.stop)


def _cut(made: Iterator[tuple[int, Chunk]], spans: dict[int, Span], keeps: bool) -> Iterator[tuple[int, Chunk]]:
    """If ops change the number of rows, the span counts their output."""
    if keeps:
        yield from made
        return
    waiting: deque[tuple[int, Chunk]] = deque()

    def of(number: int) -> Iterator[Chunk]:
        while True:
            item = waiting.popleft() if waiting else next(made, None)
            if item is None:
                return
            if item[0] != number:
                waiting.appendleft(item)
                return
            yield item[1]

    for number, span in spans.items():
        chunks = of(number)
        if isinstance(span.piece, MappedPiece):
            chunks = span.piece.as_counted(chunks)
        yield from ((number, chunk) for chunk in between(chunks, span.start, span.stop))
        for _ in chunks:  # what follows the span's end
            pass


class _Queue:
    """A bounded queue between one thread that adds and one that takes. Either side closes it."""

    def __init__(self, most: int) -> None:
        self._items: deque[Any] = deque()
        self._most, self._closed = most, False
        self._changed = threading.Condition()

    def put(self, item: Any) -> bool:
        """False if it is no longer needed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._most)
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def get(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


_END = object()


class _Reader:
    """A thread that streams one piece."""

    def __init__(self, start: Callable[[], Iterator[Any]], most: int) -> None:
        self._start = start
        self._queue = _Queue(most)
        self._thread = threading.Thread(target=self._read, name="holdfast-data-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with closing(self._start()) as chunks:  # type: ignore[type-var]
                for chunk in chunks:
                    if not self._queue.put((chunk, None)):
                        return
        except BaseException as error:
            self._queue.put((None, error))
        else:
            self._queue.put((_END, None))

    def __iter__(self) -> Iterator[Any]:
        while True:
            item, error = self._queue.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item

    def close(self) -> None:
        self._queue.close()
        self._thread.join()


def _read_ahead(
    sources: Iterable[tuple[int, Callable[[], Iterator[Chunk]]]], context: DataContext
) -> Generator[tuple[int, Chunk], None, None]:
    ahead = max(1, context.read_ahead)
    waiting = iter(sources)
    readers: deque[tuple[int, _Reader]] = deque()
    try:
        while True:
            for number, start in waiting:
                readers.append((number, _Reader(start, ahead)))
                if len(readers) >= ahead:
                    break
            if not readers:
                return
            number, reader = readers[0]
            for chunk in reader:
                yield number, chunk
            readers.popleft()[1].close()
    finally:
        for _, reader in readers:
            reader.close()


def _in_order(apply: Callable[[T], R], items: Iterator[T], context: DataContext) -> Generator[R, None, None]:
    """``apply`` to each item, several at the same time, the results in order."""
    threads = context.max_threads
    pool = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-data")
    pending: deque[Any] = deque()
    try:
        for item in items:
            pending.append(pool.submit(apply, item))
            while pending and (len(pending) > threads or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        pool.shutdown(wait=True, cancel_futures=True)


def ahead_of_use(start: Callable[[], Iterator[T]], most: int) -> Generator[T, None, None]:
    """The items of the iterator, produced in a thread that is at most this many items ahead."""
    if most < 1:
        yield from start()
        return
    reader = _Reader(start, most)
    try:
        yield from reader
    finally:
        with suppress(Exception):
            reader.close()
