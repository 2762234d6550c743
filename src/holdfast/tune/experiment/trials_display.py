"""The display of an experiment.

As in a run's display, the loop only records what to show, and a thread writes it. A tally counts the trials that have
ended and sees every result; the other trials are sampled a few times a second, and less often if that takes long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from holdfast.core.experiment.trial import Trial
from holdfast.printable import printable
from holdfast.tune.experiment.live_experiment import LiveExperiment
from holdfast.tune.experiment.trial_tally import BestResult, TrialTally, row_of
from holdfast.tune.experiment.trials_live_painter import MAX_ROWS, TrialsLivePainter
from holdfast.tune.experiment.trials_notebook_painter import TrialsNotebookPainter
from holdfast.tune.experiment.trials_picture import TrialsPicture, closing_text, failure_text
from holdfast.tune.experiment.trials_plain_painter import TrialsPlainPainter
from holdfast.tune.progress_reporter import UNBOUNDED
from holdfast.tune.schedulers.trial_scheduler import ERROR, PENDING, RUNNING
from holdfast.ui.display_picture import ShownFailure
from holdfast.ui.display_streams import Sink, is_foreground, is_terminal, terminal_size
from holdfast.ui.fitted_table import shortened
from holdfast.ui.notebook_painter import notebook_output, replaced
from holdfast.ui.run_display import BackgroundDisplay, Painter

_LOOK_EVERY_S = 0.25
_LOOK_SHARE = 0.02  # the largest share of the loop's time that it takes
_SHOWN_FAILURES = 20  # the most trials with a line; all are counted
_WIDTH_OF_FILES = 160


def make(kind: str, stream: TextIO | None = None) -> TrialsDisplay | None:
    """A display of the kind that ``settings.display`` names: "auto", "live", "plain" or "off"."""
    out, err = (stream or sys.stdout), (stream or sys.stderr)
    if kind == "off" or out is None or err is None:
        return None
    if kind == "auto" and stream is None and (cell := notebook_output()) is not None:
        return TrialsDisplay(lambda: TrialsNotebookPainter(replaced(cell)))
    if kind == "auto":
        kind = "live" if is_terminal(out) and is_terminal(err) and is_foreground(out) else "plain"
    width = terminal_size(out)[0] if is_terminal(out) else _WIDTH_OF_FILES
    if kind == "live":
        return TrialsDisplay(
            lambda: TrialsLivePainter(Sink(out)), redirect=stream is None, width=width, name_width=max(16, width // 3)
        )
    return TrialsDisplay(lambda: TrialsPlainPainter(Sink(out), Sink(err)), width=width)


class TrialsDisplay(BackgroundDisplay):
    """Gets the events of the experiment's listeners."""

    noun = "experiment"

    def __init__(
        self,
        make_painter: Callable[[], Painter],
        *,
        redirect: bool = False,
        width: int = _WIDTH_OF_FILES,
        name_width: int = UNBOUNDED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(make_painter, redirect=redirect, clock=clock)
        self._shown = TrialsPicture()
        self._picture = self._shown
        self._width, self._name_width = (
            width,
            name_width,
        )  # of a table, and of the name before a line that a trial prints
        self._tally = TrialTally(BestResult(None, None))
        self._counted: set[str] = set()  # trials that ended before; some of these ends are delivered again
        self._look_at = float("-inf")
        self._experiment: LiveExperiment | None = None

    @property
    def has_begun(self) -> bool:
        return self._experiment is not None

    def begin(self, experiment: LiveExperiment, total: float | None, budget_s: float | None) -> None:
        self._experiment = experiment
        spec, shown = experiment.spec, self._shown
        self._tally = TrialTally(experiment.best)
        earlier = experiment.get_trials()
        for trial in earlier:
            if trial.has_ended:
                self._tally.add(trial)
                self._counted.add(trial.trial_id)
        shown.metric, shown.total, shown.budget_s = spec.metric, total, budget_s
        shown.spent_s, shown.state = experiment.spent_s, "running"
        self._look()
        self.start(experiment.home.name, str(experiment.home), None)
        if earlier:
            shown.resumed = f"resumes with {len(earlier):,} trials"
            self._tell("resumed", shown.resumed)

    def ended(self, trial: Trial) -> None:
        if trial.trial_id in self._counted:
            self._counted.discard(trial.trial_id)
            return
        self._tally.add(trial)
        if trial.status != ERROR:
            return
        shown, text = self._shown, failure_text(row_of(trial))
        shown.failure_count += 1
        shown.failures = (*shown.failures, ShownFailure(self._clock(), text, ""))[-3:]
        if shown.failure_count <= _SHOWN_FAILURES:
            self._tell("warning", text)
        if shown.failure_count == _SHOWN_FAILURES:
            self._tell("warning", "more trials have failed; they are counted and not listed here")

    def reported(self, trial: Trial, result: Mapping[str, Any]) -> None:
        self._shown.reports += 1
        self._tally.best.note(trial, result)

    def turned(self) -> None:
        """Called after each turn of the loop, so it must cost next to nothing."""
        if self._clock() >= self._look_at:
            self._look()

    def output_of(self, name: str, line: str) -> None:
        self._print(f"({shortened(printable(name), self._name_width)}) {line}")

    def finish(self, outcome: str, text: str) -> None:
        if self._experiment is not None:
            self._look()
            counts = self._shown.counts
            unfinished = counts.get(RUNNING, 0) + counts.get(PENDING, 0)  # nothing is running
            self._shown.counts = {**counts, RUNNING: 0, PENDING: unfinished}
            self._shown.rows = ()
            self._shown.closing = closing_text(self._shown, self._tally.kept(), self._tally.failed, self._width)
        super().finish(outcome, text)

    def _look(self) -> None:
        assert self._experiment is not None
        before = self._clock()
        look = self._tally.look(self._experiment.get_live_trials(), MAX_ROWS)
        shown = self._shown
        shown.counts, shown.best, shown.rows = look
        took = self._clock() - before
        self._look_at = before + max(_LOOK_EVERY_S, took / _LOOK_SHARE)
