"""The guides' scripts on a Ray cluster, unchanged but for the engine's setting: each loses something on the way, goes
on, and ends with the weights of a run on one machine that nothing happened to, bit for bit.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from holdfast import train
from holdfast.store import journal
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from support.examples import example_shell
from support.examples.example_shell import Command, Shell
from support.examples.same_run import assert_same_run, assert_same_state, checkpoint_directory, kill_worker
from support.ray_clusters.ray_hosts import GCS_PORT, hosts
from support.ray_clusters.ray_machines import Machines, left_over, our_processes, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
example_shell.PATIENCE_S = 400.0
EPOCHS = 60


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On this machine, by the engine that is used where none is set. All three scripts train the same."""
    shell = Shell(tmp_path_factory.mktemp("undisturbed"))
    try:
        shell.run("worker_failure.py", *arguments(shell))
    finally:
        shell.close()
    return shell.storage / "run"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("HOLDFAST_ENGINE", "ray")
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def connected(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.setenv("RAY_ADDRESS", machines.address)
    return machines


def arguments(shell: Shell) -> tuple[str, ...]:
    return ("--storage-path", str(shell.storage), "--run-name", "run", "--epochs", str(EPOCHS))


def records(shell: Shell, kind: str) -> list[Record]:
    return [record for record in journal.read(RunLayout(shell.storage / "run"))[0] if record.kind == kind]


def finish(command: Command) -> None:
    assert command.finish() == 0, command.output


def await_epoch(command: Command, machines: Machines, epoch: int) -> str:
    """Wait until rank 1 has done it; Ray's id of the node that it is on."""
    pid = int(command.wait_for(rf"\(rank 1\) pid (\d+): epoch {epoch}\b").group(1))
    raylets = {node.all_processes["raylet"][0].process.pid: id for id, node in machines.nodes.items()}
    while pid not in raylets:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return raylets[pid]


def test_a_head_is_killed_and_another_cluster_goes_on(
    shell: Shell, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the file: a process can be connected to one cluster at a time, and the others share one."""
    first = Machines()
    try:
        first.top_up(2)
        monkeypatch.setenv("RAY_ADDRESS", first.address)
        command = shell.start("driver_failure.py", *arguments(shell))
        command.wait_for(r"\(rank 0\) epoch 5\b")
        first.kill_head()
        command.signal(signal.SIGKILL)  # it was on the head's machine
        command.finish()
        wait_until(lambda: not list(our_processes()), "the end of all that the killed driver had")
    finally:
        first.close()
    second = Machines()
    try:
        second.top_up(2)
        monkeypatch.setenv("RAY_ADDRESS", second.address)
        shell.run("driver_failure.py", *arguments(shell))
    finally:
        second.close()
    assert_weights(shell.storage / "run", undisturbed)


def test_a_worker_is_killed(connected: Machines, shell: Shell, undisturbed: Path) -> None:
    connected.top_up(2)
    command = shell.start("worker_failure.py", *arguments(shell))
    seen = kill_worker(command, rank=1, epoch=4)
    kill_worker(command, rank=0, epoch=9, after=seen)
    finish(command)
    assert len(records(shell, "GroupStarted")) == 3
    assert_same_run(shell.storage / "run", undisturbed)


def test_a_node_is_killed_and_another_joins_in_its_place(connected: Machines, shell: Shell, undisturbed: Path) -> None:
    for spare in connected.top_up(2)[2:]:
        connected.kill(spare)  # nothing is in reserve
    command = shell.start("worker_failure.py", *arguments(shell))
    connected.kill(await_epoch(command, connected, 4))
    connected.add()
    finish(command)
    assert len(records(shell, "GroupStarted")) == 2
    assert_same_run(shell.storage / "run", undisturbed)


def test_a_node_is_drained(connected: Machines, shell: Shell, undisturbed: Path) -> None:
    connected.top_up(3)
    command = shell.start("worker_failure.py", *arguments(shell))
    connected.drain(await_epoch(command, connected, 4), 600)
    finish(command)
    assert len(records(shell, "GroupStarted")) == 2
    assert_same_run(shell.storage / "run", undisturbed)


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_a_node_is_cut_off(shell: Shell, undisturbed: Path, tmp_path: Path) -> None:
    """It lives on, and nobody is told. Another is in reserve."""
    with hosts(4, tmp_path) as (head, *nodes):
        head.start_head("--include-dashboard=false")
        for node in nodes:
            node.join(head, "--num-cpus=1")
        script = (sys.executable, str(example_shell.EXAMPLES / "worker_failure.py"), *arguments(shell))
        address = f"{head.address}:{GCS_PORT}"
        command = head.start(*script, RAY_ADDRESS=address, HOLDFAST_ENGINE="ray", HOLDFAST_NODE_TIMEOUT_S="5")
        manifests = shell.storage / "run" / "checkpoints"
        wait_until(lambda: len(list(manifests.glob("*.json"))) >= 5, "some checkpoints")
        used = records(shell, "GroupStarted")[0].body["leased"]
        victim = next(node for node in nodes if used[0].startswith(f"{node.address}-"))
        victim.port.cut()
        output, _ = command.communicate(timeout=example_shell.PATIENCE_S)
        assert command.returncode == 0, output + (tmp_path / "hosts.log").read_text()
        wait_until(lambda: not list(our_processes()), "the end of all processes of the run")
        wait_until(lambda: not head.known_to_ray(), "the end of all that Ray had for the run")
    assert len(records(shell, "GroupStarted")) == 2
    assert_same_run(shell.storage / "run", undisturbed)


@pytest.mark.parametrize("script", ["driver_failure.py", "auto_resume.py"])
def test_a_driver_is_killed_and_the_same_command_goes_on(
    connected: Machines, shell: Shell, undisturbed: Path, script: str
) -> None:
    connected.top_up(2)
    command = shell.start(script, *arguments(shell))
    command.wait_for(r"\(rank 0\) epoch 5\b")
    command.signal(signal.SIGKILL)
    assert command.finish() != 0
    wait_until(lambda: not left_over(), "the end of all that the killed driver had")
    again = shell.run(script, *arguments(shell))
    assert int(re.findall(r"\(rank 0\) epoch (\d+)", again)[0]) >= 5
    assert_weights(shell.storage / "run", undisturbed)


def test_an_elastic_run_grows_with_a_node_and_goes_on_without_one(connected: Machines, shell: Shell) -> None:
    """Guide 004. Sums are made in another order by other numbers of workers, so the weights are as good as equal."""
    connected.top_up(2)
    options = ("--storage-path", str(shell.storage), "--steps", "3000", "--workers", "1", "3")
    command = shell.start("cluster/elastic.py", *options, "--run-name", "run")

    def worlds() -> list[int]:
        return [record.body["world_size"] for record in records(shell, "GroupStarted")]

    wait_until(lambda: (shell.storage / "run" / "journal").exists() and 2 in worlds(), "a group of two")
    third = connected.add()
    wait_until(lambda: 3 in worlds(), "a group of three")
    connected.kill(third)
    wait_until(lambda: worlds()[-1] == 2, "a group of two again")
    finish(command)
    shell.run("cluster/elastic.py", *options, "--run-name", "undisturbed")
    states = [torch.load(checkpoint_directory(shell.storage / name) / "state.pt") for name in ("run", "undisturbed")]
    for name, weights in states[0]["model"].items():
        torch.testing.assert_close(weights, states[1]["model"][name], rtol=1e-3, atol=1e-4)


def assert_weights(run: Path, reference: Path) -> None:
    """The reference's metrics have another meaning: of the last batch, not the epoch."""
    states = [torch.load(checkpoint_directory(path) / "state.pt") for path in (run, reference)]
    assert states[0]["epoch"] == EPOCHS - 1
    assert_same_state(*states)
    frame = train.Result.from_path(str(run)).metrics_dataframe
    assert frame["epoch"].tolist() == list(range(EPOCHS))
