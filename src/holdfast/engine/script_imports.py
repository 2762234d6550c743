"""Which installed packages a script has imported for its trainable, so that trials are forked from a process that has
them. The workers of a restarted run find the frameworks among them imported.

Only installed packages count. A module of the user's may compute when it is imported, and a process that has run an
operation with many threads cannot be forked; its own imports are looked at instead.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Mapping
from types import ModuleType
from typing import Any

_NEVER = frozenset({"holdfast", "ray", "pytest", "_pytest", "pluggy", "IPython", "ipykernel", "optuna"})
_STANDARD = frozenset(sys.stdlib_module_names) - {"__main__"}
# They are slow to import, and start no thread that way.
_FRAMEWORKS = {"lightning", "pytorch_lightning", "transformers", "accelerate", "tensorflow", "keras", "jax", "sklearn"}
_FRAMEWORKS |= {"torch", "xgboost", "lightgbm"}


def packages_of(trainable: Any) -> tuple[str, ...]:
    """The names of modules to import, in the order in which the script and its modules have them."""
    function = getattr(trainable, "train_loop_per_worker", trainable)
    home = getattr(inspect.unwrap(function) if callable(function) else function, "__module__", None)
    found: dict[str, None] = {}
    waiting = [name for name in ("__main__", home) if name in sys.modules]
    seen = set(waiting)
    while waiting:
        for name in _imports(sys.modules[waiting.pop()]):
            if _is_installed(name):
                found.setdefault(name)
            elif name not in seen:
                seen.add(name)
                waiting.append(name)
    return tuple(found)


def frameworks_of(train_fn: Any, worker_runtime_env: Mapping[str, Any]) -> list[str]:
    """Of these, the modules of frameworks. None if the run sets variables in its workers, which may change what an
    import does."""
    if worker_runtime_env.get("env_vars"):
        return []
    return [name for name in packages_of(train_fn) if name.partition(".")[0] in _FRAMEWORKS]


def needed_by_workers(train_fn: Any, frameworks: list[str]) -> list[str]:
    """Those that workers import to load the train function. A module other than the script may import more than the
    function needs."""
    return frameworks if getattr(train_fn, "__module__", None) == "__main__" else []


def _imports(module: ModuleType) -> list[str]:
    """The modules that its names come from, without those that come with Python."""
    names = []
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name in sys.modules and name.partition(".")[0] not in _STANDARD | _NEVER:
            names.append(name)
    return names


def _is_installed(name: str) -> bool:
    file = getattr(sys.modules[name.partition(".")[0]], "__file__", None)
    installed = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    return file is not None and ("site-packages" in file or any(file.startswith(f"{path}/") for path in installed))
