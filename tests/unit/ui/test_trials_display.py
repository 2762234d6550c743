"""The display of experiments: drawn into strings, without a terminal and without trials that run."""

from __future__ import annotations

import io
from typing import Any

import pytest

from holdfast.tune.experiment import trials_display
from holdfast.tune.experiment.trial_tally import row_of
from holdfast.tune.experiment.trials_live_painter import TrialsLivePainter
from holdfast.tune.experiment.trials_picture import TrialsPicture, closing_text, failure_text, speed_text
from holdfast.tune.experiment.trials_plain_painter import TrialsPlainPainter
from holdfast.ui.display_picture import DisplayNotice, OutputLine, ShownFailure
from holdfast.ui.display_streams import Sink
from support.ui.screen import Screen
from support.ui.toy_trials import ToyExperiment, trial


@pytest.fixture(autouse=True)
def a_terminal_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def picture_of(**fields: Any) -> TrialsPicture:
    return TrialsPicture(name="toy", path="/experiments/toy", state="running", metric="loss", **fields)


def test_the_panel_says_how_the_experiment_is() -> None:
    stream = io.StringIO()
    painter = TrialsLivePainter(Sink(stream))
    picture = picture_of(
        counts={"RUNNING": 2, "PENDING": 1, "ERROR": 1, "TERMINATED": 6},
        total=1000.0,
        best=row_of(trial(3, "TERMINATED", loss=0.25, lr=0.5)),
        rows=(row_of(trial(7, loss=0.75, acc=3)), row_of(trial(8, lr=float("inf")))),
        budget_s=600.0,
        spent_s=60.0,
        failures=(ShownFailure(55.0, "train_00001 failed: it broke", ""),),
        failure_count=1,
        reports=100,
    )
    painter.paint(picture, [], 63.0, False)
    picture.reports, picture.counts = 120, {**picture.counts, "TERMINATED": 7, "PENDING": 0}
    painter.paint(picture, [OutputLine(None, "(train_00007) hello")], 65.0, False)
    assert Screen().feed(stream.getvalue()).lines == [
        "(train_00007) hello",
        "╭─ toy ───────────────────────────────────────────────────────────────────────╮",
        "│ experiment   /experiments/toy                                               │",
        "│ state        running                                                        │",
        "│ trials       10 of 1,000: 2 running, 1 failed, 7 done                       │",
        "│ results      120, 10/s                                                      │",
        "│ speed        30 trials/min                                                  │",
        "│ best so far  loss=0.25 at iteration 1                                       │",
        "│              by train_00003                                                 │",
        "│              lr=0.5                                                         │",
        "│ 1 failed     10 s ago: train_00001 failed: it broke                         │",
        "│                                                                             │",
        "│ running       lr  iter  loss  acc                                           │",
        "│ train_00007  0.1     1  0.75    3                                           │",
        "│ train_00008  inf                                                            │",
        "╰───────────────────────────────────────────────────── 2 m 05 s of 10 m 00 s ─╯",
    ]


def test_names_values_and_errors_keep_the_panel_in_shape() -> None:
    stream = io.StringIO()
    painter = TrialsLivePainter(Sink(stream))
    odd = trial(1, loss=float("nan"), deep={"a": 1}, text="\x1b[2J" * 9)
    odd.name = "\x1b[2Jname\n" * 20
    odd.evaluated_params = {f"a rather long name {n}": "x\n" * 40 for n in range(30)}
    picture = picture_of(rows=(row_of(odd),) * 40, best=row_of(odd), counts={"RUNNING": 40}, failure_count=1)
    picture.failures = (ShownFailure(0.0, "\x1b[1A\n[bold]" * 300, ""),) * 3
    for moment in range(3):
        painter.paint(picture, [], float(moment), False)
    lines = Screen().feed(stream.getvalue()).lines
    assert {line[0] + line[-1] for line in lines[:-1]} <= {"╭╮", "││", "╰╯"}
    assert len(lines) <= 23
    (more,) = (line for line in lines if "more running" in line)
    assert more.startswith("│ 3")
    assert max(map(len, lines)) == 79


def test_the_last_words_are_the_tables() -> None:
    stream = io.StringIO()
    painter = TrialsLivePainter(Sink(stream))
    picture = picture_of(rows=(row_of(trial(1)),))
    painter.paint(picture, [], 1.0, False)
    picture.state, picture.closing, picture.last_words = "finished", "the table\nof trials", "that was it"
    painter.paint(picture, [], 2.0, True)
    lines = Screen().feed(stream.getvalue()).lines
    assert lines[-3:] == ["that was it", "the table", "of trials"]
    assert sum("finished" in line for line in lines) == 1
    assert not any("train_00001" in line for line in lines)


class Plain:
    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.painter = TrialsPlainPainter(Sink(self.out), Sink(self.err))
        self.picture = picture_of(total=float("inf"), counts={"RUNNING": 1})

    def at(self, now: float, *news: OutputLine | DisplayNotice, final: bool = False) -> list[str]:
        self.painter.paint(self.picture, list(news), now, final)
        return self.err.getvalue().splitlines()


def test_without_a_terminal_lines_come_ever_more_seldom() -> None:
    plain = Plain()
    for second in range(36_000):
        plain.picture.counts = {"RUNNING": 1, "TERMINATED": second}
        lines = plain.at(float(second))
    assert lines[0] == "[holdfast 10.0s] trials: 11: 1 running, 10 done; 1 trials/s"
    assert 100 < len(lines) < 200
    assert plain.out.getvalue() == ""


def test_without_a_terminal_the_last_line_and_the_table_are_always_there() -> None:
    plain = Plain()
    plain.at(0.5, OutputLine(None, "(train_00000) hello"))
    plain.picture.state, plain.picture.closing = "finished", "the table"
    plain.picture.counts, plain.picture.best = {"TERMINATED": 1}, row_of(trial(3, "TERMINATED", loss=0.25))
    lines = plain.at(1.0, DisplayNotice(1.0, "finish", "finished"), final=True)
    assert lines == [
        "[holdfast 1.0s] trials: 1: 1 done; best loss=0.25 at iteration 1 by train_00003: lr=0.1",
        "[holdfast 1.0s] finished",
    ]
    assert plain.out.getvalue() == "(train_00000) hello\nthe table\n"


@pytest.mark.parametrize(("rate", "text"), [(250.0, "250/s"), (1.5, "1.5/s"), (0.5, "30/min"), (0.001, "3.6/h")])
def test_speeds_are_in_units_that_can_be_read(rate: float, text: str) -> None:
    assert speed_text(rate) == text


def test_a_display_that_is_off_is_none() -> None:
    assert trials_display.make("off") is None


def test_the_whole_of_an_experiment_in_plain_text() -> None:
    stream = io.StringIO()
    shown = trials_display.make("plain", stream)
    assert shown is not None
    experiment: Any = ToyExperiment([trial(0, "TERMINATED", loss=3.0), trial(1)])
    shown.begin(experiment, 30.0, None)
    shown.turned()
    for number in range(2, 30):
        experiment.trials.append(trial(number, loss=float(number)))
        shown.reported(experiment.trials[-1], experiment.trials[-1].last_result)
        shown.ended(experiment.end(experiment.trials[-1], "ValueError: bad\nTraceback" if number > 6 else ""))
    shown.output_of("train_00001", "a line")
    shown.finish("stopped", "")
    shown.finish("stopped", "")
    text = stream.getvalue()
    assert "resumes with 2 trials" in text
    assert "(train_00001) a line" in text
    assert "trials: 30 of 30: 1 waiting, 23 failed, 6 done; best loss=2 at iteration 1 by train_00002" in text
    assert "more trials have failed; they are counted" in text
    assert text.count("failed: ValueError: bad\n") == 20
    assert "3 more failed" in text
    assert "Traceback" not in text


def test_an_end_that_is_delivered_again_after_a_restore_counts_once() -> None:
    stream = io.StringIO()
    shown = trials_display.make("plain", stream)
    assert shown is not None
    experiment: Any = ToyExperiment([trial(0, "TERMINATED", loss=3.0), trial(1, "ERROR", "OSError: gone"), trial(2)])
    shown.begin(experiment, 3.0, None)
    for known in experiment.trials[:2]:
        shown.ended(known)
    shown.ended(experiment.end(experiment.trials[2]))
    shown.finish("finished", "")
    assert "trials: 3 of 3: 1 failed, 2 done; best loss=3" in stream.getvalue()


def test_trials_that_have_ended_cost_nothing_in_a_turn() -> None:
    experiment: Any = ToyExperiment([trial(n, "TERMINATED", loss=1.0) for n in range(50)])
    shown = trials_display.TrialsDisplay(lambda: TrialsPlainPainter(Sink(io.StringIO()), Sink(io.StringIO())))
    shown.begin(experiment, None, None)
    before = experiment.looks_at_all
    for _ in range(1000):
        shown.turned()
    shown.finish("finished", "")
    assert experiment.looks_at_all == before


def test_a_look_that_takes_long_is_taken_seldom() -> None:
    now = [0.0]

    class Slow(ToyExperiment):
        looks = 0

        def get_live_trials(self) -> list[Any]:
            now[0] += 0.1
            self.looks += 1
            return []

    experiment: Any = Slow()
    painter = TrialsPlainPainter(Sink(io.StringIO()), Sink(io.StringIO()))
    shown = trials_display.TrialsDisplay(lambda: painter, clock=lambda: now[0])
    shown.begin(experiment, None, None)
    while now[0] < 100:
        now[0] += 0.01
        shown.turned()
    shown.finish("finished", "")
    assert experiment.looks <= 22  # a fiftieth of the time, and the first and the last


def test_what_was_stored_is_shown_and_never_obeyed() -> None:
    evil = "[bold red]x[/] \x1b]0;owned\x07\x1b[2J\x9b\u202e"
    row = row_of(trial(3, "RUNNING", loss=0.25, lr=evil))._replace(name=evil, error=evil)
    fields: dict[str, Any] = {"counts": {"RUNNING": 1, "ERROR": 1}, "best": row, "rows": (row,), "reports": 1}
    for painter in (TrialsLivePainter, lambda sink: TrialsPlainPainter(sink, sink)):
        stream = io.StringIO()
        picture = picture_of(**fields, failures=(ShownFailure(0.0, failure_text(row), ""),), failure_count=1)
        picture.name = picture.path = picture.resumed = picture.metric = evil
        painter(Sink(stream)).paint(picture, [DisplayNotice(0.0, "warning", evil)], 63.0, False)
        picture.state = "finished"
        picture.closing = closing_text(picture, [row], [row], 120)
        painter(Sink(stream)).paint(picture, [], 64.0, True)
        written = stream.getvalue()
        assert not [harmful for harmful in ("\x07", "\x1b]", "\x1b[2J", "\x9b", "\u202e") if harmful in written]
        assert "[bold red]x[/]" in written
