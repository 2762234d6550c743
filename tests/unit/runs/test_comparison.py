"""Which settings differ between runs, by the names that their users gave them."""

from __future__ import annotations

from holdfast.runs.comparison import changes_text, differing_settings

BEFORE = {"id": "a", "name": "x", "verbose": 1, "scaling": {"num_workers": 2}, "train_loop_config": {"lr": 0.1}}


def test_settings_go_by_name_and_what_a_run_is_called_does_not_count() -> None:
    after = {**BEFORE, "id": "b", "name": "y", "verbose": 0, "train_loop_config": {"lr": 0.2, "net": {"depth": 3}}}
    assert differing_settings([BEFORE, after]) == {"lr": [0.1, 0.2], "net/depth": [None, 3]}
    assert changes_text(BEFORE, after) == "lr 0.1 -> 0.2, net/depth None -> 3"
    assert changes_text(BEFORE, {**BEFORE, "id": "b"}) == ""


def test_a_value_that_equals_nothing_is_no_change_if_it_reads_the_same() -> None:
    assert differing_settings([{"train_loop_config": {"a": float("nan")}}] * 2) == {}
    lists = [{"train_loop_config": None}, {"train_loop_config": {"a": [1, 2]}}]
    assert differing_settings(lists) == {"a": [None, [1, 2]]}


def test_many_changes_are_cut_short() -> None:
    text = changes_text({}, {"train_loop_config": {f"x{number}": number for number in range(9)}})
    assert text.endswith("x5 None -> 5 and 3 more")
