"""Every test ends by checking that it left no process, thread, file descriptor or signal handler behind."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from holdfast.node import seed
from holdfast.platform import process_control
from support.repository import ROOT

pytest_plugins = ["support.gate"]
PATIENCE_S = 120.0
# Not SIGCHLD: torch's loaders never give it back. With the default of SIGPIPE the next connection that breaks would be
# the silent end of the process that runs the tests.
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCONT, signal.SIGUSR1, signal.SIGALRM)
# The scripts that tests start import support.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
process_control.adopt_orphans()  # what a killed driver leaves behind becomes our child, so it is found


def plant_seed() -> None:
    """Have the seed that a script has, so that the tests' workers are forked and need not import torch again.

    Beside the threads of xdist none would be taken. They only wait for xdist's controller: a fork does them no harm.
    """
    import torch._dynamo  # noqa: F401  the slowest that workers need

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        patch.setattr(seed, "is_safe_to_fork", lambda: True)
        import holdfast.train.torch  # noqa: F401
    assert seed.planted() is not None


if "PYTEST_XDIST_WORKER" in os.environ:
    plant_seed()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: most tests wait half of their time, for processes to start or to be missed."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The processes of xdist must collect the same ids, and an address differs in each."""
    unstable = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if unstable:
        raise pytest.UsageError(f"ids with addresses; give @pytest.mark.parametrize other ids: {unstable}")


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    threads, processes, files = set(threading.enumerate()), descendants(), open_files()
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    yield
    changed = {number.name for number, handler in handlers.items() if signal.getsignal(number) is not handler}
    assert not changed, f"signal handlers left behind: {changed}"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        left = descendants() - processes - seeds()
        alive = [t for t in threading.enumerate() if t not in threads and not t.name.startswith("pytest_timeout")]
        if not left and not alive and open_files() <= files + spare_files():
            return
        time.sleep(0.01)
    assert not left, f"processes left behind: {[(pid, command(pid)) for pid in left]}"
    assert not alive, f"threads left behind: {alive}"
    assert open_files() <= files + spare_files(), "file descriptors left open"


def descendants() -> set[int]:
    """The living processes below this one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(name))
    found, todo = set(), [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def seeds() -> set[int]:
    planted = seed.planted()
    return planted.pids if planted is not None else set()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def spare_files() -> int:
    return len(seeds())  # the wire to each that the test's import planted, or its first report


def command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
