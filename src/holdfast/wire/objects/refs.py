"""References to shared objects: small, and they can be pickled. What one refers to lives as long as its session.

``put`` and ``get`` go through a shelf. The local one keeps objects in files of this machine; an engine that spans
machines brings its own, under a kind of its own, in every process that is to use it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, overload

from holdfast.errors import ObjectLostError as ObjectLostError

from . import packing
from .session import ObjectSession, is_private, session_here

LOCAL = "local"


@dataclass(frozen=True, repr=False)
class ObjectRef:
    """What ``put`` returns. Two are equal if they refer to the same object."""

    session: str
    name: str
    kind: str = LOCAL
    place: str = field(default="", compare=False)  # where its shelf finds it
    handle: Any = field(default=None, compare=False)  # what a shelf of another kind needs besides

    def hex(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ObjectRef({self.name})"


class Shelf(Protocol):
    def put(self, value: Any) -> ObjectRef: ...

    def get(self, ref: ObjectRef) -> Any:
        """ObjectLostError if it is gone."""

    def has(self, ref: ObjectRef) -> bool: ...

    def discard(self, ref: ObjectRef) -> None:
        """Nobody will ask for it again."""

    def close(self) -> None:
        """Let go of what this process put, as far as it is this process's to do so."""


class LocalShelf:
    """Files of this machine, in the directory of a session that is opened with the first ``put``."""

    def __init__(self) -> None:
        self._session: ObjectSession | None = None
        self._pid = 0
        self._opening = threading.Lock()

    def session(self) -> ObjectSession:
        if self._pid != os.getpid():  # a fork: it looks anew for whom it belongs to
            self._session, self._pid, self._opening = None, os.getpid(), threading.Lock()
        with self._opening:
            if self._session is None or not self._session.is_open:
                self._session = session_here()
            return self._session

    def put(self, value: Any) -> ObjectRef:
        try:
            parts = packing.pack(value)
        except Exception as error:
            raise TypeError(f"put(): this {type(value).__name__} cannot be shared: {error}") from error
        session = self.session()
        path = session.write(parts)
        return ObjectRef(session.name, path.name, LOCAL, str(path.parent))

    def get(self, ref: ObjectRef) -> Any:
        try:
            fd = os.open(self._path(ref), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _lost(ref) from error
        try:
            return packing.unpack(fd)
        finally:
            os.close(fd)

    def has(self, ref: ObjectRef) -> bool:
        try:
            return self._path(ref).exists()
        except ObjectLostError:
            return False

    def find(self, session: str, name: str) -> ObjectRef:
        """The reference to an object of the session that is open here; of any other session it is lost."""
        place = self._session.find(name) if self._session is not None and self._session.name == session else None
        ref = ObjectRef(session, name, LOCAL, str(place.parent) if place else "")
        if place is None:
            raise _lost(ref)
        return ref

    def discard(self, ref: ObjectRef) -> None:
        with contextlib.suppress(OSError, ObjectLostError):
            self._path(ref).unlink()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _path(self, ref: ObjectRef) -> Path:
        directory = Path(ref.place)
        if not is_private(directory) or not is_private(directory.parent):
            raise _lost(ref)
        return directory / ref.name


local = LocalShelf()
_shelves: dict[str, Shelf] = {LOCAL: local}
_in_use = LOCAL


def add_shelf(kind: str, shelf: Shelf) -> None:
    """Let references of this kind be read in this process."""
    _shelves[kind] = shelf


def use_shelf(kind: str) -> str:
    """Let ``put`` use this kind from now on; the kind before is returned."""
    global _in_use
    if kind not in _shelves:
        raise ValueError(f"there is no shelf of the kind {kind!r}; there are {', '.join(sorted(_shelves))}")
    before, _in_use = _in_use, kind
    return before


def put(value: Any) -> ObjectRef:
    """Keep an object where all processes of this session can have it with ``get``. It is pickled once; the memory of
    numpy arrays and torch tensors in it is written once, and shared by all who get it."""
    if isinstance(value, ObjectRef):
        raise TypeError(
            f"put({value!r}): it is a reference already; pass the reference on, or put a list of references"
        )
    return _shelves[_in_use].put(value)


@overload
def get(object_refs: ObjectRef, *, timeout: float | None = None) -> Any: ...


@overload
def get(object_refs: Sequence[ObjectRef], *, timeout: float | None = None) -> list[Any]: ...


def get(object_refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | None = None) -> Any:
    """The object of a reference, or a list of those of several. Arrays in it are read-only, as they are shared: copy
    one to change it. Tensors can be changed, and nobody else sees it. ``timeout`` is not needed: what there is a
    reference to is there, or is lost."""
    if isinstance(object_refs, (list, tuple)):
        return [get(ref, timeout=timeout) for ref in object_refs]
    if not isinstance(object_refs, ObjectRef):
        raise TypeError(f"get({object_refs!r:.200}): pass what holdfast.put() returned, or a list of such references")
    return _shelf_of(object_refs).get(object_refs)


def open_session() -> str:
    """Begin the session before workers start, so that what they put outlives them; its name is returned."""
    return local.session().name


def exists(ref: ObjectRef) -> bool:
    """Whether ``get`` would find it."""
    return ref.kind in _shelves and _shelves[ref.kind].has(ref)


def discard(ref: ObjectRef) -> None:
    """Let go of an object before its session ends. Where it is mapped it stays usable."""
    if ref.kind in _shelves:
        _shelves[ref.kind].discard(ref)


def close() -> None:
    """End the session, if it is this process's own: its objects are gone. The next ``put`` begins another."""
    for shelf in _shelves.values():
        shelf.close()


def _shelf_of(ref: ObjectRef) -> Shelf:
    if ref.kind not in _shelves:
        raise ObjectLostError(f"{ref!r} is of the engine {ref.kind!r}, and this process is not connected to one")
    return _shelves[ref.kind]


def _lost(ref: ObjectRef) -> ObjectLostError:
    return ObjectLostError(
        f"the object {ref.name} is lost: the session {ref.session} that put it has ended, or runs on another machine. "
        "Put the object again with holdfast.put(); to restore an experiment whose param_space has references, pass it "
        "again with new ones: Tuner.restore(path, trainable, param_space=...)"
    )
