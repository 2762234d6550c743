"""The live panels at any width, with long names: nothing is clipped, the cause stands out, and no number is broken."""

from __future__ import annotations

import io

import pytest

from holdfast.tune.experiment.trial_tally import row_of
from holdfast.tune.experiment.trials_live_painter import TrialsLivePainter
from holdfast.tune.experiment.trials_picture import TrialsPicture, closing_text
from holdfast.tune.progress_reporter import TrialRow
from holdfast.ui import live_painter
from holdfast.ui.display_picture import Picture, ShownFailure
from holdfast.ui.display_streams import Sink
from holdfast.ui.live_painter import LivePainter
from support.ui.screen import Screen
from support.ui.toy_trials import trial

WIDTHS, ROWS = (40, 80, 120, 200), 34
CAUSE = "rank 1 was killed by SIGKILL (signal 9)"
RED = "\x1b[1;31m"
LONG = "train_transformer_classifier_with_augmentation_5f3a"


def lines_of(painter: LivePainter, picture: Picture, stream: io.StringIO, width: int) -> list[str]:
    painter.paint(picture, [], 65.0, False)
    lines = Screen(width, ROWS).feed(stream.getvalue()).lines
    assert {line[0] + line[-1] for line in lines} == {"╭╮", "││", "╰╯"}
    assert len({*map(len, lines)}) == 1
    assert len(lines[0]) < width
    assert len(lines) <= ROWS - 2, "a panel that fills the screen is pushed into the history by some terminals"
    return lines


@pytest.fixture(autouse=True, params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    width: int = request.param
    monkeypatch.setenv("COLUMNS", str(width))  # for rich
    monkeypatch.setattr(live_painter, "terminal_size", lambda _stream: (width, ROWS))
    return width


def test_the_panel_of_a_run(width: int) -> None:
    stream = io.StringIO()
    picture = Picture(name=LONG, path=f"/runs/{LONG}", state="recovering", attempt_number=2, world_size=2)
    picture.workers = {0: "running", 1: "dead"}
    picture.metrics = {"validation/accuracy_top1": 0.9123, "validation/accuracy_top5": 0.9876, "epoch": 12}
    picture.reports, picture.checkpoint = 100, ("checkpoint_000100", 100, 64.0)
    picture.failures, picture.failure_count = (ShownFailure(60.0, CAUSE, "retry 1 of 3"),), 1
    text = " ".join(line[2:-2].strip() for line in lines_of(LivePainter(Sink(stream)), picture, stream, width))
    assert CAUSE in " ".join(text.split())
    assert f"{RED}{CAUSE[:7]}" in stream.getvalue()
    assert {"0.9123", "0.9876", "12", "checkpoint_000100"} <= set(text.split())


def test_the_panel_of_an_experiment(width: int) -> None:
    stream = io.StringIO()
    rows = [TrialRow(f"{LONG}_{n:05d}", "RUNNING", {}, {"validation/accuracy": 0.5}) for n in range(50)]
    picture = TrialsPicture(name=LONG, path=f"/runs/{LONG}", state="running", metric="validation/accuracy", total=99)
    picture.rows, picture.counts, picture.reports = tuple(rows), {"RUNNING": 50, "ERROR": 3}, 9
    picture.best = rows[7]._replace(metrics={"validation/accuracy": 0.9469, "training_iteration": 2})
    picture.failures = tuple(ShownFailure(60.0, f"{LONG}_{n:05d} failed: {CAUSE}", "") for n in range(3))
    picture.failure_count = 3
    lines = lines_of(TrialsLivePainter(Sink(stream)), picture, stream, width)
    text = "\n".join(lines)
    assert "=0.9469" in text
    assert text.count("rank 1 was k") == 3
    assert f"{RED}{CAUSE[:7]}" in stream.getvalue()
    body = lines[next(number for number, line in enumerate(lines) if line.startswith("│ running")) + 1 : -2]
    assert [line.split()[1][-5:] for line in body] == [f"{n:05d}" for n in range(len(body))]
    assert lines[-2].split()[1:3] == [f"{50 - len(body)}", "more"]


def test_a_failed_trial_has_its_place_among_the_best(width: int) -> None:
    best = [row_of(trial(n, "ERROR" if n == 1 else "TERMINATED", loss=float(n))) for n in range(3)]
    picture = TrialsPicture(metric="loss", best=best[0], counts={"TERMINATED": 2, "ERROR": 1})
    assert [line.split()[1] for line in closing_text(picture, best, [], width).splitlines()[2:]] == [
        *("done", "failed", "done")
    ]
