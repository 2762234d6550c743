"""Drills of torch scripts: the planted mistakes of examples/drill are found by name, the good one is bit-identical."""

from __future__ import annotations

import pytest

from holdfast.drill.faults import KINDS, parse
from holdfast.drill.rehearsal import DrillReport, Rehearsal
from support.repository import EXAMPLES, SUPPORT


def drill(script: str, *args: str, faults: list[str]) -> DrillReport:
    return Rehearsal(str(EXAMPLES / script), args, addresses=[parse(fault) for fault in faults]).run()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("scheduler_not_saved", "schedule-lost", "the learning-rate schedule starts again from zero after a restore"),
        ("sampler_not_restored", "data-order", "the data starts again from the beginning after a restore"),
        pytest.param(  # also shown by a job without torch, which is quicker
            *("checkpoint_ignored", "checkpoint-ignored", "a checkpoint was never read"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_planted_mistake_is_found_and_named(script: str, code: str, words: str) -> None:
    report = drill(f"drill/{script}.py", faults=["worker-kill@rank=1,step=6"])
    assert [finding.code for finding in report.results[0].findings] == [code]
    assert words in report.results[0].findings[0].text
    assert not report.passed


@pytest.mark.timeout(600)
def test_the_good_script_is_bit_identical() -> None:
    report = drill("drill/good.py", faults=["worker-kill@rank=1,step=6"])
    report.check()
    assert report.results[0].differences.is_none
    assert {finding.code for finding, _ in report.verdicts} <= {"nothing-restored"}  # a busy disk may be behind


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("job", "names", "state", "again"),
    [
        ("live_drill_job", ["reduce-kill"], "a peer, live", 0),
        pytest.param("live_drill_job", ["update-kill"], "a peer, live", 0, marks=pytest.mark.soak),
        pytest.param("snapshots_drill_job", ["reduce-kill", "update-kill"], "memory", 1, marks=pytest.mark.soak),
    ],
)
def test_a_kill_within_a_step_is_survived_by_the_tier_that_the_script_has(
    job: str, names: list[str], state: str, again: int
) -> None:
    faults = [parse(f"{name}@rank=1,step=4") for name in names]
    report = Rehearsal(str(SUPPORT / "drill" / f"{job}.py"), (), addresses=faults).run()
    report.check()
    assert {result.state_from for result in report.results} == {state}
    assert all(result.steps_again <= again and result.struck_at == 4 for result in report.results)
    assert {str(result.differences) for result in report.results} == {"none"}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_state_in_memory_is_used_and_when_it_is_damaged_the_checkpoint_is() -> None:
    faults = [parse(f"{name}@rank=1,step=5,point=before") for name in ("worker-kill", "memory-corruption")]
    report = Rehearsal(str(SUPPORT / "drill" / "snapshots_drill_job.py"), (), addresses=faults).run()
    assert [result.state_from for result in report.results] == ["memory", "checkpoint"]
    assert [(result.recovered, str(result.differences)) for result in report.results] == [(True, "none")] * 2
    assert report.results[0].steps_again <= 1
    assert report.results[1].steps_again > 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "command",
    [
        "drill/good.py",
        "worker_failure.py --epochs 6 --run-name drill",
        "driver_failure.py --epochs 6",
        "auto_resume.py --epochs 6",
        "keep_best.py --epochs 6 --run-name drill",
        "async_validation.py --epochs 6 --run-name drill",
        "sharded_checkpoints.py --epochs 6 --run-name drill",
        "resume_from_checkpoint.py --epochs 6 --run-name drill",
        "elastic_data.py --epochs 3 --run-name drill",
        "elastic.py --run-name drill",
    ],
)
def test_an_example_survives_every_kind(command: str) -> None:
    script, *args = command.split()
    report = drill(script, *args, faults=list(KINDS))
    report.check()
    assert all(result.differences.is_none for result in report.results)
