"""Every error that Holdfast raises: one base, each picklable, each message names the remedy.

A wrong argument is a plain ``ValueError`` or ``TypeError``; the errors here are those that a run can meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.printable import encodable, printable_lines

_MOST_WORDS = 20_000  # characters


def message_of(error: BaseException) -> str:
    """The message of an exception. Its class may be the user's, and its message may raise or be far too long."""
    try:
        text = str.__str__(str(error))
    except (Exception, SystemExit):
        return "(its message cannot be shown)"
    if len(text) > _MOST_WORDS:
        text = f"{text[:_MOST_WORDS]}… ({len(text) - _MOST_WORDS:,} more characters)"
    return encodable(text)


class HoldfastError(Exception):
    """The base class of all Holdfast errors. Its text is always safe to print on a terminal."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class RunInUseError(HoldfastError):
    """Another driver holds the run's lease, or has taken the run over from this one."""


class StorageError(HoldfastError):
    """Storage could not carry out an operation: there is no space or no permission, or the run is unreadable."""


class StorageFullError(StorageError):
    """The run's storage is full. Committed checkpoints are safe."""


class CheckpointDamagedError(StorageError):
    """The files of a checkpoint do not match its manifest."""


class StorageUnavailableError(StorageError):
    """Storage was unreachable for longer than the retry limit. Pending checkpoints are safe."""


class StorageDeniedError(StorageUnavailableError):
    """Storage denied access: wrong or expired credentials, no permission, or no such bucket."""


class ObjectMissingError(StorageError):
    """No object has this name."""


class ObjectExistsError(StorageError):
    """An object of this name already exists."""


class NewerFormatError(HoldfastError):
    """A newer version of Holdfast wrote the stored data. Nothing was changed. Upgrade Holdfast.

    This is not a ``StorageError``: nothing is damaged or missing, so nothing has to be restored from a copy.
    """


class NotARunError(StorageError, RuntimeError):
    """The path is not a Holdfast run."""


class TrainingFailedError(HoldfastError):
    """``trainer.fit()`` could not finish the run. Its subclasses say why."""


class WorkerGroupError(TrainingFailedError):
    """Training workers failed, and the failure budget is used up.

    ``worker_failures`` maps the rank of each failed worker to its exception. If the worker raised none, the exception
    describes how the process exited.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self.error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message, self.worker_failures)


def with_type_of_cause(error: WorkerGroupError) -> WorkerGroupError:
    """The same error, with the type of the exception that was raised first as an additional base: ``except ValueError``
    catches it. The unchanged error if such a class is impossible."""
    cause = next(iter(error.worker_failures.values()))
    error.__cause__ = cause
    if isinstance(cause, HoldfastError):
        return error
    own = {"__str__": lambda self: self.error_message, "__reduce__": lambda _self: (with_type_of_cause, (error,))}
    kind: Any
    try:
        kind = type(type(cause).__name__, (WorkerGroupError, type(cause)), own)
        made: WorkerGroupError = kind.__new__(kind, error.error_message)
    except TypeError:
        return error
    made.__dict__.update({**cause.__dict__, **error.__dict__})
    made.args, made.__cause__ = (error.error_message,), cause
    return made


class NCCLHangError(WorkerGroupError):
    """Exists for ``except`` clauses of scripts written for Ray. Holdfast reports a hang as a ``WorkerGroupError`` with
    the stacks of all ranks.
    """


class ControllerError(TrainingFailedError):
    """The driver itself could not continue, because of storage, a user's callback, or an engine that did not start."""

    def __init__(self, controller_failure: Exception, remedy: str = "") -> None:
        parts = [f"The driver could not continue: {message_of(controller_failure)}", remedy]
        super().__init__("\n".join(part for part in parts if part))
        self.controller_failure = controller_failure
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.controller_failure, self.remedy)


@dataclass(frozen=True)
class PreemptionInfo:
    """Nodes that are about to be preempted.

    ``deadline_ms`` is the earliest deadline in UNIX milliseconds, None when the notice named none.
    ``preempted_node_to_ranks`` maps each such node to the world ranks that run on it.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The nodes that will be preempted."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The world ranks that run on them."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})


class PreemptionError(TrainingFailedError):
    """Nodes were preempted more often than ``FailureConfig(max_preemption_failures)`` allows. ``drain_timed_out`` says
    that no checkpoint was saved between the last notice and its deadline.
    """

    def __init__(self, preemption_info: Any, drain_timed_out: bool = False) -> None:
        super().__init__(f"Training was preempted ({preemption_info}; drain_timed_out={drain_timed_out})")
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out
        self.remedy = ""

    def __str__(self) -> str:
        return "\n".join(part for part in (super().__str__(), self.remedy) if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out), {"remedy": self.remedy}


class TuneError(HoldfastError):
    """An experiment cannot continue as requested."""


class TrainableError(TuneError, TypeError, ValueError):
    """The value passed as a trainable is not one, or no trainable is registered under that name."""


class SchedulerError(TuneError, ValueError):
    """A required argument of a scheduler is missing."""


class NoExperimentError(NotARunError, FileNotFoundError, ValueError):
    """There is no experiment to restore or to read. It is also an ``OSError`` and a ``ValueError``, which scripts
    written for Ray catch.
    """


class WorkerDiedError(HoldfastError):
    """A training process ended without returning: it was killed by a signal, exited, or hung."""


class CollectiveError(HoldfastError):
    """A barrier or broadcast can never complete, because a rank that it waits for has already returned."""


class PeerLostError(HoldfastError, RuntimeError):
    """A collective cannot complete, because another rank is lost. A ``recoverable`` step is repeated when that rank has
    been replaced. Elsewhere the attempt ends.
    """


class DataError(HoldfastError):
    """Rows of a dataset could not be read or computed. The text names the file and the rows."""


class ObjectLostError(HoldfastError):
    """The referenced object no longer exists. An object lives as long as the session that put it."""
