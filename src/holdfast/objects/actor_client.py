"""How a worker asks the process that ties its node to a cluster, and is one with the cluster, which a worker is not.

That process opens a door in the directory of its session, where the workers below it find it, and nobody else may look.
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
LOST = "lost"  # the answer to who wants batches of a dataset that is to be split again
_found: tuple[int, Path | None] = (0, None)  # of which process, and what it found


class SentByActor(NamedTuple):
    """An object that only the cluster's processes can use, pickled by the cluster's own pickle."""

    pickled: bytes


def path_in(session: ObjectSession) -> Path:
    return session.directory / NAME


def find() -> Path | None:
    """The door of this worker's node; None where there is none, as on a single machine."""
    global _found
    if _found[0] != os.getpid():
        session = ancestral_session()
        path = path_in(session) if session is not None else None
        _found = os.getpid(), path if path is not None and path.is_socket() else None
    return _found[1]


def knock() -> Connection:
    """A conversation of its own with the node's process."""
    path = find()
    if path is None:
        raise HoldfastError("this process is not a worker of a cluster's node")
    return knock_at(path)


def knock_at(path: Path) -> Connection:
    from multiprocessing.connection import Client

    return Client(str(path), family="AF_UNIX")


def ask(question: str, *arguments: Any) -> Any:
    """What the node's process answers; an error that it answers with is raised."""
    with knock() as conversation:
        conversation.send((question, *arguments))
        answer = conversation.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


class ActorCarrier:
    """Of a worker."""

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
