"""Memory that ran out, as the exceptions of Python, NumPy and frameworks say it."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import train
from holdfast.train.backend import BackendConfig
from holdfast.worker import imported_frameworks


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


class ResourceExhaustedError(Exception):
    pass


XGBoostError = type("XGBoostError", (ValueError,), {})
LightGBMError = type("LightGBMError", (Exception,), {})
JaxRuntimeError = type("JaxRuntimeError", (RuntimeError,), {})
TENSORFLOW = types.SimpleNamespace(errors=types.SimpleNamespace(ResourceExhaustedError=ResourceExhaustedError))


@pytest.mark.parametrize(
    ("framework", "error", "expected"),
    [
        ("torch", torch.cuda.OutOfMemoryError("CUDA out of memory"), True),
        ("torch", RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 1 TiB"), True),
        ("torch", RuntimeError("shapes differ"), False),
        ("tensorflow", ResourceExhaustedError("OOM when allocating tensor"), True),
        ("tensorflow", ValueError("OOM"), False),
        ("jax", JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), True),
        ("jax", JaxRuntimeError("INTERNAL: it failed"), False),
        ("jax", ValueError("RESOURCE_EXHAUSTED"), False),
        ("xgboost", XGBoostError("[22:11] Check failed: std::bad_alloc"), True),
        ("lightgbm", LightGBMError("Memory allocation error on worker 0"), True),
        ("lightgbm", LightGBMError("bad shape"), False),
    ],
)
def test_a_framework_is_asked_once_it_is_imported(
    framework: str, error: Exception, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"torch": torch, "tensorflow": TENSORFLOW}
    monkeypatch.setitem(sys.modules, framework, modules.get(framework, types.ModuleType(framework)))
    assert imported_frameworks.says_out_of_memory(error) is expected
    monkeypatch.delitem(sys.modules, framework)
    assert not imported_frameworks.says_out_of_memory(error)


def test_torch_says_it_of_the_memory_of_cpus() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    assert imported_frameworks.says_out_of_memory(raised.value)
