"""What a notebook shows of a run as it goes: progress, curves and failures, and nothing of it that runs."""

from __future__ import annotations

from holdfast.runs.run_progress import progress_with
from holdfast.tune.experiment.trials_notebook_painter import TrialsNotebookPainter
from holdfast.tune.experiment.trials_picture import TrialsPicture
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture, ShownFailure
from holdfast.ui.notebook_painter import NotebookPainter

HOSTILE = "<script>alert(1)</script>"


def test_progress_metrics_failures_and_lines_are_shown() -> None:
    shown: list[str] = []
    painter = NotebookPainter(shown.append, progress_with({"epochs": 10}))
    picture = Picture(name="run", state="running", attempt_number=2, world_size=4)
    for epoch in range(5):
        picture.reports, picture.metrics = epoch + 1, {"epoch": epoch, "loss": 1 / (epoch + 1)}
        painter.paint(picture, [OutputLine(1, f"epoch {epoch}")], float(epoch), False)
    picture.failures, picture.failure_count = (ShownFailure(0.0, "rank 1 was killed", "retry 1"),), 1
    painter.paint(picture, [DisplayNotice(0.0, "failure", "rank 1 was killed")], 5.0, True)
    html = shown[-1]
    assert 'value="0.5000"' in html
    assert "5 of 10 epochs" in html
    assert "<polyline" in html
    assert "rank 1 was killed: retry 1" in html
    assert "(rank 1) epoch 4" in html


def test_it_is_drawn_twice_a_second_at_most_and_always_at_the_end() -> None:
    shown: list[str] = []
    painter = NotebookPainter(shown.append)
    for moment in (0.0, 0.1, 0.2, 0.6, 0.7):
        painter.paint(Picture(), [], moment, False)
    assert len(shown) == 2
    painter.paint(Picture(), [], 0.71, True)
    assert len(shown) == 3


def test_what_a_run_says_is_text() -> None:
    shown: list[str] = []
    picture = Picture(name=HOSTILE, state="running", detail=HOSTILE, reports=1, metrics={HOSTILE: HOSTILE})
    picture.failures = (ShownFailure(0.0, HOSTILE, HOSTILE),)
    NotebookPainter(shown.append).paint(picture, [OutputLine(0, f"\x1b[31m{HOSTILE}")], 0.0, True)
    assert "<script" not in shown[0]
    assert "\x1b" not in shown[0]


def test_an_experiment_shows_how_many_trials_have_ended() -> None:
    shown: list[str] = []
    picture = TrialsPicture(name="search", counts={"TERMINATED": 3, "ERROR": 1, "RUNNING": 1}, total=8)
    TrialsNotebookPainter(shown.append).paint(picture, [], 0.0, True)
    assert "4 of 8 trials" in shown[0]
    assert 'value="0.5000"' in shown[0]
