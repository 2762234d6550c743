"""What a process needs to know of the frameworks that are imported: whether it can be forked, what a fork must change
to start like a fresh process, and which exceptions mean that memory ran out. A table holds this for each framework.
Nothing is imported here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TORCH_DEFAULT_SEED = 67280421310721


@dataclass(frozen=True)
class ImportedFramework:
    """What to do for a framework. Each function gets the framework's module."""

    module: str
    holds_device: Callable[[Any], bool] = lambda _module: False  # if so, a fork could not use it
    reset_random: Callable[[Any], None] = lambda _module: None  # to the state after the import
    set_threads: Callable[[Any, int], None] | None = None  # needed if it reads OMP_NUM_THREADS at the import
    uses_openmp: bool = False
    is_out_of_memory: Callable[[Any, BaseException], bool] = lambda _module, _error: False


def _torch_ran_out(torch: Any, error: BaseException) -> bool:
    """torch's allocator for CPUs raises a plain RuntimeError."""
    own = isinstance(error, getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError))
    return own or (isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error))


def _tensorflow_holds_device(_: Any) -> bool:
    """TensorFlow's first operation starts threads and takes the memory of all GPUs."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(eager, "_context", None), "_initialized", False))


def _jax_holds_device(_: Any) -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


def _jax_ran_out(_: Any, error: BaseException) -> bool:
    """JAX has one class for all errors of its compiler and devices, and its name differs between releases."""
    return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and "RESOURCE_EXHAUSTED" in str(error)[:99]


def _boosting_ran_out(_: Any, error: BaseException) -> bool:
    """XGBoost and LightGBM have one exception each, with the text of the C++ error."""
    said = str(error) if type(error).__name__ in ("XGBoostError", "LightGBMError") else ""
    return any(sign in said for sign in ("bad_alloc", "bad allocation", "Memory allocation error"))


# TensorFlow, Keras and JAX need no ``reset_random``: they draw no random numbers while they are imported, and keep no
# random state in the process before a seed is set.
FRAMEWORKS = (
    ImportedFramework(
        "torch",
        holds_device=lambda torch: bool(torch.cuda.is_initialized()),
        reset_random=lambda torch: torch.default_generator.manual_seed(_TORCH_DEFAULT_SEED),
        set_threads=lambda torch, threads: torch.set_num_threads(threads),
        is_out_of_memory=_torch_ran_out,
    ),
    ImportedFramework("numpy.random", reset_random=lambda module: module.seed()),
    ImportedFramework(
        "tensorflow",
        holds_device=_tensorflow_holds_device,
        is_out_of_memory=lambda tf, error: isinstance(error, tf.errors.ResourceExhaustedError),
    ),
    ImportedFramework("jax", holds_device=_jax_holds_device, is_out_of_memory=_jax_ran_out),
    ImportedFramework("lightgbm", uses_openmp=True, is_out_of_memory=_boosting_ran_out),
    ImportedFramework("sklearn", uses_openmp=True),
    ImportedFramework("xgboost", uses_openmp=True, is_out_of_memory=_boosting_ran_out),
)


def imported() -> list[tuple[ImportedFramework, Any]]:
    found = [(framework, sys.modules.get(framework.module)) for framework in FRAMEWORKS]
    return [(framework, module) for framework, module in found if module is not None]


def says_out_of_memory(error: BaseException) -> bool:
    return any(framework.is_out_of_memory(module, error) for framework, module in imported())
