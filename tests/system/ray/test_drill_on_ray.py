"""Drills of a script on Ray: on a cluster that the drill makes, with all faults, and on one that is others' too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drill import cluster_request
from holdfast.drill.faults import KINDS, parse
from holdfast.drill.own_cluster import MARK, OwnCluster
from holdfast.drill.rehearsal import DrillReport, Rehearsal
from holdfast.drill.stage import NodeShape, Stage, marked
from support.ray_clusters.ray_machines import Machines, descendants, left_over, our_processes, started_since, wait_until
from support.repository import SUPPORT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),  # Ray's
]
JOB = SUPPORT / "drill" / "drill_job.py"
IN_WORKERS = [name for name, kind in KINDS.items() if kind.where == "worker"]
ELSEWHERE = [name for name in KINDS if name not in IN_WORKERS and name != "drain"]


@pytest.fixture
def ends_what_it_starts() -> Iterator[None]:
    before = descendants()
    yield
    wait_until(lambda: not started_since(before) and not list(our_processes()), "the end of all that was started")


def drill(*args: str, faults: list[str]) -> DrillReport:
    return Rehearsal(str(JOB), args, addresses=[parse(fault) for fault in faults], seed=7).run()


@pytest.mark.usefixtures("ends_what_it_starts")
@pytest.mark.parametrize("faults", [IN_WORKERS, ELSEWHERE], ids=["in workers", "elsewhere"])
def test_a_script_that_names_ray_survives_every_fault_on_the_drills_own_cluster(
    faults: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    report = drill("--engine", "ray", "--pause", "0.2", faults=faults)
    report.check()
    assert [result.fault.name for result in report.results] == faults, report.skipped
    assert all(result.struck_at and result.differences.is_none for result in report.results)
    lost = {result.fault.name: result for result in report.results}
    for name in {"node-kill", "partition", "worker-kill"} & lost.keys():
        assert len(lost[name].runs[0].attempts) > 1, f"{name} was no fault for the run"


@pytest.mark.usefixtures("ends_what_it_starts")
def test_many_nodes_of_the_drills_own_cluster_start_at_the_first_try(tmp_path: Path) -> None:
    stage = Stage.build(tmp_path / "stage", None)
    (stage.directory / cluster_request.WANTED).touch()
    stage.ask_for_nodes(NodeShape(4, {"CPU": 1.0}, {}))
    with OwnCluster(tmp_path) as cluster:

        def have_started() -> bool:
            cluster.attend(stage)
            return len(cluster._nodes) == 5 and all(node.has_started for node in cluster._nodes.values())

        wait_until(have_started, "the start of all nodes")
        assert {node.order.tries for node in cluster._nodes.values()} == {1}


@pytest.mark.usefixtures("ends_what_it_starts")
def test_a_node_of_the_drills_own_cluster_is_announced_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is long enough for workers elsewhere: Ray takes seconds to start what they are forked from."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    report = drill("--engine", "ray", "--pause", "4", faults=["drain@step=2"])
    report.check()
    (result,) = report.results
    assert result.differences.is_none
    assert len(result.runs[0].attempts) > 1, result.findings


def test_nodes_of_others_are_not_taken_away(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    machines.top_up(2)
    there = set(machines.nodes)
    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    report = drill("--engine", "ray", faults=["worker-kill", "partition", "node-kill", "drain"])
    report.check()
    assert [result.fault.name for result in report.results] == ["worker-kill", "partition"]
    assert [name for name, _ in report.skipped] == ["node-kill", "drain"]
    assert set(machines.nodes) == there
    wait_until(lambda: not left_over(), "the end of what the drill had there")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_drill_that_is_ended_takes_its_cluster_with_it(number: signal.Signals, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "holdfast", "drill", "--keep", str(kept), "--only", "worker-kill", str(JOB)]
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory() as short:  # Ray makes sockets in it
        process = subprocess.Popen([*command, "--engine", "ray"], env={**env, "TMPDIR": short})
        wait_until(lambda: any(b"raylet" in command_of(pid) for pid in marked(MARK, kept)), "a raylet")
        process.send_signal(number)
        assert process.wait(120) == (143 if number == signal.SIGTERM else -number)
        wait_until(lambda: not marked(MARK, kept), "the end of the cluster")
        assert number == signal.SIGKILL or not os.listdir(short)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""
