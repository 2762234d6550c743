"""A worker ends in every way a process can; training continues and ends as if nothing had happened."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import holdfast.train as train
from holdfast.store import journal
from holdfast.store.layout import RunLayout
from holdfast.train.torch import TorchConfig, TorchTrainer
from support.faults.fault_training import STEPS, losses, notes, strike, train_fn, trainer, weights

Undisturbed = Callable[[], train.Result]


@pytest.mark.parametrize("kind", ["SIGKILL", "SIGSEGV", "_exit", "exception", "SIGSTOP"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_fault_in_mid_run(
    kind: str, rank: int, tmp_path: Path, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STOPPED_GRACE_S", "0.2")
    result = trainer(tmp_path, {"fault": kind, "rank": rank, "at": 5}, max_failures=1).fit()
    assert weights(result) == weights(undisturbed())
    assert losses(result) == losses(undisturbed())
    # Both ranks had reported five times: that is where they continue, not earlier.
    assert sorted(notes(tmp_path, "start")) == [(0, 0), (0, 5), (1, 0), (1, 5)]


def test_a_hang_is_found_by_its_time_out(tmp_path: Path, undisturbed: Undisturbed) -> None:
    # On a machine that is busy with other things a healthy step may take longer than that too, and costs a retry.
    failure = train.FailureConfig(max_failures=-1, hang_timeout_s=5.0)
    result = trainer(tmp_path, {"fault": "hang", "at": 3}, failure_config=failure).fit()
    assert weights(result) == weights(undisturbed())
    assert "made no progress for" in str(result.ledger)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_exactly_as_many_retries_as_max_failures(retries: int, tmp_path: Path) -> None:
    failure = train.FailureConfig(max_failures=retries, backoff_s=0.01)
    with pytest.raises(train.WorkerGroupError) as caught:
        trainer(tmp_path, {"fault": "exception", "at": 2, "times": 99}, failure_config=failure).fit()
    assert len(notes(tmp_path, "start")) == 2 * (retries + 1)
    text = str(caught.value)
    assert text.startswith("rank 1 raised ValueError: planned failure")
    assert "Traceback" in text
    assert "checkpoint_000002" in text
    assert isinstance(caught.value.worker_failures[1], ValueError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == text
    assert str(copy.worker_failures[1]) == "planned failure"


def test_no_limit_of_retries(tmp_path: Path, undisturbed: Undisturbed) -> None:
    failure = train.FailureConfig(max_failures=-1, backoff_s=0.01)
    result = trainer(tmp_path, {"fault": "SIGKILL", "at": 4, "times": 6}, failure_config=failure).fit()
    assert weights(result) == weights(undisturbed())


def test_the_last_lines_of_a_killed_worker_are_in_the_error(tmp_path: Path) -> None:
    def loud() -> None:
        if train.get_context().get_world_rank() == 1:
            print("the last words")
            os.kill(os.getpid(), signal.SIGKILL)
        train.collective.barrier()

    with pytest.raises(train.TrainingFailedError) as caught:
        trainer(tmp_path, {}, fn=loud).fit()
    text = str(caught.value)
    assert text.startswith("rank 1 was killed by SIGKILL (signal 9)")
    assert "the last words" in text
    assert (tmp_path / "run" / "logs" / "attempt-0001" / "rank-1.log").read_text() == "the last words\n"


def _dies_in_rendezvous(config: dict[str, Any]) -> Any:
    class Dies(TorchConfig):
        def wrap(self, train_fn: Any) -> Any:
            inner = super().wrap(train_fn)

            def call(*args: Any) -> Any:
                mark = Path(config["mark"])
                if train.get_context().get_world_rank() == 1 and not mark.exists():
                    mark.touch()
                    real = dist.init_process_group

                    def dying(*_: Any, **__: Any) -> None:
                        strike("SIGKILL")

                    dist.init_process_group = dying
                    try:
                        return inner(*args)
                    finally:
                        dist.init_process_group = real
                return inner(*args)

            return call

    return Dies()


def test_a_worker_that_dies_in_rendezvous(tmp_path: Path, undisturbed: Undisturbed) -> None:
    config = {"notes": str(tmp_path / "notes"), "mark": str(tmp_path / "mark")}
    result = TorchTrainer(
        train_fn,
        train_loop_config=config,
        torch_config=_dies_in_rendezvous(config),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run", storage_path=str(tmp_path), failure_config=train.FailureConfig(max_failures=1), verbose=0
        ),
    ).fit()
    assert (tmp_path / "mark").exists()
    assert weights(result) == weights(undisturbed())


class DiesAtImport:
    """Kills the process that unpickles it, once."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        if not os.path.exists(self.mark):
            Path(self.mark).touch()
            os._exit(1)


def test_a_worker_that_dies_at_import(tmp_path: Path, undisturbed: Undisturbed) -> None:
    result = trainer(tmp_path, {"dies": DiesAtImport(str(tmp_path / "mark"))}, max_failures=1).fit()
    assert (tmp_path / "mark").exists()
    assert weights(result) == weights(undisturbed())


def test_children_of_a_killed_worker_go_with_it(tmp_path: Path) -> None:
    def fn(config: dict[str, Any]) -> None:
        import subprocess

        if train.get_checkpoint() is None and not os.path.exists(config["mark"]):
            subprocess.Popen(["sleep", "1000"])
            if os.fork() == 0:
                signal.pause()
            train.collective.barrier()
            if train.get_context().get_world_rank() == 1:
                Path(config["mark"]).touch()
                strike("SIGKILL")
            signal.pause()

    trainer(tmp_path, {"mark": str(tmp_path / "mark")}, fn=fn, max_failures=1).fit()


def test_spawned_workers_recover_too(tmp_path: Path, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of macOS, where forking is not safe: every worker is a fresh interpreter."""
    monkeypatch.setenv("HOLDFAST_START_METHOD", "spawn")
    result = trainer(tmp_path, {"fault": "SIGKILL", "at": STEPS - 1}, max_failures=1).fit()
    assert weights(result) == weights(undisturbed())


def test_workers_of_a_zygote_that_the_agent_starts(
    tmp_path: Path, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a seed, as on a machine where the script does not run."""
    monkeypatch.setattr("holdfast.node.seed.planted", lambda: None)
    result = trainer(tmp_path, {"fault": "SIGKILL", "at": STEPS - 1}, max_failures=1).fit()
    assert weights(result) == weights(undisturbed())


def test_an_exception_while_peers_are_killed_does_not_hurt_the_agent(tmp_path: Path) -> None:
    """Events of processes that are gone by the time their turn comes."""

    def fn() -> None:
        train.collective.barrier()
        if train.get_context().get_world_rank() == 1:
            raise ValueError("planned failure")
        train.collective.barrier()

    failure = train.FailureConfig(max_failures=8, backoff_s=0.001, max_backoff_s=0.001)
    with pytest.raises(train.WorkerGroupError, match="rank 1 raised ValueError") as caught:
        trainer(tmp_path, {}, fn=fn, num_workers=4, failure_config=failure).fit()
    assert "No retry left: FailureConfig(max_failures=8)" in str(caught.value)
    records, _ = journal.read(RunLayout(tmp_path / "run"))
    assert not any(r.kind == "WorkerFailed" and r.body["evidence"]["node_lost"] for r in records)
