"""Messages between an agent and its zygotes."""

from __future__ import annotations

from .message import Message


class Fork(Message, frozen=True, tag=True):
    """Comes with file descriptors: the worker's channel, its output, the payload, and the file for its stacks."""

    token: int
    adopts: bool = False  # the worker adopts the orphans of its children


class Preload(Message, frozen=True, tag=True):
    """Comes with a control socket: fork a zygote that imports these modules and then serves that socket."""

    modules: list[str]


class Forked(Message, frozen=True, tag=True):
    token: int
    pid: int


class NotForked(Message, frozen=True, tag=True):
    """The answer to one ``Fork`` if the system refuses further processes. The worker's output says why."""

    token: int


class Exited(Message, frozen=True, tag=True):
    pid: int
    status: int  # as from os.waitpid


class ProcessPaused(Message, frozen=True, tag="Paused"):
    pid: int
    stopped: bool


class Warm(Message, frozen=True, tag=True):
    """The zygote has imported the requested modules."""


TO_ZYGOTE = Fork | Preload
FROM_ZYGOTE = Forked | NotForked | Exited | ProcessPaused | Warm
