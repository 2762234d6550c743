"""How a worker ends whose train function has returned: as a Python process does."""

from __future__ import annotations

import atexit
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast.train as train
from holdfast.train.torch import TorchTrainer


def config(tmp_path: Path) -> train.RunConfig:
    return train.RunConfig(name="run", storage_path=str(tmp_path / "runs"), verbose=0)


def test_threads_and_exit_functions_come_to_their_end(tmp_path: Path) -> None:
    def fn() -> None:
        def write_later(name: str) -> None:
            time.sleep(0.3)
            (tmp_path / name).touch()

        rank = train.get_context().get_world_rank()
        threading.Thread(target=write_later, args=(f"thread-{rank}",)).start()
        ThreadPoolExecutor().submit(write_later, f"executor-{rank}")
        atexit.register(write_later, f"exit-{rank}")

    train.DataParallelTrainer(fn, scaling_config=train.ScalingConfig(num_workers=2), run_config=config(tmp_path)).fit()
    there = {path.name for path in tmp_path.iterdir()} - {"runs"}
    assert there == {f"{kind}-{rank}" for kind in ("thread", "executor", "exit") for rank in (0, 1)}


def test_a_thread_that_never_ends_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EXIT_TIMEOUT_S", "0.5")

    def fn() -> str:
        threading.Thread(target=threading.Event().wait, name="forgotten").start()
        return "returned"

    result = train.DataParallelTrainer(fn, run_config=config(tmp_path)).fit()
    assert result.return_value == "returned"
    logs = "".join(path.read_text() for path in (tmp_path / "runs").rglob("*.log"))
    assert "forgotten did not end within 0.5 s (HOLDFAST_EXIT_TIMEOUT_S)" in logs


def test_a_thread_may_still_use_the_process_group(tmp_path: Path) -> None:
    """The last async_save of a rank, which the others take part in."""

    def fn() -> None:
        import torch
        import torch.distributed as dist

        group = dist.new_group(backend="gloo")

        def reduce_later() -> None:
            time.sleep(0.2 * dist.get_rank())
            value = torch.ones(1)
            dist.all_reduce(value, group=group)
            (tmp_path / f"sum-{dist.get_rank()}").write_text(str(value.item()))

        threading.Thread(target=reduce_later).start()

    TorchTrainer(fn, scaling_config=train.ScalingConfig(num_workers=2), run_config=config(tmp_path)).fit()
    assert [(tmp_path / f"sum-{rank}").read_text() for rank in (0, 1)] == ["2.0", "2.0"]
