"""What is told from what was seen, on outcomes made by hand: each mistake by its name, and none that is not there."""

from __future__ import annotations

import pytest

from holdfast.drill.drill_verdict import ADVICE, PROBLEM, Finding
from holdfast.drill.faults import Fault
from holdfast.drill.outcome import RunOutcome, SeenAttempt
from holdfast.drill.run_comparison import compare, noise_before
from support.drill.drill_outcomes import findings, outcome, restored


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def another_way(run: RunOutcome, since: int = 5) -> RunOutcome:
    for step in range(since, len(run.rows) + 1):
        run.rows[step - 1] = {"step": step, "loss": 7.0}
    return run


def test_a_restored_run_that_is_the_same_has_no_finding() -> None:
    run = restored()
    assert findings(outcome(), run) == []
    assert compare(outcome(), run).is_none
    assert str(compare(outcome(), run)) == "none"
    assert run.lost == 2
    assert run.next_report({"time": 5.0, "attempt": 1}) == 15.0


def test_a_schedule_that_starts_again() -> None:
    run = another_way(restored(schedules=lambda step: [step - 4], rates=lambda _: [[0.1], [0.1]]))
    finding = only(findings(outcome(), run))
    assert finding.code == "schedule-lost"
    assert finding.text == (
        "the learning-rate schedule starts again from zero after a restore: at step 5 it is 0.1, not 0.02"
    )


def test_a_schedule_that_is_elsewhere() -> None:
    run = another_way(restored(schedules=lambda step: [step + 50]))
    assert "changed" in only(findings(outcome(), run)).text


def test_data_that_starts_again() -> None:
    run = another_way(restored(batches=lambda step: [f"batch {step - 4}"]))
    finding = only(findings(outcome(), run))
    assert finding.code == "data-order"
    assert finding.text.startswith("the data starts again from the beginning after a restore: from step 5 on")


def test_data_in_another_order() -> None:
    run = another_way(restored(batches=lambda step: [f"shuffled {step}"]))
    assert only(findings(outcome(), run)).text.startswith("the data order changed after a restore")


def test_other_data_is_a_difference_even_if_all_else_is_the_same() -> None:
    assert only(findings(outcome(), restored(batches=lambda _: ["other"]))).code == "data-order"


def test_an_offered_checkpoint_that_nobody_asks_for() -> None:
    finding = only(findings(outcome(), another_way(restored(asked=lambda _: False, opened=lambda _: False))))
    assert finding.code == "checkpoint-ignored"
    assert "a checkpoint was never read" in finding.text
    assert "4 steps of work were lost" in finding.text


def test_a_checkpoint_that_is_asked_for_and_not_opened() -> None:
    finding = only(findings(outcome(), another_way(restored(opened=lambda _: False))))
    assert "none of its files was opened" in finding.text


def test_a_checkpoint_that_is_read_in_a_way_that_cannot_be_seen_is_no_mistake() -> None:
    assert findings(outcome(), restored(opened=lambda _: False)) == []


def test_it_is_enough_that_one_rank_reads_and_tells_the_others() -> None:
    run = restored()
    for note in run.records[1].values():
        note["asked"] = note["opened"] = False
    assert findings(outcome(), run) == []


def test_a_random_state_that_is_not_restored() -> None:
    run = another_way(restored(random=lambda step: {"torch": f"other {step}", "python": "other"}))
    finding = only(findings(outcome(), run))
    assert finding.code == "random-state"
    assert "the random state of torch differs" in finding.text  # and not that of Python, which nobody uses


def test_another_random_state_that_changes_nothing_is_no_mistake() -> None:
    assert findings(outcome(), restored(random=lambda step: {"torch": f"other {step}"})) == []


def test_what_has_no_name_is_shown_with_its_values() -> None:
    finding = only(findings(outcome(), another_way(restored())))
    assert finding.code == "differs"
    assert "loss at step 5 (0.2 became 7)" in finding.text


def test_a_run_that_is_not_found_again() -> None:
    first = outcome(3, name="train_a")
    first.finished = False
    found = findings(outcome(name="train_0"), first, outcome(name="train_b"), times=2)
    assert only(found).code == "not-found-again"


@pytest.mark.parametrize(("code", "expected"), [(None, "did-not-end"), (1, "did-not-recover")])
def test_a_run_that_does_not_end_well(code: int | None, expected: str) -> None:
    run = outcome(3)
    run.finished, run.reason = False, "rank 1 raised ValueError"
    finding = only(findings(outcome(), run, code=code, times=3))
    assert finding.code == expected
    assert finding.severity == PROBLEM


def test_a_budget_of_no_failures_is_advice() -> None:
    run = restored()
    run.identity["failure"]["max_failures"] = 0
    finding = only(findings(outcome(), run, times=2))
    assert (finding.code, finding.severity) == ("max-failures", ADVICE)


def test_no_limit_on_hangs_is_advice() -> None:
    run = restored()
    run.identity["failure"]["hang_timeout_s"] = None
    assert only(findings(outcome(), run, fault=Fault("gil-hold", step=5))).code == "hang-timeout"


def test_nothing_to_fall_back_to_is_advice() -> None:
    run = restored()
    run.attempts[1], run.quarantined = SeenAttempt(2, 0, 2, None), ["checkpoint_000004"]
    assert only(findings(outcome(), run)).code == "from-the-beginning"


def test_a_fault_that_came_before_the_first_checkpoint_proves_little() -> None:
    run = restored()
    run.attempts[1] = SeenAttempt(2, 0, 2, None)
    finding = only(findings(outcome(), run))
    assert (finding.code, finding.severity) == ("nothing-restored", ADVICE)
    assert "--fault worker-kill@step=10" in finding.remedy


def test_a_run_that_ended_before_its_node_went_proves_little() -> None:
    finding = only(findings(outcome(), outcome(), fault=Fault("drain", step=5)))
    assert (finding.code, finding.severity) == ("ended-first", ADVICE)
    assert findings(outcome(), restored(), fault=Fault("drain", step=5)) == []


def test_another_world_size_is_not_compared() -> None:
    run = another_way(restored())
    run.attempts[1] = SeenAttempt(2, 4, 1, "checkpoint_000004")
    assert not compare(outcome(), run).is_comparable
    finding = only(findings(outcome(), run))
    assert (finding.code, finding.severity) == ("not-compared", ADVICE)


def test_what_differed_before_the_fault_does_not_count() -> None:
    expected, run = outcome(), restored()
    for step, row in enumerate(run.rows):
        row["seconds"] = float(step)
    noise = noise_before(expected, run)
    assert noise is not None
    assert [point.name for point in noise.metrics] == ["seconds"]
    assert not compare(expected, run).is_none
    assert compare(expected, run).without(noise).is_none


def test_a_metric_that_differs_alone_is_looked_into_once_more() -> None:
    run = restored()
    run.rows[6]["seconds"] = 1.0
    noise = noise_before(outcome(), run)
    assert noise is not None
    assert compare(outcome(), run).without(noise).is_in_metrics_only
    assert not compare(outcome(), restored(batches=lambda _: ["other"])).is_in_metrics_only
    assert not compare(outcome(), restored()).is_in_metrics_only


def test_a_script_that_does_not_repeat_itself_cannot_be_told_by_its_beginning() -> None:
    run = restored()
    run.records[0][2]["files"] = {"state.json": "other"}
    assert noise_before(outcome(), run) is None


@pytest.mark.parametrize(
    ("within", "batches", "differs"),
    [(True, ["c"], False), (True, [], False), (True, ["b"], True), (False, ["c"], True)],
)
def test_a_process_that_resumed_within_a_step_has_the_rest_of_its_data(
    within: bool, batches: list[str], differs: bool
) -> None:
    expected, found = outcome(), outcome()
    expected.records[0][3]["batches"] = ["a", "b", "c"]
    found.records[0][3] |= {"batches": batches, "within": within}
    assert bool(compare(expected, found).batches) == differs
