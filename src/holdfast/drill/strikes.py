"""What a fault does to its worker. All of it is real: signals, a bad address, memory that runs out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

from holdfast.drill.faults import Fault
from holdfast.drill.stage import Stage
from holdfast.platform import processes
from holdfast.store.staging import files

_FOR_EVER_S = 3600
_ROOM = 64 << 20  # bytes that a worker may still have when memory is made short
_BLOCK = 16 << 20


class DrillError(RuntimeError):
    """The exception that the train function raises in a drill."""


def strike(fault: Fault, stage: Stage, newest: str, memory: str, has_hang_timeout: bool) -> None:
    """``newest``: the directory of the newest checkpoint; ``memory``: that of the snapshots on this node."""
    match fault.name:
        case "worker-kill" | "reduce-kill" | "update-kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "gil-hold":
            # PyDLL holds Python's lock during the call. Without a hang timeout nothing would end it.
            ctypes.PyDLL(None).sleep(_FOR_EVER_S if has_hang_timeout else max(1, round(fault.seconds)))
        case "exception":
            raise DrillError(f"holdfast drill: {fault}")
        case "oom":
            _run_out_of_memory(stage)
        case "corruption":
            damage(Path(newest))
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory-corruption":
            for snapshot in snapshots(memory):
                _flip(snapshot)
            os.kill(os.getpid(), signal.SIGKILL)


def snapshots(memory: str) -> list[Path]:
    """Those that workers of this node have taken."""
    return [path for path in Path(memory).iterdir() if path.is_file() and path.stat().st_size] if memory else []


def damage(checkpoint: Path) -> None:
    """Flip a bit in the middle of its largest file."""
    _flip(max((checkpoint / name for name in files(checkpoint)), key=lambda path: path.stat().st_size))


def _flip(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x10]))


def _run_out_of_memory(stage: Stage) -> None:
    """By the kernel's OOM killer if a control group can be made here, else as a MemoryError."""
    if _enter_memory_group(stage):
        eaten: list[bytes] = []
        while True:
            eaten.append(os.urandom(_BLOCK))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    used = processes.memory_used(resident=False)
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, most))
    print("holdfast drill: cannot create a control group here, so a memory limit is used instead", file=sys.stderr)
    bytearray(4 * _ROOM)


def _enter_memory_group(stage: Stage) -> bool:
    top = Path("/sys/fs/cgroup")
    version1 = (top / "memory").is_dir()
    group = (top / "memory" if version1 else top) / f"holdfast-drill-{os.getpid()}"
    try:
        used = processes.memory_used(resident=True)
        group.mkdir()
        stage.note_memory_group(group)
        limit = group / ("memory.limit_in_bytes" if version1 else "memory.max")
        limit.write_text(str(used + _ROOM))
        with contextlib.suppress(OSError):
            (group / "memory.swap.max").write_text("0")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return False
    return True
