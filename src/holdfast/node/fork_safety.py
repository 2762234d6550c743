"""Whether this process may be forked. A child has only the thread that called fork, and locks that other threads hold
stay locked in it."""

from __future__ import annotations

import ctypes
import threading

from holdfast.platform import processes
from holdfast.worker import imported_frameworks

# A thread of the allocator that pyarrow brings, started at its import; pandas and datasets import it too. The allocator
# takes its own locks around a fork, and works without the thread in the child.
_JEMALLOC = "jemalloc_bg_thd"


def is_safe_to_fork() -> bool:
    if threading.active_count() > 1:
        return False
    if any(framework.holds_device(module) for framework, module in imported_frameworks.imported()):
        return False
    others = [name for name in processes.thread_names() if name != _JEMALLOC]
    return len(others) - 1 <= _fork_safe_threads()


def _fork_safe_threads() -> int:
    """The threads of OpenBLAS, which numpy starts at import; OpenBLAS stops and restarts them around a fork."""
    libraries = [path for path in processes.mapped_files() if "openblas" in path and ".so" in path]
    return sum(_openblas_threads(path) - 1 for path in libraries)


def _openblas_threads(path: str) -> int:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return 1
    for prefix in ("", "scipy_"):
        for suffix in ("", "64_"):
            count = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            if count is not None:
                return int(count())
    return 1
