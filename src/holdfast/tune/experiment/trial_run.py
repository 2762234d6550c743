"""A running trial: a run like any other, with its own driver, which the experiment's loop drives."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.core.experiment.trial import Trial
from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome
from holdfast.driver.display import OffDisplay
from holdfast.driver.plan import Ending, Plan
from holdfast.engine.engine_interface import Inbox
from holdfast.errors import message_of

from .capacity import Shares
from .listeners import Listeners
from .trial_runtime import SharedByTrials, TrialRuntime
from .trial_storage import TrialHistory


class ForTrial(NamedTuple):
    """Something in the experiment's inbox that is a trial's."""

    run: TrialRun
    item: Any


class Said(NamedTuple):
    """A report of a trial, whose checkpoint, if it has one, is safe."""

    iteration: int
    metrics: dict[str, Any]
    checkpoint: str | None


class _Inbox(queue.SimpleQueue[Any]):
    """Messages put into this inbox arrive in the experiment's inbox, marked with the trial. Before the driver has
    started they stay here, and the driver reads them first."""

    shared: Inbox
    run: TrialRun
    is_open = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if self.is_open:
            self.shared.put(ForTrial(self.run, item))
        else:
            super().put(item)


class _Display(OffDisplay):
    """Messages about a trial for a person go to the experiment's display."""

    def __init__(
        self, name: str, listeners: Listeners, attempt: Callable[[int], None], retry: Callable[[], None] | None
    ) -> None:
        self._name, self._listeners, self._attempt, self._retry = name, listeners, attempt, retry

    def attempt(
        self, attempt_number: int, world_size: int, joined: Sequence[str] = (), left: Sequence[str] = ()
    ) -> None:
        self._attempt(attempt_number)

    def failure(self, text: str, action: str, rank: int = -1) -> None:
        if not action.startswith("no retry"):  # otherwise the trial has failed, which is reported with the whole error
            self._listeners.warn(f"{self._name}: {text}{f'; {action}' if action else ''}")
            if self._retry is not None:
                self._retry()

    def warning(self, text: str) -> None:
        self._listeners.warn(f"{self._name}: {text}")

    def output(self, rank: int, line: str) -> None:
        self._listeners.output(self._name, rank, line)


class TrialRun:
    """``said`` collects reports when they are safe. ``ending`` is set when the run has ended; ``is_gone`` when all its
    processes have exited and its resources are free."""

    def __init__(
        self,
        trial: Trial,
        plan: Plan,
        shares: Shares,
        history: TrialHistory,
        shared: SharedByTrials,
        runtime: TrialRuntime,
        retry: Callable[[], None] | None = None,
    ) -> None:
        self.trial_id = trial.trial_id
        self._heard = trial.heard  # the number of the last report that the experiment knows
        history.deliver = lambda then: self.take_in([then])
        self.ending: Ending | None = None
        self.error: Exception | None = None  # of the driver itself
        self.is_gone = False
        self.said: list[Said] = []
        self._attempt_number = 0
        self._told: tuple[int, int] | None = None  # the attempt, and up to which report it may continue
        self._uploads, self._lockstep = plan.spec.files.are_uploaded, plan.lockstep
        inbox = _Inbox()
        inbox.shared, inbox.run = shared.inbox, self
        self._inbox = inbox
        self.engine = shared.nodes.engine_for(shares, self._session_is_closed)
        plan = replace(plan, on_report=self._reported)
        display = _Display(trial.name, shared.listeners, self._begin_attempt, retry)
        self._driver = runtime.driver_of(plan, self.engine, inbox, history, display)

    @property
    def is_over(self) -> bool:
        return self.ending is not None or self.error is not None

    @property
    def was_stopped(self) -> bool:
        return self.ending is not None and self.ending.outcome is Outcome.STOPPED

    @property
    def exception(self) -> Exception | None:
        return self.error or (self.ending.error if self.ending is not None else None)

    def failure(self) -> str:
        """Why it failed; empty if it did not."""
        error = self.exception
        return "" if error is None else message_of(error) or type(error).__name__

    def due(self) -> float:
        return self._driver.due() if not self.is_over else float("inf")

    def start(self) -> None:
        try:
            self._driver.open()
            self._driver.start()
        except Exception as error:
            self._failed(error)
        self._inbox.is_open = True
        while not self._inbox.empty():
            self.take_in([self._inbox.get()])

    def take_in(self, items: list[Any]) -> None:
        if self.is_over:
            for item in items:
                if callable(item):
                    item()
            return
        try:
            self._driver.take_in(items)
            if self._driver.is_over:
                self.ending = self._driver.ending()
                self._close()
        except Exception as error:
            self._failed(error)

    def abandon(self) -> None:
        """The experiment's driver has failed, and all processes have been ended: the next one continues the trial."""
        self._driver.close()
        self._driver.release()

    def on_time(self, now: float) -> None:
        if self.due() <= now:
            self.take_in([])

    def stop(self, at_once: bool = False) -> None:
        self._inbox.put(ev.StopAsked(at_once, 0.0))

    def go_on(self, until: int) -> None:
        """In lockstep: its workers may continue after all reports up to this one."""
        if not self._lockstep or (self._attempt_number, until) == self._told:
            return
        self._driver.let_go_on(until)
        if self._driver.state.attempt_number == self._attempt_number:  # else its workers are yet to be started
            self._told = self._attempt_number, until

    def save(self) -> None:
        """The next report of a class trainable must have a checkpoint."""
        if not self.is_over:
            self._driver.let_go_on(0, save=True)

    def _begin_attempt(self, attempt_number: int) -> None:
        """A new attempt, which does not know yet how far it may continue."""
        self._attempt_number = attempt_number

    def _reported(self, iteration: int, metrics: list[dict[str, Any]], checkpoint: str | None) -> None:
        is_late = self._attempt_number == 0  # an earlier driver's attempt made it
        if is_late and iteration <= self._heard:
            return
        self.said.append(Said(iteration, metrics[0], checkpoint))

    def _failed(self, error: Exception) -> None:
        self.error = self._driver.failed(error)
        self._close()
        if not self.engine.is_open:
            self.engine.give_up()

    def _close(self) -> None:
        if self._uploads:
            self._driver.close_session()  # not immediately: nodes are still uploading their last log lines
        else:
            self._driver.close()
            self._driver.release()

    def _session_is_closed(self) -> None:
        if self._uploads:
            # Slow uploads must not delay the other trials
            threading.Thread(target=self._finish, name=f"holdfast-close-{self.trial_id}", daemon=True).start()
        else:
            self._left()

    def _finish(self) -> None:
        try:
            self._driver.close()
            self._driver.release()
        finally:
            self._inbox.put(self._left)

    def _left(self) -> None:
        self.is_gone = True
