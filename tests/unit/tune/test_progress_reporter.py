"""The table of trials as text, and when and what the reporter prints."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tune.progress_reporter import CLIReporter, ProgressReporter, TrialRow, error_table, trial_table
from support.tune.logged_trial import LoggedTrial


def row(name: str, status: str = "RUNNING", error: str | None = None, lr: Any = 0.1, **metrics: Any) -> TrialRow:
    return TrialRow(name, status, {"lr": lr, "net": {"depth": 2}}, metrics, error)


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if "─" not in line]


def test_a_table_has_the_columns_that_were_asked_for_under_their_headings() -> None:
    rows = [row("a", loss=0.5, other=1), row("b", "PENDING")]
    table = trial_table(rows, metric_columns={"loss": "Verlust"}, parameter_columns={"net/depth": "depth"})
    assert lines(table) == [
        ["trial", "status", "depth", "Verlust"],
        ["a", "RUNNING", "2", "0.5"],
        ["b", "PENDING", "2"],
    ]


def test_columns_that_nobody_fills_are_left_out() -> None:
    table = trial_table([row("a")], metric_columns={"loss": "loss"}, parameter_columns={"lr": "lr", "gone": "gone"})
    assert lines(table)[0] == ["trial", "status", "lr"]


def test_too_many_trials_share_the_rows_fairly() -> None:
    rows = [row(f"{status[0]}{n}", status) for status in ("TERMINATED", "RUNNING", "PENDING") for n in range(10)]
    table = trial_table([*rows, row("E0", "ERROR")], metric_columns={}, parameter_columns={}, max_rows=8)
    names = [line[0] for line in lines(table)[1:-1]]
    assert names == ["R0", "R1", "R2", "P0", "P1", "E0", "T8", "T9"]
    assert table.splitlines()[-1] == "23 more not shown: 7 RUNNING, 8 PENDING, 8 TERMINATED"


@given(st.lists(st.sampled_from(["RUNNING", "ERROR", "TERMINATED", "ODD"]), max_size=30), st.integers(0, 12))
def test_no_more_rows_than_allowed_and_every_status_that_there_is_room_for(statuses: list[str], room: int) -> None:
    rows = [row(f"t{place}", status) for place, status in enumerate(statuses)]
    table = trial_table(rows, metric_columns={}, parameter_columns={}, max_rows=room)
    shown = [line[1] for line in lines(table)[1:] if line[0].startswith("t")]
    assert len(shown) == min(room, len(rows))
    assert len(set(shown)) == min(room, len(set(statuses)))


def test_nothing_in_a_table_can_move_the_cursor_or_break_a_line() -> None:
    odd = row("a\x1b[2J\nb", lr="[red]x\n", loss=numpy.float32(0.25), note="long" * 30, nan=math.nan, flag=True)
    columns = {name: name for name in ("loss", "note", "nan", "flag")}
    table = trial_table([odd], metric_columns=columns, parameter_columns={"lr": "lr"}, max_column_length=8)
    assert "\x1b" not in table
    (_, line) = lines(table)
    assert line[1:] == ["RUNNING", "[red]x", "0.25", "lon…lon…", "nan", "True"]


@pytest.mark.parametrize("width", [30, 60, 100])
def test_a_table_keeps_to_the_width(width: int) -> None:
    rows = [row("a_rather_long_name_of_a_trial", loss=0.123456, accuracy=0.99)]
    columns = {"loss": "a long heading", "accuracy": "accuracy"}
    table = trial_table(rows, metric_columns=columns, width=width)
    assert max(map(len, table.splitlines())) <= width


def test_errors_are_listed_with_those_that_were_tried_again() -> None:
    rows = [row("a", "ERROR", "ValueError: bad\nmore"), row("b"), row("c", "RUNNING", "OSError: gone")]
    text = error_table(rows)
    assert lines(text)[1:-1] == [["a", "ValueError:", "bad"], ["c", "*", "OSError:", "gone"]]
    assert text.splitlines()[-1] == "* was retried"
    assert error_table([row("b")]) == ""
    assert error_table(rows, max_rows=1).splitlines()[-1] == "1 more not shown"


def test_the_metric_that_counts_has_a_column_before_it_has_a_value() -> None:
    rows = [row("a")._replace(metrics={}), row("b")._replace(metrics={})]
    text = trial_table(rows, metric_columns={"loss": "loss", "accuracy": "accuracy"}, width=80, metric="loss")
    assert "loss" in text.splitlines()[0]
    assert "accuracy" not in text


def reporter(**options: Any) -> CLIReporter:
    return CLIReporter(**{"clock": lambda: 100.0, **options})


def test_the_text_says_how_far_it_is_and_what_is_best() -> None:
    subject = reporter(metric="loss", mode="min")
    subject.setup(start_time=30.0, total_samples=4)
    rows = [row("a", "TERMINATED", loss=0.5), row("b", loss=math.nan), row("c", "PENDING")]
    first, info, best, *_ = subject.text(rows, False, "memory: 1 GB").splitlines()
    assert first == "trials: 3 of 4 (1 RUNNING, 1 PENDING, 1 TERMINATED), running for 1 m 10 s"
    assert info == "memory: 1 GB"
    assert best == "current best: a with loss=0.5 by lr=0.1, net/depth=2"


def test_an_experiment_without_trials_or_end_has_a_text_too() -> None:
    subject = reporter()
    subject.setup(start_time=100.0, total_samples=math.inf)
    assert subject.text([], True) == "trials: 0 of inf, running for 0 s"


def test_metrics_are_inferred_up_to_the_limit_and_stay() -> None:
    subject = reporter(infer_limit=2)
    metrics = {"training_iteration": 1, "pid": 7, "note": "x", "b": 1, "a": 2, "c": 3}
    assert lines(subject.text([row("t", **metrics)], False))[1][4:] == ["iter", "b", "a"]
    assert lines(subject.text([row("t", c=3, a=1)], False))[1][4:] == ["a"]


def test_columns_can_be_added() -> None:
    subject = reporter(metric_columns=["loss"], parameter_columns={"lr": "rate"})
    subject.add_metric_column("acc", "accuracy")
    subject.add_parameter_column("net/depth")
    text = subject.text([row("a", loss=1, acc=2)], False)
    assert lines(text)[1] == ["trial", "status", "rate", "net/depth", "loss", "accuracy"]
    with pytest.raises(ValueError, match="'loss' already exists"):
        subject.add_metric_column("loss")


def test_sorted_by_the_metric_the_best_of_each_status_are_kept() -> None:
    rows = [row(name, "TERMINATED", score=score) for name, score in (("a", 1), ("b", 3), ("c", math.nan), ("d", 2))]
    subject = reporter(metric="score", mode="max", sort_by_metric=True, max_progress_rows=3)
    names = [line[0] for line in lines(subject.text(rows, False))[3:6]]
    assert names == ["b", "d", "a"]


def test_tables_can_be_left_to_the_end() -> None:
    subject = reporter(print_intermediate_tables=False)
    assert "status" not in subject.text([row("a")], False)
    assert "status" in subject.text([row("a")], True)


def test_it_reports_no_more_often_than_it_was_told_but_always_at_the_end() -> None:
    now = 0.0
    subject = CLIReporter(max_report_frequency=5, clock=lambda: now)
    assert subject.should_report([])
    now = 4.9
    assert not subject.should_report([])
    assert subject.should_report([], done=True)
    now = 9.9
    assert subject.should_report([])


def test_it_prints_where_it_was_told() -> None:
    out = io.StringIO()
    trial = LoggedTrial(last_result={"loss": 0.25, "training_iteration": 3}, error="ValueError: x")
    reporter(out=out).report([trial], True, "cpu: 2")
    assert "train_t1  RUNNING  0.1" in out.getvalue()
    assert "cpu: 2\n" in out.getvalue()
    assert "train_t1 *" in out.getvalue()


def test_a_reporter_of_ones_own_has_a_setup_that_does_nothing() -> None:
    ProgressReporter().setup(metric="loss", later_argument=1)
    with pytest.raises(NotImplementedError):
        ProgressReporter().report([], True)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: CLIReporter(mode="best"), ValueError, "mode='best'"),
        (lambda: CLIReporter(max_progress_rows=-1), ValueError, "max_progress_rows=-1"),
        (lambda: CLIReporter(max_column_length=1), ValueError, "max_column_length=1"),
        (lambda: CLIReporter(metric="a", mode="min").setup(metric="b"), ValueError, "TuneConfig says 'b'"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
