"""The user's functions and classes while a dataset is computed.

A class gets at most as many instances as its ``concurrency`` says, each of which is called by one thread at a time. A
function is called by as many threads as compute the dataset, or as its ``concurrency`` says.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.data.data_context import DataContext
from holdfast.errors import DataError, message_of

if TYPE_CHECKING:
    from holdfast.data.pieces import Chunk, Op


@dataclass(frozen=True)
class UserCall:
    """The user's argument of ``map``, ``map_batches`` and the others."""

    fn: Any
    concurrency: int | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    constructor_args: tuple[Any, ...] = ()
    constructor_kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        return isinstance(self.fn, type)

    @property
    def name(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    @property
    def limit(self) -> int | None:
        """The number of parallel calls."""
        return self.concurrency or (1 if self.is_class else None)

    def made(self) -> Any:
        return self.fn(*self.constructor_args, **self.constructor_kwargs) if self.is_class else self.fn


class Computation(AbstractContextManager["Computation"]):
    """One pass over a dataset: its settings, and the callables of its ops. An op has one set of them, wherever in the
    dataset its pieces are, so that a class has no more instances than its ``concurrency`` says."""

    def __init__(self, context: DataContext) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._sets: dict[int, tuple[Op, _Callables]] = {}  # by the identity of the op, which is kept

    def apply(self, ops: Sequence[Op], chunk: Chunk) -> Chunk:
        for op in ops:
            if not chunk.table.num_rows:  # no chunk needs a call
                if not chunk.table.num_columns:
                    break
                chunk = op.apply(chunk, None)
                continue
            callables = self._callables(op)
            call = callables.take()
            try:
                chunk = op.apply(chunk, call)
            finally:
                callables.put_back(call)
        return chunk

    def _callables(self, op: Op) -> _Callables:
        with self._lock:
            if id(op) not in self._sets:
                self._sets[id(op)] = op, _Callables(getattr(op, "user", None), op.name)
            return self._sets[id(op)][1]

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._sets.clear()


class _Callables:
    def __init__(self, user: UserCall | None, name: str) -> None:
        self._user, self._name = user, name
        self._free: list[Any] = []
        limit = user.limit if user is not None else None
        self._places = threading.Semaphore(limit) if limit else None

    def take(self) -> Any:
        if self._user is None:
            return None
        if self._places is not None:
            self._places.acquire()
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            return self._user.made()
        except Exception as error:
            if self._places is not None:
                self._places.release()
            raise DataError(
                f"{self._name}: {self._user.name}() failed: {type(error).__name__}: {message_of(error)}"
            ) from error

    def put_back(self, call: Any) -> None:
        if self._user is not None:
            self._free.append(call)
            if self._places is not None:
                self._places.release()
