"""Which threads of libraries leave a process safe to fork."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, threading
import pyarrow
from holdfast.node.fork_safety import is_safe_to_fork
from holdfast.platform import processes

assert "jemalloc_bg_thd" in processes.thread_names(), processes.thread_names()
assert is_safe_to_fork()
pool = pyarrow.jemalloc_memory_pool()
kept = [pyarrow.allocate_buffer(1 << 20, memory_pool=pool) for _ in range(50)]
for _ in range(100):
    kept[:25] = [pyarrow.allocate_buffer(1 << 20, memory_pool=pool) for _ in range(25)]  # the thread has work to do
    pid = os.fork()
    if pid == 0:
        kept.clear()
        more = [pyarrow.allocate_buffer(1 << 20, memory_pool=pool) for _ in range(10)]
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop = threading.Event()
threading.Thread(target=stop.wait).start()
assert not is_safe_to_fork()
stop.set()
print("safe")
"""


def test_the_thread_of_the_allocator_of_pyarrow() -> None:
    """Children of a process that has it allocate and free as always."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "safe\n"), done.stderr
