"""What a process does for the frameworks that it finds imported: whether it may be forked, what a fork must change to
start like a fresh process, and which of their exceptions say that memory ran out. A table has this for each framework;
none is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_TORCH_DEFAULT_SEED = 67280421310721


@dataclass(frozen=True)
class ImportedFramework:
    """Each function gets the module."""

    module: str
    holds_device: Callable[[Any], bool] = lambda _module: False  # a child of the process could not use it
    reset_random: Callable[[Any], None] = lambda _module: None  # as after the import
    set_threads: Callable[[Any, int], None] | None = None  # OMP_NUM_THREADS was read at the import
    uses_openmp: bool = False
    is_out_of_memory: Callable[[Any, BaseException], bool] = lambda _module, _error: False


def _torch_ran_out(torch: Any, error: BaseException) -> bool:
    """Its allocator for CPUs raises a plain RuntimeError."""
    own = isinstance(error, getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError))
    return own or (isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error))


def _tensorflow_holds_device(_: Any) -> bool:
    """Its first operation starts threads, and takes the memory of all GPUs."""
    eager = sys.modules.get("tensorflow.python.eager.context")
    return bool(getattr(getattr(eager, "_context", None), "_initialized", False))


def _jax_holds_device(_: Any) -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


def _jax_ran_out(_: Any, error: BaseException) -> bool:
    """It has one class for all that its compiler and its devices say, with another name in each release."""
    return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and "RESOURCE_EXHAUSTED" in str(error)[:99]


def _boosting_ran_out(_: Any, error: BaseException) -> bool:
    """XGBoost and LightGBM have one exception each, with what C++ said."""
    said = str(error) if type(error).__name__ in ("XGBoostError", "LightGBMError") else ""
    return any(sign in said for sign in ("bad_alloc", "bad allocation", "Memory allocation error"))


# Without an entry for random numbers: TensorFlow, Keras and JAX draw none while they are imported, and keep no state of
# theirs in the process before a seed is set.
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
