"""What a process does for the frameworks that it finds imported: whether it may be forked, and what a fork changes so
that it starts as a fresh process would. The table says it for each framework; none is imported for that."""

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


FRAMEWORKS = (
    ImportedFramework(
        "torch",
        holds_device=lambda torch: bool(torch.cuda.is_initialized()),
        reset_random=lambda torch: torch.default_generator.manual_seed(_TORCH_DEFAULT_SEED),
        set_threads=lambda torch, threads: torch.set_num_threads(threads),
    ),
    ImportedFramework("numpy.random", reset_random=lambda module: module.seed()),
    ImportedFramework("lightgbm", uses_openmp=True),
    ImportedFramework("sklearn", uses_openmp=True),
    ImportedFramework("xgboost", uses_openmp=True),
)


def imported() -> list[tuple[ImportedFramework, Any]]:
    found = [(framework, sys.modules.get(framework.module)) for framework in FRAMEWORKS]
    return [(framework, module) for framework, module in found if module is not None]
