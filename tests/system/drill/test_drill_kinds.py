"""Every kind of fault on real runs, and each flaw of a script found and named. The job has no framework."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from holdfast.drill import html, running
from holdfast.drill.as_json import as_json
from holdfast.drill.faults import IN_DRIVER, KINDS, parse
from holdfast.drill.rehearsal import DrillReport, Rehearsal
from holdfast.drill.stage import Stage
from support.repository import SUPPORT

JOB = SUPPORT / "drill" / "drill_job.py"


def drill(*args: str, faults: list[str], **options: object) -> DrillReport:
    return Rehearsal(str(JOB), args, addresses=[parse(fault) for fault in faults], **options).run()  # type: ignore[arg-type]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_good_script_survives_every_kind_at_every_point_of_the_commit(tmp_path: Path) -> None:
    without = ("memory-corruption", "reduce-kill", "update-kill")  # it takes no snapshots, and has no torch
    others = [name for name in KINDS if name not in ("driver-kill", *without)]
    faults = [*others, *(f"driver-kill@point={point}" for point in IN_DRIVER)]
    report = drill(faults=faults, seed=7, keep=tmp_path / "kept")
    report.check()
    assert [result.fault.name for result in report.results] == others + ["driver-kill"] * len(IN_DRIVER)
    assert all(result.differences.is_none and result.struck_at for result in report.results)
    told = {finding.code for finding, _ in report.verdicts}
    busy = {"nothing-restored", "ended-first"}  # the disk may be behind by some steps, a notice by seconds
    assert told - busy == {"hang-timeout", "noise"}
    assert as_json(report)["passed"] is True
    assert all(running.processes(Stage(path)) == [] for path in (tmp_path / "kept").iterdir())
    page = html.page(report)
    assert page.count("<polyline") > len(faults)  # each run's way
    assert page.count("<circle") == len(faults)  # where each fault struck
    assert f"{len(faults)} of {len(faults)} faults: as undisturbed" in page
    for plot in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(plot)
    assert "<script" not in page
    assert "http" not in page


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["ignores"], "checkpoint-ignored", "a checkpoint was never read"),
        (["forgets"], "differs", "after a restore the results differ: weights at step"),
        (["failing"], "did-not-recover", "this checkpoint is of no use"),
    ],
)
def test_a_flaw_is_found_under_a_worker_kill(args: list[str], code: str, words: str) -> None:
    report = drill(*args, faults=["worker-kill@rank=1,step=5"])
    assert not report.passed
    (finding,) = [finding for finding, faults in report.verdicts if faults]
    assert finding.code == code
    assert words in finding.text
    with pytest.raises(AssertionError, match="the drill FAILED"):
        report.check()


@pytest.mark.timeout(300)
def test_a_run_without_a_name_is_not_found_again_after_its_driver() -> None:
    report = drill("--name", "", faults=["driver-kill@step=5"])
    assert [finding.code for finding in report.results[0].findings] == ["not-found-again"]
    assert report.results[0].lost >= 4


@pytest.mark.timeout(300)
def test_a_script_that_does_not_repeat_itself_is_told_so() -> None:
    report = drill("unseeded", faults=["worker-kill@rank=1,step=5"])
    assert not report.passed
    assert "not-repeatable" in {finding.code for finding in report.findings}


@pytest.mark.timeout(300)
def test_nodes_of_the_scripts_own_cluster_go_too_and_an_elastic_run_shrinks() -> None:
    report = drill("--nodes", "2", "--least", "1", faults=["partition@rank=1,step=4", "node-kill@rank=1,step=4"])
    report.check()
    assert all(result.struck_at for result in report.results)
    assert all(len(result.runs[0].attempts) > 1 for result in report.results)  # it was a fault for the run


@pytest.mark.timeout(300)
def test_a_run_that_needs_to_be_run_again_passes_with_advice() -> None:
    report = drill("--max-failures", "0", faults=["exception@rank=0,step=4"])
    report.check()
    assert report.results[0].times == 2
    assert "max-failures" in {finding.code for finding in report.results[0].findings}


@pytest.mark.timeout(300)
def test_a_fault_that_is_never_come_to_proves_nothing() -> None:
    report = drill(faults=["worker-kill@step=99"])
    assert [finding.code for finding in report.results[0].findings] == ["did-not-strike"]
    assert not report.passed


@pytest.mark.timeout(300)
def test_a_run_that_takes_too_long_is_ended_and_leaves_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    report = drill("hanging", faults=["worker-kill@step=4"], timeout_s=20.0, keep=kept)
    assert "did-not-end" in {finding.code for finding in report.results[0].findings}
    assert running.processes(Stage(kept / "01")) == []
