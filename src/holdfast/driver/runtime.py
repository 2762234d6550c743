"""The driver's loop: it passes inputs to the kernel and carries out the effects that the kernel returns. It decides
nothing. Messages of agents, the storage thread, signals and timers all arrive in one inbox.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import signal
import time
from collections.abc import Iterable
from typing import Any

import cloudpickle
import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run.observer import Nobody, Observer
from holdfast.core.run.state import Outcome, RunState
from holdfast.engine.agent_link import FENCE_MARGIN_S
from holdfast.engine.engine_interface import Engine, Inbox
from holdfast.errors import ControllerError, NotARunError, StorageError, message_of
from holdfast.platform import interrupt, open_files
from holdfast.runs.comparison import changes_text
from holdfast.runs.experiments import is_experiment
from holdfast.runs.past import IDENTITY, Past, read_past
from holdfast.runs.stored_run import closing_account
from holdfast.settings import Settings
from holdfast.store.runfile import id_of

from . import effects as fx
from .configuration import configuration, configured_for
from .display import Display, OffDisplay
from .executor import Executor
from .kernel import Kernel
from .plan import Ending, Plan
from .showing import closing_words
from .site import Site
from .storage import Storage
from .storage_place import storage_at

log = logging.getLogger(__name__)
_BATCH = 1000


class Driver:
    """``run`` drives a run to its end. To drive several runs, call ``open`` and ``start``, then ``take_in`` for each
    item of the inbox and whenever something is ``due``, until it ``is_over``, then ``ending`` and ``close``."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        settings: Settings,
        *,
        inbox: Inbox | None = None,
        storage: Storage | None = None,
        display: Display | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._plan, self._engine, self._settings = plan, engine, settings
        self._inbox: Inbox = queue.SimpleQueue() if inbox is None else inbox
        self._storage = storage or storage_at(plan.location, self._inbox, settings, plan.score_attribute)
        self._configuration = configuration(plan, settings, self._storage.node_address())
        self._display = display or OffDisplay()
        self._executor = Executor(plan, self._storage, self._display, observer or Nobody())
        self._kernel: Kernel | None = None  # until the run has been taken over from an earlier driver
        self._past = Past()
        self._is_busy = False
        self._signal: int | None = None

    def run(self) -> Ending:
        """Run to the end. A killed driver's run resumes where its journal and checkpoints leave it."""
        self._epoch = self._storage.acquire()
        try:
            try:
                self._open()
            except BaseException:
                with contextlib.suppress(StorageError, OSError):
                    self._storage.close(all_stored=False)
                raise
            with interrupt.handled(self.ask_to_stop):
                return self._until_the_end()
        finally:
            self.release()

    def open(self) -> None:
        """Take the run over from an earlier driver."""
        self._epoch = self._storage.acquire()
        self._open()

    def _open(self) -> None:
        plan, storage = self._plan, self._storage
        records, damage = storage.open()
        try:
            past = self._past = read_past(records)
        except msgspec.ValidationError as error:
            raise StorageError(
                f"This version of Holdfast cannot read the journal of {plan.location} ({error}). "
                "Upgrade Holdfast: pip install --upgrade holdfast"
            ) from error
        self._known_as = self._known_identity()
        if is_experiment(self._known_as or past.identity or {}):
            raise NotARunError(
                f"{plan.location} is an experiment, not a training run. Choose another RunConfig(name=...)."
            )
        self._identity = {**plan.identity, "id": id_of(self._known_as, past.identity)}
        storage.settle(self._identity["id"])
        found, more_damage = storage.take_stock(past)
        self._warnings = [f"{d.path} is damaged ({d.where}): {d.what}" for d in [*damage, *more_damage]]
        self._warnings += _of_earlier_work(plan.name, past, self._changed_settings())
        self._kernel = Kernel(plan, self._site(), past, self._epoch, found)

    def _site(self) -> Site:
        storage, engine = self._storage, self._engine
        return Site(
            engine.grows,
            engine.is_this_machine,
            storage.run_dir,
            storage.log_address,
            storage.report_logs_here(engine.is_this_machine),
            self._configuration.node_timeout_s + FENCE_MARGIN_S,
            self._settings.staging_limit_gb,
        )

    def _until_the_end(self) -> Ending:
        plan, display = self._plan, self._display
        display.start(plan.name, str(plan.location), None)
        outcome, text = "failed", ""
        try:
            self.start()
            while not self.is_over:
                self.take_in(self._wait())
            ending = self.ending()
            outcome = ending.outcome.value
            words = closing_words(plan, self.state, ending, had_finished=_had_finished(self._past))
            text = "\n".join(filter(None, (words, self._account())))
            return ending
        except Exception as error:
            cause = self._storage.cause_of(error)
            text = f"the driver could not continue: {message_of(cause)}"
            raise self.failed(cause) from error
        finally:
            self.close()
            display.finish(outcome, text)

    def start(self) -> None:
        """Request nodes. The core starts when they have joined."""
        for warning in self._warnings:
            self._executor.warn(warning)
        self._identify()
        configuration = configured_for(self._configuration, self._storage)
        self._executor.session = self._engine.open(configuration, self._inbox)
        self.take_in([fx.Begin()])
        self.take_in([*self._heard(), fx.NodesAnnounced()])

    @property
    def kernel(self) -> Kernel:
        assert self._kernel is not None, "the run is not open"
        return self._kernel

    @property
    def is_over(self) -> bool:
        return self._kernel is not None and self._kernel.finish is not None

    @property
    def state(self) -> RunState:
        return self.kernel.state

    def due(self) -> float:
        """When ``take_in`` is to be called even if nothing has come in; by the monotonic clock, endless for never."""
        return self._kernel.due() if self._kernel is not None else math.inf

    def let_go_on(self, report: int, save: bool = False) -> None:
        """In lockstep: the workers may continue after this report of the run. ``save``: the next one is to be saved."""
        for effect in self.kernel.let_go_on(report, save):
            self._executor.carry_out(effect)

    def release(self) -> None:
        """Let another driver have the run."""
        self._storage.release()

    def close_session(self) -> None:
        """Release the nodes; ``close`` does the rest."""
        self._executor.close_session()

    def failed(self, error: Exception) -> ControllerError:
        """The driver cannot continue."""
        self._record_end(message_of(error))
        remedy = open_files.remedy(error) or "Fix the cause"
        return ControllerError(error, f"{remedy}, and {self._plan.how_to_resume}")

    def _account(self) -> str:
        """Where the time went, unless the reports of an earlier driver would have to be fetched for that."""
        storage = self._storage
        known = storage.has_reports_of(attempt.attempt_number for attempt in self._past.attempts)
        return closing_account(storage.records(), storage.home) if known else ""

    def _identify(self) -> None:
        """Write the run's identity twice, so that damage to one place leaves the other."""
        if self._known_as != self._identity:
            self._storage.write_identity(self._identity)
        if self._past.identity != self._identity:
            self._storage.write([(IDENTITY, self._identity)], lambda: None)

    def _changed_settings(self) -> str:
        before = self._known_as or self._past.identity
        return "" if before is None else changes_text(before, self._identity)

    def _known_identity(self) -> dict[str, Any] | None:
        try:
            return self._storage.read_identity()
        except StorageError:
            return None

    def close(self) -> None:
        """End everything that was started. Complete staged checkpoints have been committed by now, or never are."""
        kernel = self._kernel
        all_stored = self.is_over and kernel is not None and not kernel.state.unsaved and not kernel.left_on_nodes
        executor = self._executor
        closing = (executor.close_session, executor.close_datasets, executor.close_reports)
        for close in (*closing, lambda: self._storage.close(all_stored)):
            try:
                close()
            except Exception as error:  # the others are closed all the same
                log.warning("%s", error)

    def _record_end(self, reason: str) -> None:
        """Best effort: the driver is failing, perhaps because it cannot write."""
        try:
            self._storage.write_last([ev.journalled(ev.RunEnded(Outcome.FAILED, reason))])
        except Exception as error:
            if str(error) != reason:  # otherwise this driver has lost the run, which is why it ends
                log.warning("the end of the run could not be written to the journal: %s", error)

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._signal = number
        grace_s = self._plan.preemption_grace_s if number == signal.SIGTERM else 0.0
        self._inbox.put(ev.StopAsked(at_once, grace_s))

    def ending(self) -> Ending:
        known, finish = self.kernel.known, self.kernel.finish
        assert finish is not None
        if finish.outcome is Outcome.FAILED:
            error = known.accounts.error(known.run.durable, self._plan.how_to_resume, known.handover.notice)
            return Ending(finish.outcome, error)
        value = None if known.value is None else cloudpickle.loads(known.value)
        return Ending(finish.outcome, None, value, self._signal)

    # The loop

    def _wait(self) -> list[Any]:
        """The next things that happened; empty when a timer is due."""
        due = self.due()
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        try:
            return [self._inbox.get(timeout=timeout), *self._heard()]
        except queue.Empty:
            return []

    def _heard(self) -> list[Any]:
        """The inputs that are in the inbox already."""
        inbox = self._inbox
        items: list[Any] = []
        while len(items) < _BATCH and not inbox.empty():
            items.append(inbox.get())
        return items

    def take_in(self, items: Iterable[Any]) -> None:
        """Process inputs of the kernel, callables for the loop, or the error that ends the run; then the timers that
        are due."""
        self._storage.check_lease()
        answers = self._executor.answers
        for item in items:
            if isinstance(item, Exception):
                raise item
            if callable(item):
                item()  # it answers
            else:
                answers.append(item)
        if self._is_busy:
            return  # called by an effect: it is processed after that
        self._is_busy = True
        try:
            self._turn()
            while answers:
                self._turn()
        finally:
            self._is_busy = False

    def _turn(self) -> None:
        executor = self._executor
        inputs, executor.answers[:] = executor.answers[:], []
        for effect in self.kernel.handle(inputs, fx.Now(time.monotonic(), time.time())):
            executor.carry_out(effect)
        executor.show_workers(self.state)


def _had_finished(past: Past) -> bool:
    return past.ended is not None and past.ended.outcome is Outcome.FINISHED


def _of_earlier_work(name: str, past: Past, changed: str) -> list[str]:
    """Warn, so that the result of an old run is not mistaken for one with the new settings."""
    if not past.attempts:
        return []
    newest = past.state.newest
    if _had_finished(past):
        since = (
            f"This start continues from {newest.id} and trains only if the script now asks for more, for example more "
            "epochs. "
            if newest
            else "It has no checkpoint, so this start trains from the beginning. "
        )
        return [
            f"Run {name!r} already finished. {since}"
            + (f"Settings changed since then: {changed}. " if changed else "")
            + "To train a new run instead, choose another RunConfig(name=...) or set RunConfig(fresh=True)."
        ]
    return [f"Run {name!r} resumes with changed settings: {changed}."] if changed else []
