"""A framework that is added as Ray's custom backends are."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast.train.backend import Backend, BackendConfig


def test_the_hooks_of_a_backend_run_around_the_train_function(tmp_path: Path) -> None:
    def note(text: str) -> None:
        with open(tmp_path / f"rank-{train.get_context().get_world_rank()}", "a") as file:
            file.write(f"{text}\n")

    @contextmanager
    def around() -> Any:
        note("in")
        yield
        note("out")

    class MyBackend(Backend):
        def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            pids = worker_group.execute(os.getpid)
            first = worker_group.execute_single(0, os.getpid)
            assert (len(worker_group), pids[0]) == (2, first)
            assert len(set(pids)) == 2
            note("start")

        def on_training_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
            note("training start")

        def on_shutdown(self, worker_group: Any, backend_config: BackendConfig) -> None:
            note("shutdown")

    class MyConfig(BackendConfig):
        @property
        def backend_cls(self) -> type[Backend]:
            return MyBackend

        @property
        def train_func_context(self) -> Any:
            return around

    train.DataParallelTrainer(
        lambda: note("train"),
        backend_config=MyConfig(),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path / "runs"), verbose=0),
    ).fit()
    for rank in (0, 1):
        said = (tmp_path / f"rank-{rank}").read_text().splitlines()
        assert said == ["start", "training start", "in", "train", "out", "shutdown"]
