"""Who hears of what: callbacks, reporters and the display, and what becomes of those that raise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.trackers.trial_callback import Callback, Trial
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.progress_reporter import CLIReporter, ProgressReporter
from support.ui.toy_trials import ToyExperiment, trial


def listeners(experiment: ToyExperiment, *callbacks: Callback, reporter: ProgressReporter | None = None) -> Listeners:
    made = Listeners(callbacks, reporter, "/local")
    made.began(experiment, lambda: None)  # type: ignore[arg-type]
    return made


def test_a_callback_that_raises_is_named() -> None:
    class Broken(Callback):
        def on_trial_result(self, *args: Any, **info: Any) -> None:
            raise KeyError("loss")

    experiment = ToyExperiment([trial(0)])
    told = listeners(experiment, Broken())
    with pytest.raises(RuntimeError, match=r"Broken.on_trial_result raised KeyError: 'loss'"):
        told.reported(experiment.trials[0], {"loss": 1})


def test_callbacks_can_go_through_all_trials_in_one_look() -> None:
    seen: list[str] = []

    class Looks(Callback):
        def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
            seen.extend(str(one) for one in trials)
            assert str(trials[-1]) == "train_00099"
            assert [str(one) for one in trials[:2]] == ["train_00000", "train_00001"]
            assert len(trials) == 100

    experiment = ToyExperiment([trial(n) for n in range(100)])
    told = listeners(experiment, Looks())
    told.turned()
    assert len(seen) == 100
    assert experiment.looks_at_all == 3


def test_callbacks_that_do_not_look_cost_no_look() -> None:
    experiment = ToyExperiment([trial(n) for n in range(100)])
    told = listeners(experiment, Callback())
    for _ in range(10):
        told.turned()
        told.reported(experiment.trials[0], {"loss": 1})
    assert experiment.looks_at_all == 0


def test_a_reporter_that_raises_is_not_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(ProgressReporter):
        asked = 0

        def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
            self.asked += 1
            return True

        def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
            raise BrokenPipeError("the reader has gone")

    reporter = Broken()
    told = listeners(ToyExperiment(), reporter=reporter)
    told.turned()
    told.turned()
    told.finished("finished", "")
    assert reporter.asked == 1
    assert "Broken raised BrokenPipeError: the reader has gone" in capsys.readouterr().err


def test_a_reporter_of_the_user_prints_in_place_of_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = ToyExperiment([trial(0, loss=0.5)])
    told = listeners(experiment, reporter=CLIReporter(max_report_frequency=0))
    told.turned()
    told.ended(experiment.end(experiment.trials[0], "ValueError: bad\nTraceback"))
    told.finished("finished", "")
    caught = capsys.readouterr()
    assert re.search(r"train_00000 +RUNNING", caught.out)
    assert re.search(r"train_00000 +ERROR", caught.out)
    assert caught.err == "holdfast: train_00000 failed: ValueError: bad\n"


def test_all_are_told_of_the_end_and_what_is_open_is_closed_whoever_raises() -> None:
    told: list[str] = []

    class Broken(Callback):
        def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
            raise OSError("no room")

    class Last(Callback):
        def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
            told.append("last")

    class Far:
        def open(self) -> None:
            told.append("open")

        def close(self) -> None:
            told.append("closed")

    made = Listeners([Broken(), Last()], None, "/local", artifacts=Far())  # type: ignore[arg-type]
    made.finished("failed", "it could not begin")
    assert told == []
    made.began(ToyExperiment([]), lambda: None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"Broken.on_experiment_end raised OSError: no room"):
        made.finished("finished", "")
    assert told == ["open", "last", "closed"]
