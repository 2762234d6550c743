"""The messages about tasks: callables that run beside the workers, such as validations."""

from __future__ import annotations

from .message import Message


class RunTask(Message, frozen=True, tag=True):
    """Run a callable in a separate process, beside the workers."""

    task: str
    payload: bytes
    timeout_s: float | None


class TaskDone(Message, frozen=True, tag=True):
    task: str
    body: bytes
    error: str = ""
    timed_out: bool = False
    crashed: bool = False  # its process died or could not be started, so the callable neither returned nor raised
