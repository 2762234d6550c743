"""What the operating system offers to keep a process tree together. Linux has all of it; other systems have a part."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
import weakref

from holdfast.platform.processes import ENDED, stat_fields

LINUX = sys.platform == "linux"
_PF_EXITING = 0x4  # a flag of the kernel in /proc/PID/stat
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NAME = 1, 36, 15
_forking = threading.local()
_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None


def die_with_parent(parent: int, sig: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent exits. If the parent has exited already, exit now."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, sig, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def tie_children() -> None:
    """From now on, a process that this one forks (such as a data loader) is killed when this one exits.

    The kernel kills such a child when the thread that forked it ends, so only children of the main thread are tied.
    Children of other threads are killed with the process group, by the process that sees this one exit.
    """
    if LINUX:
        os.register_at_fork(before=_note_forking_thread, after_in_child=_die_with_main_thread)


def _note_forking_thread() -> None:
    _forking.thread = threading.get_native_id()


def _die_with_main_thread() -> None:
    if _forking.thread == os.getppid():
        die_with_parent(os.getppid())


def children() -> list[int]:
    """The child processes of this one, including adopted ones; empty where the system does not list them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forget_exit_functions() -> None:
    """For a fork that runs exit functions: drop those that the parent registered. They run once, in the parent."""
    forget_finalizers()
    atexit._clear()
    for module, name in (("logging", "shutdown"), ("multiprocessing.util", "_exit_function")):
        if module in sys.modules:
            atexit.register(getattr(sys.modules[module], name))
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]


def forget_finalizers() -> None:
    """Do not finalize existing objects at exit in any fork: a TemporaryDirectory, or torch's hundred libraries."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


def set_name(name: str) -> None:
    """Set the name that ps and top show (15 characters)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def yield_to_others(on: bool) -> None:
    """``on``: run only when no other process wants to. Off: as usual; a process that stays at that priority exits."""
    if not LINUX:
        return
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE if on else os.SCHED_OTHER, os.sched_param(0))
    if not on and os.sched_getscheduler(0) == os.SCHED_IDLE:
        os._exit(1)


def kill_group(pid: int, sig: int = signal.SIGKILL) -> None:
    """Signal a process and its whole process group."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, sig)


def is_ending(pid: int) -> bool:
    """Whether the process has exited, or is exiting and may have closed its sockets already."""
    if not LINUX:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False
    fields = stat_fields(pid)
    return not fields or fields[0] in ENDED or bool(int(fields[6]) & _PF_EXITING)


def anonymous_file(data: bytes = b"") -> int:
    """A descriptor of a file with this data. The file has no name to clean up, and is in memory where possible."""
    if LINUX:
        fd = os.memfd_create("holdfast", os.MFD_CLOEXEC)
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return fd
