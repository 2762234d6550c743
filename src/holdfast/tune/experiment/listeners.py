"""Tells callbacks, loggers and the display what happens in an experiment."""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.experiment.events import CallbackChanged
from holdfast.core.experiment.trial import Trial
from holdfast.errors import message_of
from holdfast.printable import printable, printable_lines
from holdfast.store import values
from holdfast.store.disk import replace_file
from holdfast.trackers.trial_callback import Callback
from holdfast.trackers.trial_files import TrialFileLogger
from holdfast.tune.experiment.artifacts import Artifacts
from holdfast.tune.experiment.callback_trial import TrialForCallbacks
from holdfast.tune.experiment.live_experiment import LiveExperiment
from holdfast.tune.experiment.metric_summary import MetricSummary
from holdfast.tune.experiment.pbt_files import PbtFiles
from holdfast.tune.experiment.trial_tally import row_of
from holdfast.tune.experiment.trials_display import TrialsDisplay
from holdfast.tune.experiment.trials_picture import failure_text
from holdfast.tune.progress_reporter import ProgressReporter
from holdfast.tune.result import EXPR_ERROR_FILE, SHOULD_CHECKPOINT
from holdfast.tune.schedulers.decision import Exploit
from holdfast.tune.schedulers.trial_scheduler import ERROR
from holdfast.ui.display_picture import clean


class Listeners:
    """Receives only events that are journalled. A callback that raises ends the experiment with an error that names it,
    because its work may matter. A reporter that raises is not called again."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        reporter: ProgressReporter | None,
        local_root: str,
        *,
        display: TrialsDisplay | None = None,
        quiet: bool = False,
        shows_output: bool = False,
        total_samples: float | None = None,
        num_samples: int | None = None,
        budget_s: float | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        self._callbacks, self._reporter, self._display = list(callbacks), reporter, display
        self._budget_s = budget_s
        self._local_root = local_root
        self._quiet, self._shows_output = quiet, shows_output
        self._total_samples, self._num_samples = total_samples, num_samples
        self._experiment: LiveExperiment | None = None
        self._views: dict[str, TrialForCallbacks] = {}  # of trials that have not ended
        self._started: set[str] = set()  # trials that have not ended
        self._turns = 0
        self._all = _Lazy(self)
        self._keepers = [(n, c) for n, c in enumerate(self._callbacks) if _overrides(c, "get_state")]
        self._after_steps = [c for c in self._callbacks if _overrides(c, "on_step_end")]
        self._before_steps = [c for c in self._callbacks if _overrides(c, "on_step_begin")]
        self._artifacts = artifacts
        self._summarizes = any(not type(c).__module__.startswith("holdfast.") for c in self._callbacks)
        self._is_over = False  # no trial is running
        self.save_asked: Callable[[Trial], None] = lambda _trial: None  # a callback wants a trial to be saved

    def began(self, experiment: LiveExperiment, check_lease: Callable[[], None]) -> None:
        if self._artifacts is not None:
            self._artifacts.open()
        self._experiment, self._check_lease = experiment, check_lease
        total = None if self._total_samples in (None, math.inf) else int(self._total_samples or 0)
        for callback in self._callbacks:
            if isinstance(callback, TrialFileLogger):
                callback.check_owner = check_lease
            with _named(callback, "setup"):
                callback.setup(stop=experiment.stopper, num_samples=self._num_samples, total_num_samples=total)
        for place, callback in self._keepers:
            state = experiment.callback_states.get((place, type(callback).__name__))
            if state is not None:
                with _named(callback, "set_state"):
                    callback.set_state(dict(state))
        if self._reporter is not None:
            self._reporter.setup(time.time(), self._total_samples, experiment.spec.metric, experiment.spec.mode)
        self._policies = PbtFiles(Path(experiment.home.path or self._local_root))
        self._policies.write_all(_changes(experiment))
        if self._display is not None:
            self._display.begin(experiment, self._total_samples, self._budget_s)

    def has_heard_of(self, trial: Trial) -> bool:
        """Whether callbacks know from this driver that it has started."""
        return trial.trial_id in self._started

    def started(self, trial: Trial) -> None:
        self._started.add(trial.trial_id)
        self._tell("on_trial_start", trial)
        if trial.checkpoint_number:
            self._tell("on_trial_restore", trial)

    def reported(self, trial: Trial, result: dict[str, Any]) -> None:
        if self._display is not None:
            self._display.reported(trial, result)
        if self._summarizes:
            self._summarize(trial, result)
        told = dict(result)
        self._tell("on_trial_result", trial, result=told)
        if told.get(SHOULD_CHECKPOINT) and not result.get(SHOULD_CHECKPOINT):
            self.save_asked(trial)
        checkpoint = self._view(trial).checkpoint if result.get("checkpoint_dir_name") else None
        if checkpoint is not None:
            self._tell("on_trial_save", trial)
            self._tell("on_checkpoint", trial, checkpoint=checkpoint)

    def exploited(self, trial: Trial) -> None:
        """The trial resumes from the checkpoint of another trial."""
        if self._experiment is not None:
            self._policies.add(_changes(self._experiment), trial.trial_id)

    def _summarize(self, trial: Trial, result: dict[str, Any]) -> None:
        view = self._view(trial)
        if view.summary is None:
            view.summary = MetricSummary()
        view.summary.add(result)

    def ended(self, trial: Trial) -> None:
        if trial.status == ERROR:
            self._failed(trial)
        self._tell("on_trial_error" if trial.status == ERROR else "on_trial_complete", trial)
        self._views.pop(trial.trial_id, None)
        self._started.discard(trial.trial_id)
        if self._artifacts is not None:
            self._artifacts.ended(trial.directory)
        if self._display is not None:
            self._display.ended(trial)
        elif trial.status == ERROR:
            self.warn(failure_text(row_of(trial)))

    def _failed(self, trial: Trial) -> None:
        """Its error goes into a file, as scripts from Ray expect it."""
        known = self._views.get(trial.trial_id)
        if known is not None:
            known.num_failures += 1
        path = Path(self._view(trial).local_path, EXPR_ERROR_FILE)
        with contextlib.suppress(Exception):  # if another driver has the experiment, this one notices elsewhere, too
            self._check_lease()
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, (trial.error or "it failed").encode(errors="backslashreplace"))

    def stopping(self, text: str) -> None:
        """All running trials are stopped."""
        if self._display is not None:
            self._display.state("stopping")
        self.warn(text)

    def warn(self, text: str) -> None:
        if self._quiet:
            return
        if self._display is not None and self._display.has_begun:
            self._display.warning(text)
            return
        with contextlib.suppress(OSError, ValueError):
            print(f"holdfast: {printable_lines(text)}", file=sys.stderr, flush=True)

    def output(self, name: str, rank: int, line: str) -> None:
        if not self._shows_output:
            return
        if self._display is not None:
            self._display.output_of(name, line)
            return
        with contextlib.suppress(OSError, ValueError):
            print(f"({printable(name)}) {clean(line)}", flush=True)

    def recovers(self, trial: Trial) -> None:
        """The trial has failed and is retried."""
        self._view(trial).num_failures += 1
        self._tell("on_trial_recover", trial)

    def turned(self) -> list[CallbackChanged]:
        self._turns += 1
        for callback in self._after_steps:
            with _named(callback, "on_step_end"):
                callback.on_step_end(iteration=self._turns, trials=self._all)
        for callback in self._before_steps:
            with _named(callback, "on_step_begin"):
                callback.on_step_begin(iteration=self._turns + 1, trials=self._all)
        if self._display is not None:
            self._display.turned()
        self._report(done=False)
        return [] if self._experiment is None else list(self._changed(self._experiment.callback_states))

    def _changed(self, known: Mapping[tuple[int, str], dict[str, Any]]) -> Iterator[CallbackChanged]:
        for place, callback in self._keepers:
            name = type(callback).__name__
            with _named(callback, "get_state"):
                state = callback.get_state()
                if state is not None and state != known.get((place, name)):
                    values.encode(state, "the state")  # checked here, so that an error names the callback
                    yield CallbackChanged(place, name, copy.deepcopy(state))

    def finished(self, outcome: str, text: str) -> None:
        if self._experiment is None:
            return
        self._is_over = True
        with contextlib.ExitStack() as closing:  # close everything, even if one of them fails
            if self._display is not None:
                closing.callback(self._display.finish, outcome, text)
            closing.callback(self._report, done=True)
            if self._artifacts is not None:
                closing.callback(self._artifacts.close)
            for callback in reversed(self._callbacks):
                closing.callback(self._end, callback)

    def _end(self, callback: Callback) -> None:
        with _named(callback, "on_experiment_end"):
            callback.on_experiment_end(trials=self._all)

    def _report(self, done: bool) -> None:
        if self._reporter is None:
            return
        try:
            if self._reporter.should_report(self._all, done=done):
                self._reporter.report(self._all, done)
        except Exception as error:
            who = type(self._reporter).__name__
            self.warn(f"{who} raised {type(error).__name__}: {message_of(error)}; it will not be called again")
            self._reporter = None

    def _trials(self) -> Sequence[Trial]:
        return () if self._experiment is None else self._experiment.get_trials()

    def _view(self, trial: Trial) -> TrialForCallbacks:
        view = self._views.get(trial.trial_id)
        if view is None:
            assert self._experiment is not None
            home = self._experiment.home_of(trial)
            local = home.directory_here(f"{self._local_root}/{trial.directory}")
            view = TrialForCallbacks(trial, home, local)
            if not trial.has_ended:
                self._views[trial.trial_id] = view
        view.is_stopped = self._is_over
        return view

    def _tell(self, hook: str, trial: Trial, **more: Any) -> None:
        view = self._view(trial)
        for callback in self._callbacks:
            try:  # and not ``with``: this is called for every result
                getattr(callback, hook)(iteration=self._turns, trials=self._all, trial=view, **more)
            except Exception as error:
                raise _failed(callback, hook, error) from error


class _Lazy(Sequence[TrialForCallbacks]):
    """All trials, collected on access: most callbacks never look, and there may be many."""

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def __len__(self) -> int:
        experiment = self._listeners._experiment
        return 0 if experiment is None else experiment.count

    def __getitem__(self, index: Any) -> Any:
        found = self._listeners._trials()[index]
        return self._listeners._view(found) if isinstance(found, Trial) else list(map(self._listeners._view, found))

    def __iter__(self) -> Iterator[TrialForCallbacks]:
        return map(self._listeners._view, self._listeners._trials())


def _changes(experiment: LiveExperiment) -> Sequence[Exploit]:
    """The files that a population-based scheduler writes."""
    return getattr(experiment.scheduler, "perturbations", ())


@contextlib.contextmanager
def _named(callback: Callback, method: str) -> Any:
    try:
        yield
    except Exception as error:
        raise _failed(callback, method, error) from error


def _failed(callback: Callback, method: str, error: Exception) -> RuntimeError:
    return RuntimeError(f"{type(callback).__name__}.{method} raised {type(error).__name__}: {message_of(error)}")


def _overrides(callback: Callback, method: str) -> bool:
    return getattr(type(callback), method) is not getattr(Callback, method)
