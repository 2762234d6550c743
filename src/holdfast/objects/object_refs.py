"""References to shared objects. They are small and can be pickled. An object exists as long as its session.

An object is a file on the machine on which it was put. If an engine spans machines, a carrier copies it to others: a
pickled reference gets a handle by which any machine of the cluster can fetch the object, once.
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
from holdfast.objects import actor_client, packing
from holdfast.objects.object_session import ObjectSession, session_here
from holdfast.private_dirs import is_private


@dataclass(frozen=True, repr=False)
class ObjectRef:
    """What ``put`` returns. Two are equal if they refer to the same object."""

    session: str
    name: str
    place: str = field(default="", compare=False)  # its directory, on the machine where it was put
    handle: Any = field(default=None, compare=False)  # with this, a carrier fetches it

    def hex(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"ObjectRef({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectRef, (self.session, self.name, self.place, self.handle or _handle_of(self))

    def __deepcopy__(self, _known: Any) -> ObjectRef:
        return self  # a copy inside a process needs no handle


class Carrier(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether this process can use it. A fork cannot, nor can a process that has left the cluster."""

    def send(self, path: Path) -> Any:
        """Share the object in this file. Returns the handle with which others fetch it."""

    def fetch(self, ref: ObjectRef) -> Path:
        """The file of the object on this machine. ObjectLostError if the object is lost."""

    def has(self, ref: ObjectRef) -> bool:
        """Whether the object can be fetched, as far as is known without fetching it."""

    def discard(self, ref: ObjectRef) -> None:
        """Drop the object: nothing will fetch it any more."""


class LocalShelf:
    """Files of this machine, in the directory of a session that is opened with the first ``put``."""

    def __init__(self) -> None:
        self._session: ObjectSession | None = None
        self._pid = 0
        self._opening = threading.Lock()

    def session(self) -> ObjectSession:
        if self._pid != os.getpid():  # a fork must look for its session again
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
        return ObjectRef(session.name, path.name, str(path.parent))

    def get(self, ref: ObjectRef) -> Any:
        carrier = _carrier() if ref.handle is not None else None
        path = path_of(ref) if carrier is None else carrier.fetch(ref)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise lost(ref) from error
        try:
            return packing.unpack(fd)
        finally:
            os.close(fd)

    def has(self, ref: ObjectRef) -> bool:
        carrier = _carrier() if ref.handle is not None else None
        try:
            return path_of(ref).exists() if carrier is None else carrier.has(ref)
        except ObjectLostError:
            return False

    def find(self, session: str, name: str) -> ObjectRef:
        """A reference to an object of the session that is open here. An object of any other session is lost."""
        place = self._session.find(name) if self._session is not None and self._session.name == session else None
        ref = ObjectRef(session, name, str(place.parent) if place else "")
        if place is None:
            raise lost(ref)
        return ref

    def discard(self, ref: ObjectRef) -> None:
        carrier = _carrier()
        if carrier is not None:
            carrier.discard(ref)
        with contextlib.suppress(OSError, ObjectLostError):
            path_of(ref).unlink()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


local = LocalShelf()
_own_carrier: Carrier | None = None


def use_carrier(carrier: Carrier | None) -> None:
    """Call this in a process of the cluster. Workers find their node's carrier themselves."""
    global _own_carrier
    _own_carrier = carrier


def own_carrier() -> Carrier | None:
    return _own_carrier


def _carrier() -> Carrier | None:
    return _own_carrier if _own_carrier is not None and _own_carrier.is_open else actor_client.carrier()


def _handle_of(ref: ObjectRef) -> Any:
    carrier = _carrier()
    if carrier is None:
        return None
    with contextlib.suppress(OSError, ObjectLostError):
        return carrier.send(path_of(ref))
    return None  # get() of this reference then says that the object is lost


def path_of(ref: ObjectRef) -> Path:
    """The object's file, on the machine where it was put."""
    directory = Path(ref.place)
    if not is_private(directory) or not is_private(directory.parent):
        raise lost(ref)
    return directory / ref.name


def put(value: Any) -> ObjectRef:
    """Store an object so that all processes of this session can ``get`` it.

    It is pickled once. The memory of numpy arrays and torch tensors in it is written once, and is shared by all
    processes on a machine that get it.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(f"put({value!r}): it is already a reference. Pass it on, or put a list of references")
    return local.put(value)


@overload
def get(object_refs: ObjectRef, *, timeout: float | None = None) -> Any: ...


@overload
def get(object_refs: Sequence[ObjectRef], *, timeout: float | None = None) -> list[Any]: ...


def get(object_refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | None = None) -> Any:
    """Return the object of a reference, or a list of the objects of several references.

    Arrays in it are read-only, because they are shared: copy one to change it. Changes to tensors are private to this
    process. ``timeout`` has no effect: an object exists or is lost.
    """
    if isinstance(object_refs, (list, tuple)):
        return [get(ref, timeout=timeout) for ref in object_refs]
    if not isinstance(object_refs, ObjectRef):
        raise TypeError(f"get({object_refs!r:.200}): pass what holdfast.put() returned, or a list of such references")
    return local.get(object_refs)


def open_session() -> str:
    """Open the session before workers start, so that their objects outlive them. Returns the session's name."""
    return local.session().name


def exists(ref: ObjectRef) -> bool:
    """Whether ``get`` would find the object."""
    return local.has(ref)


def discard(ref: ObjectRef) -> None:
    """Release an object before its session ends. Existing mappings stay usable."""
    local.discard(ref)


def close() -> None:
    """End the session and remove its objects, if it belongs to this process. The next ``put`` opens another session."""
    local.close()


def lost(ref: ObjectRef) -> ObjectLostError:
    return ObjectLostError(
        f"the object {ref.name} is lost: the session {ref.session} that put it has ended, or runs on another machine. "
        "Put the object again with holdfast.put(); to restore an experiment whose param_space has references, pass it "
        "again with new ones: Tuner.restore(path, trainable, param_space=...)"
    )
