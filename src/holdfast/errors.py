"""Every error that Holdfast raises: one base, each picklable, each message names the remedy.

A user's mistake in an argument is a plain ``ValueError`` or ``TypeError``; what is here is what a run can meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.printable import encodable, printable_lines

_MOST_WORDS = 20_000  # characters


def message_of(error: BaseException) -> str:
    """What an exception says. Its class may be the user's, and may raise when it is asked, or say far too much."""
    try:
        text = str.__str__(str(error))
    except (Exception, SystemExit):
        return "(its message cannot be shown)"
    if len(text) > _MOST_WORDS:
        text = f"{text[:_MOST_WORDS]}… ({len(text) - _MOST_WORDS:,} more characters)"
    return encodable(text)


class HoldfastError(Exception):
    """The base of all of Holdfast's own errors. Their text is always safe to print on a terminal."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class RunInUseError(HoldfastError):
    """Another living driver holds the run's lease, or has taken the run over from this one."""


class StorageError(HoldfastError):
    """The store could not do what was asked: no space, no permission, an unreadable run."""


class StorageFullError(StorageError):
    """No space is left where the run is stored. Nothing that was committed is hurt."""


class CheckpointDamagedError(StorageError):
    """A checkpoint's files are not the ones that its manifest describes."""


class StorageUnavailableError(StorageError):
    """The store did not answer, or refused, until the patience for it was over. Nothing that was staged is lost."""


class StorageDeniedError(StorageUnavailableError):
    """The store refuses this user: wrong or expired credentials, no permission, no such bucket."""


class ObjectMissingError(StorageError):
    """There is no object of that name."""


class ObjectExistsError(StorageError):
    """An object that was to be created already exists."""


class NewerFormatError(HoldfastError):
    """A newer version of Holdfast wrote the stored data. Nothing was changed. Upgrade Holdfast.

    Not a ``StorageError``: nothing is damaged or missing, so nothing needs to be set aside or restored from a copy.
    """


class NotARunError(StorageError, RuntimeError):
    """The path holds no run of Holdfast."""


class TrainingFailedError(HoldfastError):
    """``trainer.fit()`` could not finish the run. Its subclasses say why."""


class WorkerGroupError(TrainingFailedError):
    """Training workers failed, and the budget for that is spent.

    ``worker_failures`` maps the rank of each failed worker to the exception that it raised or that describes its end.
    """

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(error_message)
        self.error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message, self.worker_failures)


def with_type_of_cause(error: WorkerGroupError) -> WorkerGroupError:
    """The same error, which is also of the type of the exception that was raised first: ``except ValueError`` finds it.
    The error as it is if there can be no such class."""
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
    """For ``except`` clauses of scripts from Ray. Here a hang is a ``WorkerGroupError`` with all ranks' stacks."""


class ControllerError(TrainingFailedError):
    """The driver itself could not continue: storage, a user's callback, an engine that cannot start."""

    def __init__(self, controller_failure: Exception, remedy: str = "") -> None:
        parts = [f"The driver could not continue: {message_of(controller_failure)}", remedy]
        super().__init__("\n".join(part for part in parts if part))
        self.controller_failure = controller_failure
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.controller_failure, self.remedy)


@dataclass(frozen=True)
class PreemptionInfo:
    """Nodes that are about to be taken away.

    ``deadline_ms`` is the earliest deadline in UNIX milliseconds, None when the notice named none.
    ``preempted_node_to_ranks`` maps each such node to the world ranks that run on it.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The nodes that will go."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The world ranks that run on them."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})


class PreemptionError(TrainingFailedError):
    """Nodes were preempted more often than ``FailureConfig(max_preemption_failures)`` allows. ``drain_timed_out``: no
    checkpoint came between the last notice and its deadline."""

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
    """An experiment cannot continue as it was asked to."""


class TrainableError(TuneError, TypeError, ValueError):
    """What was given as a trainable is none, or no trainable has that name."""


class SchedulerError(TuneError, ValueError):
    """A scheduler was made without what it needs."""


class NoExperimentError(NotARunError, FileNotFoundError, ValueError):
    """There is no experiment to restore or to read. Scripts that moved from Ray catch an ``OSError`` or a
    ``ValueError``."""


class WorkerDiedError(HoldfastError):
    """A training process ended without returning: a signal, an exit code, a hang."""


class CollectiveError(HoldfastError):
    """A barrier or broadcast can never complete, because a rank that it waits for has returned."""


class PeerLostError(HoldfastError, RuntimeError):
    """A collective cannot complete, because another rank is lost. A step that is ``recoverable`` is done again when
    that rank is replaced; elsewhere the attempt ends."""


class DataError(HoldfastError):
    """Rows of a dataset could not be read or computed. The text names the file and the rows."""


class ObjectLostError(HoldfastError):
    """What a reference refers to is gone: it lives as long as the session that put it."""
