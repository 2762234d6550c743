"""Failures in words for a person: the first failing rank, what happened, its last lines, and the reaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cloudpickle

from holdfast.core.budgets import action_taken
from holdfast.core.failures import Evidence, FailureKind, describe
from holdfast.core.run.ranks import in_words
from holdfast.core.run.state import Durable, Failure
from holdfast.errors import (
    ControllerError,
    PreemptionError,
    PreemptionInfo,
    StorageError,
    TrainingFailedError,
    WorkerDiedError,
    WorkerGroupError,
    message_of,
)
from holdfast.wire.messages import WorkerHasFailed
from holdfast.wire.worker_messages import Notice

_SHOWN_LINES = 20
_SAID = 120  # characters shown of a rank that failed later


def evidence_of(message: WorkerHasFailed) -> Evidence:
    raised = message.raised
    return Evidence(
        exception=raised.kind if raised else "",
        message=raised.message if raised else "",
        exit_code=message.exit_code,
        signal=message.signal,
        started=message.started,
        oom_killed=message.oom_killed,
        out_of_memory=raised.out_of_memory if raised else False,
    )


@dataclass
class Accounts:
    """The failures of the current attempt, in the order in which the driver heard of them."""

    log_address: Callable[[int, int], str]  # of an attempt and a rank
    attempt_number: int = 0

    def __post_init__(self) -> None:
        self._seen: dict[int, tuple[Exception, str]] = {}

    def begin(self, attempt_number: int) -> None:
        self.attempt_number = attempt_number
        self._seen = {}

    def add(self, message: WorkerHasFailed) -> None:
        if message.attempt_number == self.attempt_number and message.rank not in self._seen:
            self._seen[message.rank] = (self._exception(message), self._detail(message))

    def exceptions(self) -> dict[int, Exception]:
        return {rank: exception for rank, (exception, _) in self._seen.items()}

    def _exception(self, message: WorkerHasFailed) -> Exception:
        if message.raised is not None:
            try:
                error = cloudpickle.loads(message.raised.body)
                if isinstance(error, Exception):
                    return error
            except Exception:
                pass
            return RuntimeError(f"{message.raised.kind}: {message.raised.message}")
        return WorkerDiedError(describe(message.rank, evidence_of(message)))

    def _detail(self, message: WorkerHasFailed) -> str:
        log = self.log_address(message.attempt_number, message.rank)
        if message.raised is not None:
            return f"{message.raised.traceback.rstrip()}\n(full output: {log})"
        lines = [f"  {line}" for line in message.last_lines[-_SHOWN_LINES:]]
        shown = "\n".join(["Its last lines:", *lines]) if lines else "It printed nothing."
        return f"{shown}\n(full output: {log})"

    def error(self, state: Durable, how_to_resume: str, notice: Notice | None) -> TrainingFailedError:
        failure = state.failure
        assert failure is not None
        action = action_taken(state)
        saved = f"resume from {state.newest.id}" if state.newest else "start over, as there is no checkpoint"
        remedy = f"{action[:1].upper()}{action[1:]}. Fix the cause. To {saved}, {how_to_resume}"
        if failure.kind is FailureKind.STORAGE:
            return ControllerError(StorageError(f"{failure.text}\n{remedy}"))
        if failure.kind is FailureKind.PREEMPTED:
            return _preemption_error(failure, notice, remedy)
        detail = self._seen[failure.rank][1] if failure.rank in self._seen else ""
        parts = [f"{failure.text} [{failure.kind.value}]", detail, self._of_others(failure.rank), remedy]
        failures = self.exceptions() or {failure.rank: WorkerDiedError(failure.text)}
        if failure.rank not in failures:
            failures = {failure.rank: WorkerDiedError(failure.text), **failures}
        return WorkerGroupError("\n".join(part for part in parts if part), failures)

    def _of_others(self, first: int) -> str:
        """Ranks that failed because of the first, in one line."""
        others = {rank: error for rank, (error, _) in self._seen.items() if rank != first}
        if not others:
            return ""
        rank, error = next(iter(others.items()))
        said = f"{type(error).__name__}: {message_of(error)}".partition("\n")[0]
        said = said if len(said) <= _SAID else f"{said[:_SAID]}…"
        where = self.log_address(self.attempt_number, rank).rpartition("/")[0]
        which = "" if len(others) == 1 else f"rank {rank}: "
        return (
            f"Then {in_words(others)} failed too ({which}{said}). "
            f"{'Its' if len(others) == 1 else 'Their'} output: {where}"
        )


def _preemption_error(failure: Failure, notice: Notice | None, remedy: str) -> PreemptionError:
    info = PreemptionInfo(notice.deadline_ms, dict(notice.nodes)) if notice else PreemptionInfo(None, {})
    error = PreemptionError(info, drain_timed_out=failure.rank >= 0)  # -1: the whole attempt had been handed over
    error.remedy = f"{failure.text} [{failure.kind.value}]\n{remedy}"
    return error
