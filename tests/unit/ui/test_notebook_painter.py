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


def test_warnings_stay_and_are_not_cut() -> None:
    """They were among the last lines of output, which scroll away, and only as far as a headline goes."""
    shown: list[str] = []
    painter = NotebookPainter(shown.append)
    changed = "Run 'run' resumes with changed settings: " + ", ".join(f"name_{n}: {n} -> {n + 1}" for n in range(60))
    notices = [
        DisplayNotice(0.0, "warning", f"warning: {text}")
        for text in (changed, f"two\nlines {HOSTILE}\x1b[31m", changed)
    ]
    painter.paint(Picture(), notices, 0.0, False)
    lines = [OutputLine(0, f"line {number}") for number in range(100)]
    painter.paint(Picture(), lines, 1.0, True)
    html = shown[-1]
    warned = html[: html.index("<pre")]
    assert html.count("name_59: 59 -&gt; 60") == warned.count("name_59: 59 -&gt; 60") == 1
    assert "two\nlines &lt;script&gt;" in warned
    assert "\x1b" not in html


def test_very_many_warnings_leave_some_out() -> None:
    shown: list[str] = []
    notices = [DisplayNotice(0.0, "warning", f"warning: number {number}.") for number in range(100)]
    NotebookPainter(shown.append).paint(Picture(), notices, 0.0, True)
    assert "number 0." in shown[0]
    assert "number 99." in shown[0]
    assert "(80 more)" in shown[0]
    assert shown[0].count("⚠") == 20


def test_a_trial_that_failed_is_among_the_failures_and_not_a_warning() -> None:
    shown: list[str] = []
    picture = TrialsPicture(failures=(ShownFailure(0.0, "trial_3 failed", ""),), failure_count=1)
    NotebookPainter(shown.append).paint(picture, [DisplayNotice(0.0, "warning", "trial_3 failed")], 0.0, True)
    assert "⚠" not in shown[0]
    assert "✕ trial_3 failed" in shown[0]
