from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import HoldfastError, RunInUseError, StorageError
from holdfast.store.journal import JournalFile
from holdfast.store.layout import RunLayout
from holdfast.store.lease import Lease

HOLD = """
import sys
from pathlib import Path
from holdfast.store.layout import RunLayout
from holdfast.store.lease import Lease
lease = Lease.acquire(RunLayout(Path(sys.argv[1])))
print(lease.epoch, flush=True)
"""
HOLD_AND_WAIT = HOLD + "sys.stdin.read()\n"
# The holder forks a child that stays until the test's pipe closes, and is itself gone at once.
LEAVE_A_CHILD = HOLD + "import os\nif os.fork():\n    os._exit(0)\nsys.stdin.read()\n"
# The child of a living holder tries to take and to release what it inherited.
FORK_AND_TRY = (
    HOLD
    + """
import os
from holdfast.errors import RunInUseError
child = os.fork()
if not child:
    lease.release()
    try:
        Lease.acquire(RunLayout(Path(sys.argv[1])))
    except RunInUseError as error:
        os._exit(0 if f"process {os.getppid()} on" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
sys.stdin.read()
"""
)

# A version before open-file-description locks took the lease with a POSIX lock.
HOLD_AS_BEFORE = """
import fcntl, sys
file = open(f"{sys.argv[1]}/lease.json", "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(1, flush=True)
sys.stdin.read()
"""
PROBE = """
import sys
from pathlib import Path
from holdfast.store.lease import living_driver
from holdfast.store.layout import RunLayout
driver = living_driver(RunLayout(Path(sys.argv[1])))
print(driver.pid if driver else 0)
"""
# A library forks in C, where no hook of Python's runs, and the holder is gone.
LEAVE_A_CHILD_OF_C = (
    HOLD
    + """
import ctypes, os
libc = ctypes.PyDLL(None)
child = libc.fork()
if not child:
    libc.pause()
print(child, flush=True)
os._exit(0)
"""
)
FORK_BESIDE_AN_ACQUISITION = """
import os, sys, threading
from pathlib import Path
from holdfast.store import lease as leases
from holdfast.store.layout import RunLayout
lock, locked, forked = leases._lock, threading.Event(), threading.Event()
def slow(*args):
    lock(*args)
    locked.set()
    forked.wait(0.5)
leases._lock = slow
thread = threading.Thread(target=leases.Lease.acquire, args=(RunLayout(Path(sys.argv[1])),))
thread.start()
locked.wait(20)
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
forked.set()
thread.join(20)
print(child, flush=True)
os._exit(0)
"""


@contextmanager
def process(code: str, layout: RunLayout) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, str(layout.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            assert running.stdin
            running.stdin.close()
            try:
                running.wait(20)
            finally:
                running.kill()


def said(running: subprocess.Popen[str]) -> int:
    assert running.stdout
    return int(running.stdout.readline())


def test_a_second_driver_in_this_process_is_refused_and_changes_nothing(layout: RunLayout) -> None:
    lease = Lease.acquire(layout)
    try:
        for _ in range(2):
            with pytest.raises(RunInUseError, match=r"driven by this same process.*another name"):
                Lease.acquire(layout)
        with process(HOLD, layout) as other:
            assert other.wait(20) == 1, "the refused try must not have dropped the lock"
    finally:
        lease.release()
    Lease.acquire(layout).release()


def test_a_second_process_is_refused_and_told_who_holds_it(layout: RunLayout) -> None:
    with process(HOLD_AND_WAIT, layout) as holder:
        assert said(holder) == 1
        with pytest.raises(RunInUseError, match=rf"process {holder.pid} on .* since 2.*stop it, or give this run"):
            Lease.acquire(layout)
        holder.kill()
        holder.wait(20)
        lease = Lease.acquire(layout)
    assert lease.epoch == 2
    lease.release()


def test_a_child_that_outlives_the_holder_does_not_keep_the_lease(layout: RunLayout) -> None:
    with process(LEAVE_A_CHILD, layout) as holder:
        assert said(holder) == 1
        assert holder.wait(20) == 0
        lease = Lease.acquire(layout)
        lease.release()


def test_a_forked_child_neither_holds_nor_drops_the_lease(layout: RunLayout) -> None:
    with process(FORK_AND_TRY, layout) as holder:
        assert said(holder) == 1
        assert said(holder) == 0
        with pytest.raises(RunInUseError):
            Lease.acquire(layout)


def test_reading_the_file_in_the_drivers_own_process_does_not_drop_the_lease(layout: RunLayout) -> None:
    """As a backup of the run directory by a callback does."""
    lease = Lease.acquire(layout)
    try:
        shutil.copytree(layout.root, layout.root.with_name("backup"))
        with process(HOLD, layout) as other:
            assert other.wait(20) == 1
        lease.check()
    finally:
        lease.release()


def test_a_driver_of_an_older_version_keeps_this_one_out(layout: RunLayout) -> None:
    Lease.acquire(layout).release()
    with process(HOLD_AS_BEFORE, layout) as older:
        assert said(older) == 1
        with pytest.raises(RunInUseError):
            Lease.acquire(layout)


def test_this_version_keeps_a_driver_of_an_older_one_out(layout: RunLayout) -> None:
    lease = Lease.acquire(layout)
    try:
        with process(HOLD_AS_BEFORE, layout) as older:
            assert older.wait(20) == 1
    finally:
        lease.release()


def test_the_probe_of_the_commands_sees_the_holder_and_drops_nothing(layout: RunLayout) -> None:
    assert probed(layout) == 0
    with process(HOLD_AND_WAIT, layout) as holder:
        assert said(holder) == 1
        assert [probed(layout), probed(layout)] == [holder.pid, holder.pid]
        with pytest.raises(RunInUseError):
            Lease.acquire(layout)
    assert probed(layout) == 0


def probed(layout: RunLayout) -> int:
    """The pid of the living driver, by a command of its own."""
    with process(PROBE, layout) as command:
        return said(command)


def test_a_fork_while_the_lease_is_taken_does_not_keep_it(layout: RunLayout) -> None:
    with process(FORK_BESIDE_AN_ACQUISITION, layout) as holder:
        assert said(holder) > 0
        assert holder.wait(20) == 0
        Lease.acquire(layout).release()


def test_a_child_that_python_did_not_fork_is_named(layout: RunLayout) -> None:
    """Nothing can close its copy of the file, so the person is told which process to end."""
    with process(LEAVE_A_CHILD_OF_C, layout) as holder:
        assert said(holder) == 1
        child = said(holder)
        assert holder.wait(20) == 0
        with pytest.raises(RunInUseError, match=rf"{holder.pid} .*has exited.*Kill them: {child}"):
            Lease.acquire(layout)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)  # the test's own by now: see tests/conftest.py
        Lease.acquire(layout).release()


def test_check_costs_nothing_as_long_as_the_lease_is_held(layout: RunLayout) -> None:
    lease = Lease.acquire(layout)
    try:
        for _ in range(3):
            lease.check()
        layout.lease_file.write_bytes(b"garbage")  # whoever wrote that does not hold the lock
        lease.check()
    finally:
        lease.release()


def replace_file(layout: RunLayout) -> None:
    copy = layout.root / "copy"
    shutil.copy(layout.lease_file, copy)
    copy.replace(layout.lease_file)


def let_another_take_it(layout: RunLayout) -> None:
    layout.lease_file.unlink()
    with process(HOLD, layout) as other:
        assert other.wait(20) == 0


def write_a_later_epoch(layout: RunLayout) -> None:
    """A server that lost its locks let another driver in, which has ended since."""
    other = RunLayout(layout.root.with_name("other"))
    for _ in range(2):
        Lease.acquire(other).release()
    shutil.copyfile(other.lease_file, layout.lease_file)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda layout: layout.lease_file.unlink(), RunInUseError, r"lease.json of .* was deleted"),
        (replace_file, RunInUseError, r"lease.json of .* was replaced"),
        (let_another_take_it, RunInUseError, r"taken over by process \d+ on"),
        (write_a_later_epoch, RunInUseError, r"taken over by process \d+ on"),
        (lambda layout: shutil.rmtree(layout.root), StorageError, r"The run directory .* was removed"),
        (
            lambda layout: layout.root.rename(layout.root.with_name("elsewhere")),
            StorageError,
            r"The run directory .*run was moved to .*/storage/elsewhere",
        ),
        (
            lambda layout: (layout.root.rename(layout.root.with_name("elsewhere")), layout.root.mkdir()),
            StorageError,
            r"The run directory .*run was moved to .*/storage/elsewhere",
        ),
    ],
)
def test_a_lost_lease_is_noticed(
    layout: RunLayout, change: Callable[[RunLayout], object], error: type[HoldfastError], said: str
) -> None:
    lease = Lease.acquire(layout)
    try:
        change(layout)
        for _ in range(2):
            with pytest.raises(error, match=said):
                lease.check()
    finally:
        lease.release()


def test_two_names_of_one_directory_are_one_run(layout: RunLayout) -> None:
    lease = Lease.acquire(layout)
    alias = layout.root.with_name("alias")
    alias.symlink_to(layout.root)
    try:
        with pytest.raises(RunInUseError):
            Lease.acquire(RunLayout(alias))
    finally:
        lease.release()


@pytest.mark.parametrize("content", [b"", b"garbage\xff", b'{"epoch":99}\n', b'{"pid":1}'])
def test_a_damaged_lease_falls_back_to_the_journal(layout: RunLayout, content: bytes) -> None:
    for _ in range(3):
        lease = Lease.acquire(layout)
        lease.release()
    journal, _, _ = JournalFile.open(layout, 3)
    journal.close()
    layout.lease_file.write_bytes(content)
    lease = Lease.acquire(layout)
    lease.release()
    assert lease.epoch == 4


def test_a_holder_whose_file_is_damaged_still_holds(layout: RunLayout) -> None:
    with process(HOLD_AND_WAIT, layout) as holder:
        assert said(holder) == 1
        layout.lease_file.write_bytes(b"garbage")
        with pytest.raises(RunInUseError, match="driven by another process"):
            Lease.acquire(layout)


def test_other_runs_are_not_concerned(layout: RunLayout) -> None:
    other = RunLayout(layout.root.with_name("other"))
    leases = [Lease.acquire(layout), Lease.acquire(other)]
    for lease in leases:
        lease.release()
    assert os.path.exists(other.lease_file)
