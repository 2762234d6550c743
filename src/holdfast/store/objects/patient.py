"""The base of all stores that may fail temporarily: every request is retried, and ``create`` is safe to retry."""

from __future__ import annotations

import contextlib
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.errors import ObjectExistsError, ObjectMissingError, StorageError, StorageUnavailableError
from holdfast.store.objects import verdicts
from holdfast.store.objects.patience import Patience

DEFAULT_PATIENCE_S = 300.0

_T = TypeVar("_T")


class Shared:
    """What a store shares with its copies that have another patience."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.creates_safely: bool | None = None
        self.probing = threading.Lock()

    def close(self) -> None:
        self.closed.set()


class PatientObjects(ABC):
    def __init__(self, url: str, patience_s: float, shared: Shared) -> None:
        self._url = url
        self._common = shared
        self._patience = Patience(patience_s, shared.closed)

    @property
    def url(self) -> str:
        return self._url

    @property
    def creates_safely(self) -> bool:
        with self._common.probing:
            if self._common.creates_safely is None:
                self._common.creates_safely = self._probe()
            return self._common.creates_safely

    def create(self, key: str, data: bytes) -> None:
        if not self.creates_safely:
            self._create_unsafely(key, data)
            return
        try:
            self._try("create", key, lambda: self._put_new(key, data))
        except ObjectExistsError:
            if not self._holds(key, data):
                raise

    def close(self) -> None:
        self._common.close()

    @abstractmethod
    def get(self, key: str) -> bytes: ...

    @abstractmethod
    def put(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None: ...

    @abstractmethod
    def _put_new(self, key: str, data: bytes) -> None:
        """Try once to write, on condition that the key is free."""

    def _holds(self, key: str, data: bytes) -> bool:
        """Whether the key was taken by an earlier try of the same call, whose reply was lost."""
        try:
            return self.get(key) == data
        except ObjectMissingError:
            return False

    def _create_unsafely(self, key: str, data: bytes) -> None:
        """The best that a store without conditional writes allows: two simultaneous callers may both succeed."""
        try:
            there = self.get(key)
        except ObjectMissingError:
            self.put(key, data)
            return
        if there != data:
            raise ObjectExistsError(f"{self._name(key)} already exists.")

    def _probe(self) -> bool:
        """Whether the second of two creates fails and leaves the first one's content."""
        key = f".holdfast-probe-{uuid.uuid4().hex}"
        try:
            self._try("create", key, lambda: self._put_new(key, b"first"))
        except ObjectExistsError:
            pass  # an earlier try of this call succeeded, and its reply was lost
        except StorageUnavailableError:
            raise
        except StorageError:
            return False  # the store says that it does not support this
        try:
            self._try("create", key, lambda: self._put_new(key, b"second"))
            return False
        except ObjectExistsError:
            return self.get(key) == b"first"
        finally:
            with contextlib.suppress(StorageError):
                self.delete([key])

    def _try(self, action: str, key: str, attempt: Callable[[], _T]) -> _T:
        name = self._name(key)
        return self._patience.run(attempt, lambda error: verdicts.judge(action, name, error))

    def _name(self, key: str) -> str:
        return f"{self._url.rstrip('/')}/{key}"
