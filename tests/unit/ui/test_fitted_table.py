"""Tables at any width: what counts is shown, names can be told apart, no heading is double."""

from __future__ import annotations

import pytest

from holdfast.tune.progress_reporter import TrialRow, trial_table
from holdfast.ui.display_picture import Picture, TimeLeft, resize_text
from holdfast.ui.fitted_table import Column, fitted, lines, shortened

NAMES = [f"train_transformer_classifier_with_augmentation_5f3a_{number:05d}" for number in range(50)]


def rows() -> list[TrialRow]:
    config = {"lr": 0.1, "optimizer": {"weight_decay": 0.01}, "model": {"weight_decay": None, "hidden_dim": 512}}
    metrics = {"training_iteration": 3, "validation": {"accuracy": 0.5}, "train": {"accuracy": 0.75}, "lr": 0.05}
    return [TrialRow(name, "RUNNING", config, metrics) for name in NAMES]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_metric_is_always_shown_and_names_can_be_told_apart(width: int) -> None:
    columns = {name: name for name in ("training_iteration", "validation/accuracy", "train/accuracy", "lr")}
    head, rule, *body = trial_table(
        rows(), metric_columns=columns, width=width, metric="validation/accuracy"
    ).splitlines()
    assert max(map(len, (head, rule, *body))) <= width
    assert [line.split()[0][-5:] for line in body] == [name[-5:] for name in NAMES]
    assert len({line.split()[0] for line in body}) == 50
    headings = head.split()
    assert len(set(headings)) == len(headings)
    assert any(heading.endswith("acy") and heading.startswith("val") for heading in headings)
    assert all("0.5" in line.split() for line in body)


def test_a_wide_table_shows_all_and_none_is_a_value() -> None:
    head, _, first, *_ = trial_table(rows(), metric_columns={"lr": "lr"}, width=200).splitlines()
    assert head.split() == [
        *("trial", "status", "config/lr", "optimizer/weight_decay", "model/weight_decay", "model/hidden_dim", "lr")
    ]
    assert first.split()[2:] == ["0.1", "0.01", "None", "512", "0.05"]


def test_a_heading_is_cut_to_its_end_if_that_names_no_other_column() -> None:
    columns = [Column("trial", ["a"], 0), Column("model/decay", ["1"]), Column("optimizer/rate", ["2"])]
    (_, decay, rate) = fitted([*columns], 30)
    assert (decay.heading, rate.heading) == ("decay", "rate") or "/" in decay.heading
    doubled = [*columns[:2], Column("optimizer/decay", ["2"])]
    assert all(column.heading != "decay" for column in fitted(doubled, 30))


def test_little_space_shortens_the_name_before_the_result() -> None:
    table = lines([Column("trial", ["a_long_name_00001"], 0, is_number=False), Column("loss", ["0.123456789"], 0)], 18)
    assert table[-1] == "a_…01  0.123456789"
    assert shortened("abc", 2) == "…c"


def test_the_time_left_is_told_when_the_number_of_steps_is_known() -> None:
    shown = TimeLeft(lambda _metrics, reports: (reports / 100, f"{reports} of 100 steps"))
    assert shown.text(Picture(reports=0), 0.0) == ""
    assert shown.text(Picture(reports=10), 10.0) == "10 of 100 steps (10%)"
    assert shown.text(Picture(reports=20), 20.0) == "20 of 100 steps (20%), about 1 m 20 s left"
    assert shown.text(Picture(reports=100), 100.0) == "100 of 100 steps (100%)"
    quick = TimeLeft(lambda _metrics, reports: (reports / 100, f"{reports} of 100 steps"))
    quick.text(Picture(reports=10), 0.0)
    assert quick.text(Picture(reports=99), 10.0) == "99 of 100 steps (99%)", "less than a second is not worth a word"
    assert TimeLeft(None).text(Picture(reports=3), 1.0) == ""


def test_a_resize_names_the_nodes() -> None:
    assert resize_text(4, 3, (), ("node-2",)) == "was 4; node-2 left"
    assert resize_text(2, 2, (), ()) == ""
    assert resize_text(2, 4, [f"node-{n}" for n in range(6)], ()).endswith("node-3 and 2 more joined")
