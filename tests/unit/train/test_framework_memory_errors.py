"""Memory that ran out, as the exceptions of Python, NumPy and frameworks say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import train
from holdfast.train.backend import BackendConfig
from holdfast.train.boosting import ran_out_of_memory


class FrameworkError(Exception):
    pass


class Framework(BackendConfig):
    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, FrameworkError) and "exhausted" in str(error)


class SubclassError(MemoryError):
    """As numpy's is."""


def fail(config: dict[str, Any]) -> None:
    if config["how"] == "subclass":
        raise SubclassError("cannot allocate 1 TiB")
    raise FrameworkError(config["how"])


@pytest.mark.parametrize(
    ("how", "kind"), [("subclass", "out of memory"), ("exhausted", "out of memory"), ("wrong shape", "user error")]
)
def test_the_framework_says_how_its_failures_look(how: str, kind: str, tmp_path: Path) -> None:
    trainer = train.DataParallelTrainer(
        fail,
        train_loop_config={"how": how},
        backend_config=Framework(),
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )
    with pytest.raises(train.TrainingFailedError):
        trainer.fit()
    failures = train.Result.from_path(tmp_path / "run").ledger.failures
    assert [failure.kind for failure in failures] == [kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[22:11] Check failed: std::bad_alloc", True),
        ("Memory allocation error on worker 0", True),
        ("bad shape", False),
    ],
)
def test_boosting_says_it_in_the_message(text: str, expected: bool) -> None:
    assert ran_out_of_memory(RuntimeError(text)) is expected
