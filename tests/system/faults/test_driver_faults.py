"""The driver is killed: nothing of the run outlives it, and the same command resumes from the last commit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.errors import RunInUseError
from holdfast.runs.stored_experiment import load
from holdfast.runs.timeline import moments
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from support.faults.job import STEPS, expected, trainer
from support.repository import SUPPORT

JOB = SUPPORT / "faults" / "job.py"
PATIENCE_S = 120.0


def start(storage: Path, name: str = "run", **config: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(JOB), str(storage), name, json.dumps(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    return output.splitlines()[-1]


def wait_for_commit(storage: Path, report: int, name: str = "run") -> None:
    """Wait until the run has committed its report number ``report`` or a later one."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        manifests = (storage / name / "checkpoints").glob("*.json")
        if any(int(path.stem.removeprefix("checkpoint_")) >= report for path in manifests):
            return
        time.sleep(0.005)
    raise AssertionError(f"no checkpoint for report {report}")


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("seed", range(4))
def test_the_same_command_goes_on_after_a_kill_at_a_random_moment(seed: int, tmp_path: Path) -> None:
    moments = random.Random(seed)
    for _ in range(2):
        process = start(tmp_path)
        time.sleep(moments.uniform(0.0, 1.5))
        kill(process)
    assert finish(start(tmp_path)) == expected()


def test_no_work_that_was_committed_is_done_again(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_commit(tmp_path, 10)
    kill(process)
    assert finish(start(tmp_path)) == expected()
    records, damage = journal.read(RunLayout(tmp_path / "run"))
    bases = [record.body["base"] for record in records if record.kind == "GroupStarted"]
    assert not damage
    assert bases[0] == 0
    assert bases[1] >= 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_gracefully_and_the_same_command_goes_on(number: int, tmp_path: Path) -> None:
    process = start(tmp_path, verbose=1)
    wait_for_commit(tmp_path, 5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in ((-signal.SIGINT, 130) if number == signal.SIGINT else (128 + number,))
    assert "run the same command again" in errors
    assert load(tmp_path / "run").error is None
    assert not any((tmp_path / "run" / ".staging").glob("*/*")), "something staged was not made durable"
    assert finish(start(tmp_path)) == expected()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_commit(tmp_path, 5)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert finish(start(tmp_path)) == expected()


def test_driver_deaths_cost_no_retries_and_retries_used_stay_used(tmp_path: Path) -> None:
    process = start(tmp_path, max_failures=2, raise_at=[3, 20, 30])
    wait_for_commit(tmp_path, 8)
    kill(process)
    second = start(tmp_path, max_failures=2, raise_at=[3, 20, 30])
    _, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    assert "planned failure at 30" in errors
    assert "No retry left: FailureConfig(max_failures=2)" in errors
    # The verdict is a person's to overrule: run again, and the budget is whole again.
    assert finish(start(tmp_path, max_failures=2, raise_at=[3, 20, 30])) == expected()


def test_what_a_person_put_beside_the_checkpoints_stays(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    project = tmp_path / "another-project"
    project.mkdir()
    (project / "file").write_text("theirs")
    process = start(tmp_path)
    wait_for_commit(tmp_path, 5)
    kill(process)
    newest = max(path.name.removesuffix(".json") for path in checkpoints.glob("*.json"))
    shutil.copytree(checkpoints / newest, checkpoints / "best")
    (checkpoints / "linked").symlink_to(project)
    assert finish(start(tmp_path)) == expected()
    assert json.loads((checkpoints / "best" / "rank-0.json").read_text())["step"] == int(newest[-6:])
    assert (checkpoints / "linked" / "file").read_text() == "theirs"


def test_a_moved_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    process = start(tmp_path / "old")
    wait_for_commit(tmp_path / "old", 5)
    kill(process)
    shutil.move(str(tmp_path / "old"), str(tmp_path / "new"))
    assert finish(start(tmp_path / "new")) == expected()
    assert not (tmp_path / "old").exists()


def test_another_name_starts_afresh_and_a_finished_one_warns(tmp_path: Path) -> None:
    assert finish(start(tmp_path)) == expected()
    other = start(tmp_path, "other", steps=3)
    assert finish(other) == expected(3)
    again = start(tmp_path, verbose=1)
    output, errors = again.communicate(timeout=PATIENCE_S)
    assert output.splitlines()[-1] == expected()
    assert "Run 'run' already finished. This start continues from " in errors
    assert "RunConfig(fresh=True)" in errors
    assert "Nothing was trained: the run had already finished" in errors
    assert load(tmp_path / "run").rows[-1]["step"] == STEPS


def test_changed_settings_are_told_when_a_run_resumes_and_kept_in_its_history(tmp_path: Path) -> None:
    process = start(tmp_path, lr=0.1)
    wait_for_commit(tmp_path, 3)
    kill(process)
    again = start(tmp_path, lr=0.2, verbose=1)
    errors = again.communicate(timeout=PATIENCE_S)[1]
    assert "Run 'run' resumes with changed settings: lr 0.1 -> 0.2" in errors
    told = [moment.text for moment in moments(load(tmp_path / "run").records) if moment.kind == "settings"]
    assert len(told) == 1
    assert "lr 0.1 -> 0.2" in told[0]
    assert "Nothing was trained" not in errors


def test_a_second_driver_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for_commit(tmp_path, 3)
    with pytest.raises(RunInUseError, match=f"{first.pid}"):
        trainer(str(tmp_path), "run", {}).fit()
    assert finish(first) == expected()


def test_the_agent_is_killed(tmp_path: Path) -> None:
    """Its workers go with it; a new agent takes over, and it costs one failure."""
    process = start(tmp_path, max_failures=1)
    wait_for_commit(tmp_path, 5)
    agent = next(pid for pid in children(process.pid) if name(pid) == "hf-agent")
    os.kill(agent, signal.SIGKILL)
    assert finish(process) == expected()


def test_the_zygote_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, max_failures=1)
    wait_for_commit(tmp_path, 5)
    agent = next(pid for pid in children(process.pid) if name(pid) == "hf-agent")
    os.kill(next(pid for pid in children(agent) if name(pid) == "hf-zygote"), signal.SIGKILL)
    assert finish(process) == expected()


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_restore_and_can_restore(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert not train.DataParallelTrainer.can_restore(path)
    process = start(tmp_path)
    wait_for_commit(tmp_path, 5)
    kill(process)
    assert train.DataParallelTrainer.can_restore(path)
    from support.faults.job import train_fn

    restored = train.DataParallelTrainer.restore(path, train_loop_per_worker=train_fn)
    assert restored.scaling_config.num_workers == 2
    assert restored.run_config.checkpoint_config.num_to_keep == 3
    restored.run_config.verbose = 0
    assert restored.fit().return_value == expected()
