"""The threads of OpenMP in a worker. Its libraries read ``OMP_NUM_THREADS`` when they were loaded, before the worker
was forked. Without a new limit every worker would use every core, and they would slow each other down."""

from __future__ import annotations

import ctypes
import os
import sys

from holdfast.platform.processes import mapped_files
from holdfast.worker.imported_frameworks import imported


def use_own_threads() -> None:
    """Use as many threads as ``OMP_NUM_THREADS`` says: the worker's CPUs, unless the user chose a number."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if sys.platform != "linux" or not wanted.isdigit() or not any(framework.uses_openmp for framework, _ in imported()):
        return
    for path in mapped_files():
        if ".so" in path and ("gomp" in path or "libomp" in path):
            ctypes.CDLL(path).omp_set_num_threads(int(wanted))
