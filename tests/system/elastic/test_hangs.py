"""An attempt that makes no progress: found, explained, and restarted; with a budget of its own if wanted."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import holdfast.train as train
from holdfast.train.torch import TorchTrainer
from support.elastic.elastic_job import Scene


def collective_fn(config: dict[str, Any]) -> int:
    """Five steps, each with an all_reduce and a report; whoever is told to gets stuck before the third."""
    rank = train.get_context().get_world_rank()
    for step in range(5):
        if step == 2 and rank == config["rank"] and not any(Path(config["marks"]).iterdir()):
            Path(config["marks"], "hung").touch()
            if config["how"] == "sleeps":
                time.sleep(3600)
            holds_the_interpreter()
        total = torch.ones(1)
        dist.all_reduce(total)
        train.report({"step": step})
    return int(total.item())


def holds_the_interpreter() -> None:
    """In C, in a lock that no signal interrupts, without letting any other thread run."""
    lock, library = ctypes.create_string_buffer(128), ctypes.PyDLL(None)
    for _ in range(2):
        library.pthread_mutex_lock(lock)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("how", "rank"), [("sleeps", 0), ("holds the interpreter", 1)])
def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it(
    how: str, rank: int, scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISPLAY", "plain")
    for _ in range(2):
        scene.cluster.add_node(cpus=1)
    failure = {"max_failures": 0, "max_hang_failures": 3, "hang_timeout_s": 6.0}
    trainer = scene.trainer(2, collective_fn, TorchTrainer, config={"rank": rank, "how": how}, verbose=None, **failure)
    assert trainer.fit().return_value == 2
    assert scene.kinds()[0] == "hang"
    failed = scene.records("WorkerFailed")[0].body
    assert failed["rank"] == rank
    stacks = (scene.run.root / "logs" / "attempt-0001" / "stacks.txt").read_text()
    assert "rank 0\n" in stacks
    assert "rank 1\n" in stacks
    shown = "".join(capfd.readouterr())
    assert "what the ranks are doing" in shown
    if how == "sleeps":
        assert "in collective_fn" in shown
    assert f"rank {rank} made no progress for" in shown


def test_a_hang_is_known_from_the_runs_own_pace(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.run.hanging._LEAST_LEARNT_S", 3.0)
    scene.cluster.add_node(cpus=2)
    fault = {"kind": "hang", "rank": 1, "at": 5}

    def wait() -> None:
        scene.await_record("GroupStarted", 2)
        scene.await_steps(2)

    with scene.meanwhile(wait):
        scene.check(scene.trainer(2, config={"fault": fault}, max_failures=-1, hang_timeout_s="auto").fit())
    assert set(scene.kinds()) == {"hang"}


@pytest.mark.parametrize("allowed", [0, 1])
def test_hangs_have_a_budget_of_their_own(allowed: int, scene: Scene) -> None:
    """Every attempt hangs at once: exactly so many retries, whatever max_failures says."""
    scene.cluster.add_node(cpus=1)

    def hangs() -> None:
        time.sleep(3600)

    failure = {"max_failures": 7, "max_hang_failures": allowed, "hang_timeout_s": 0.5}
    with pytest.raises(train.WorkerGroupError, match=f"max_hang_failures={allowed}"):
        scene.trainer(1, hangs, **failure).fit()
    assert scene.kinds() == ["hang"] * (allowed + 1)


def test_hangs_count_as_failures_without_one(scene: Scene) -> None:
    scene.cluster.add_node(cpus=1)
    with pytest.raises(train.WorkerGroupError, match="max_failures=0"):
        scene.trainer(1, lambda: time.sleep(3600), hang_timeout_s=0.5).fit()


def test_the_same_error_again_and_again_ends_the_run(scene: Scene) -> None:
    """Long before the budget is used, and with the reason."""
    scene.cluster.add_node(cpus=1)
    fault = {"kind": "exception", "at": 3, "times": 99, "text": "a bug"}
    with pytest.raises(train.WorkerGroupError) as caught:
        scene.trainer(1, config={"fault": fault}, max_failures=50, max_same_errors=2).fit()
    assert len(scene.worlds()) == 3
    text = str(caught.value)
    assert text.startswith("rank 0 raised ValueError: a bug, 3 times at report 3 without progress in between")
    assert "FailureConfig(max_same_errors=2)" in text


def test_the_same_error_with_progress_in_between_is_retried(scene: Scene) -> None:
    def fn(config: dict[str, Any]) -> int:
        """Fails at every step once."""
        checkpoint = train.get_checkpoint()
        step = int(Path(checkpoint.path, "step").read_text()) if checkpoint else 0
        if step < 5:
            Path(config["marks"], "step").write_text(str(step + 1))
            copy = Path(config["marks"])
            train.report({}, checkpoint=train.Checkpoint.from_directory(str(copy)))
            raise ValueError("a bug")
        return step

    scene.cluster.add_node(cpus=1)
    assert scene.trainer(1, fn, max_failures=50, max_same_errors=1).fit().return_value == 5
