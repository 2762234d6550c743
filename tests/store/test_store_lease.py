from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import RunInUseError
from holdfast.store.journal import Journal
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


def test_epochs_rise(layout: RunLayout) -> None:
    for epoch in (1, 2, 3):
        lease = Lease.acquire(layout)
        assert lease.epoch == epoch
        lease.release()
        lease.release()


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
    journal, _, _ = Journal.open(layout, 3)
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
