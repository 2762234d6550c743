"""How a worker uses the cluster, of which it is not a process itself: it asks a process of its node that is one. That
process listens in the directory of its session, where its workers find it and which no other user can read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError, ObjectLostError
from holdfast.objects.object_session import ObjectSession, ancestral_session

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from holdfast.objects.object_refs import ObjectRef

NAME = "door"
LOST = "lost"  # the answer to a request for batches of a dataset that must be split again
_found: tuple[int, Path | None] = (0, None)  # the process that looked, and the socket that it found


class SentByActor(NamedTuple):
    """An object that only the cluster's processes can use, pickled by the cluster's own pickle."""

    pickled: bytes


def path_in(session: ObjectSession) -> Path:
    return session.directory / NAME


def find() -> Path | None:
    """The socket of this worker's node; None if there is none, as on a single machine."""
    global _found
    if _found[0] != os.getpid():
        session = ancestral_session()
        path = path_in(session) if session is not None else None
        _found = os.getpid(), path if path is not None and path.is_socket() else None
    return _found[1]


def knock() -> Connection:
    """Open a new connection to the node's process."""
    path = find()
    if path is None:
        raise HoldfastError("this process is not a worker of a cluster's node")
    return knock_at(path)


def knock_at(path: Path) -> Connection:
    from multiprocessing.connection import Client

    return Client(str(path), family="AF_UNIX")


def ask(question: str, *arguments: Any) -> Any:
    """The answer of the node's process. If the answer is an error, it is raised."""
    with knock() as conversation:
        conversation.send((question, *arguments))
        answer = conversation.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


class ActorCarrier:
    """Carries calls of a worker to actors."""

    is_open = True

    def send(self, path: Path) -> Any:
        return ask("send", path)

    def fetch(self, ref: ObjectRef) -> Path:
        path: Path = ask("fetch", ref)
        return path

    def has(self, ref: ObjectRef) -> bool:
        try:
            self.fetch(ref)
        except ObjectLostError:
            return False
        return True

    def discard(self, ref: ObjectRef) -> None:
        ask("discard", ref)


def carrier() -> ActorCarrier | None:
    return ActorCarrier() if find() is not None else None
