from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.train import (
    Checkpoint,
    CheckpointUploadMode,
    ControllerError,
    PreemptionError,
    PreemptionInfo,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    TrainingFailedError,
    ValidationConfig,
    ValidationTaskConfig,
    WorkerGroupError,
)


def test_preemption_info_sorts_nodes_and_ranks() -> None:
    info = PreemptionInfo(1_700_000_000_000, {"node-b": [3, 2], "node-a": [0, 2]})
    assert info.preempted_node_ids == ["node-a", "node-b"]
    assert info.preempted_ranks == [0, 2, 3]
    assert pickle.loads(pickle.dumps(info)) == info
    with pytest.raises(AttributeError):
        info.deadline_ms = 1  # type: ignore[misc]


def test_errors_survive_pickling() -> None:
    failed = WorkerGroupError("rank 1 was killed", {1: RuntimeError("boom")})
    again = pickle.loads(pickle.dumps(failed))
    assert isinstance(again, TrainingFailedError)
    assert str(again) == str(failed)
    assert repr(again.worker_failures) == repr(failed.worker_failures)

    controller = pickle.loads(pickle.dumps(ControllerError(OSError(28, "No space left"))))
    assert isinstance(controller.controller_failure, OSError)
    assert "No space left" in str(controller)

    preempted = pickle.loads(pickle.dumps(PreemptionError(PreemptionInfo(None, {"n": [0]}), drain_timed_out=True)))
    assert preempted.preemption_info.preempted_ranks == [0]
    assert preempted.drain_timed_out


def test_every_error_has_the_one_base_and_survives_pickling() -> None:
    made = {
        WorkerGroupError: WorkerGroupError("x", {}),
        errors.NCCLHangError: errors.NCCLHangError("x", {}),
        ControllerError: ControllerError(ValueError("x")),
        PreemptionError: PreemptionError(PreemptionInfo(None, {})),
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, errors.HoldfastError)
        error = made.get(kind) or kind("x")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == str(error)


def test_only_async_deletes_by_default() -> None:
    deleting = [mode for mode in CheckpointUploadMode if mode.default_delete_local_checkpoint_after_upload()]
    assert deleting == [CheckpointUploadMode.ASYNC]


def test_reported_checkpoint_is_picklable(tmp_path: Path) -> None:
    reported = ReportedCheckpoint(Checkpoint(tmp_path), {"loss": 1.0}, ReportedCheckpointStatus.VALIDATED)
    assert pickle.loads(pickle.dumps(reported)) == reported


def _no_metrics(checkpoint: Checkpoint) -> dict[str, float]:
    return {"files": len(checkpoint.get_metadata())}


def test_validation_configs() -> None:
    assert ValidationTaskConfig().fn_kwargs == {}
    config = ValidationConfig(_no_metrics)
    assert config.task_config == ValidationTaskConfig()
    assert config.ray_remote_kwargs == {}
    with pytest.warns(UserWarning, match="has no effect"):
        ValidationConfig(config.fn, ray_remote_kwargs={"num_gpus": 1})
    with pytest.raises(ValueError, match=re.escape("timeout_s=0): must be greater than 0")):
        ValidationTaskConfig(timeout_s=0)
    with pytest.raises(ValueError, match="plain values"):
        ValidationTaskConfig(fn_kwargs={"model": object()})
    with pytest.raises(TypeError, match="pass a dict"):
        ValidationTaskConfig(fn_kwargs=[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pass a function"):
        ValidationConfig("evaluate")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ValidationTaskConfig"):
        ValidationConfig(_no_metrics, task_config={"fn_kwargs": {}})  # type: ignore[arg-type]
