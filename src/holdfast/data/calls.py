"""The user's functions and classes while a dataset is computed.

A class is made into instances, at most as many as its ``concurrency`` says, each of which is called by one thread at a
time. A function is called by as many threads as compute the dataset, or as its ``concurrency`` says.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from holdfast.data.pieces import Chunk, Op
from holdfast.errors import DataError, message_of


@dataclass(frozen=True)
class UserCall:
    """What the user passed to ``map``, ``map_batches`` and the others."""

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
        """How many calls at the same time."""
        return self.concurrency or (1 if self.is_class else None)

    def made(self) -> Any:
        return self.fn(*self.constructor_args, **self.constructor_kwargs) if self.is_class else self.fn


class Calls(AbstractContextManager["Calls"]):
    """Of one computation: what is called for each of its ops."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = [(op, _Callables(getattr(op, "user", None), op.name)) for op in ops]

    @classmethod
    def of(cls, ops: Sequence[Op]) -> Calls:
        return cls(ops)

    def apply(self, chunk: Chunk) -> Chunk:
        for op, callables in self._ops:
            call = callables.take(chunk.where)
            try:
                chunk = op.apply(chunk, call)
            finally:
                callables.put_back(call)
        return chunk

    def __exit__(self, *exc: object) -> None:
        for _, callables in self._ops:
            callables.drop()


class _Callables:
    def __init__(self, user: UserCall | None, name: str) -> None:
        self._user, self._name = user, name
        self._free: list[Any] = []
        limit = user.limit if user is not None else None
        self._places = threading.Semaphore(limit) if limit else None

    def take(self, where: str) -> Any:
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
                f"{self._name}: {self._user.name}() could not be made: {type(error).__name__}: {message_of(error)}"
            ) from error

    def put_back(self, call: Any) -> None:
        if self._user is not None:
            self._free.append(call)
            if self._places is not None:
                self._places.release()

    def drop(self) -> None:
        self._free.clear()
