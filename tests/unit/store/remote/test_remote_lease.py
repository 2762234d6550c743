from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import RunInUseError
from holdfast.store import values
from holdfast.store.remote import holder as holders
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.remote.remote_lease import KEY, Opened, RemoteLease
from holdfast.store.sealed import seal, unseal
from holdfast.testing.fake_objects import Bucket, FakeObjects, ObjectFault
from support.object_stores.directory_objects import DirectoryObjects
from support.object_stores.drivers import said_in
from support.repository import SUPPORT


class Run:
    """Drivers of one run, with a clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.time = 1_000_000.0
        self.waits = 0
        self.lost: list[RunInUseError] = []
        self.leases: list[RemoteLease] = []

    def acquire(self, objects: FakeObjects | None = None) -> RemoteLease:
        objects = objects or FakeObjects(self.bucket)

        def claim(token: str) -> Opened:
            return RemoteJournal.open(objects, token)

        lease = RemoteLease.acquire(
            objects, claim, on_lost=self.lost.append, renew_s=1000.0, now=lambda: self.time, wait=self.wait
        )
        self.leases.append(lease)
        return lease

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.waits += 1

    def rewrite(self, **changes: object) -> None:
        """As if another machine had written the note."""
        note = values.decode(unseal(self.bucket.content[KEY].rstrip(b"\n")) or b"")
        note["holder"] |= {key: value for key, value in changes.items() if key in note["holder"]}
        note |= {key: value for key, value in changes.items() if key not in note["holder"]}
        self.bucket.content[KEY] = seal(values.encode(note))


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    for lease in run.leases:
        lease.release()


def test_a_released_run_is_taken_at_once(run: Run) -> None:
    first = run.acquire()
    assert first.epoch == 1
    first.release()
    assert run.acquire().epoch == 2
    assert run.waits == 0
    assert run.lost == []


def test_a_living_driver_is_not_relieved(run: Run) -> None:
    lease = run.acquire()
    run.rewrite(host="elsewhere")
    waited = run.wait

    def renewing(seconds: float) -> None:
        waited(seconds)
        if run.waits == 5:
            assert lease.renew()

    run.wait = renewing  # type: ignore[method-assign]
    with pytest.raises(RunInUseError, match=r"driven by process \d+ on .+ since \d{4}-"):
        run.acquire()
    assert run.waits == 5


def test_a_silent_driver_on_another_machine_is_relieved_after_its_time(run: Run) -> None:
    old = run.acquire()
    run.rewrite(host="elsewhere")
    new = run.acquire()
    assert new.epoch == 2
    assert run.waits == 20
    assert not old.renew()
    assert "has been taken over by" in str(run.lost[0])
    assert new.renew()


def test_a_driver_elsewhere_is_watched_for_its_whole_time_whatever_the_clocks_say(run: Run) -> None:
    """A clock that is ahead would find every note expired long ago."""
    run.acquire()
    run.rewrite(host="elsewhere")
    run.time += 1e6
    assert run.acquire().epoch == 2
    assert run.waits == 20


def test_a_living_driver_elsewhere_is_not_relieved_by_a_clock_that_is_ahead(run: Run) -> None:
    lease = run.acquire()
    run.rewrite(host="elsewhere")
    waited = run.wait

    def renewing(seconds: float) -> None:
        waited(seconds)
        if run.waits == 19:
            assert lease.renew()

    run.wait = renewing  # type: ignore[method-assign]
    run.time += 1e6
    with pytest.raises(RunInUseError):
        run.acquire()
    assert run.lost == []


def test_a_driver_that_runs_here_is_not_relieved_by_a_clock_that_is_ahead(run: Run) -> None:
    lease = run.acquire()
    run.time += 1e6
    with pytest.raises(RunInUseError, match=f"driven by process {os.getpid()} on"):
        run.acquire()
    assert run.waits == 0
    assert lease.renew()


def test_a_process_that_could_not_release_its_run_may_have_it_again(run: Run) -> None:
    """As in a notebook, whose process lives on when storage was unavailable at the end."""
    objects = FakeObjects(run.bucket)
    lease = run.acquire(objects)
    for request in range(20):
        objects.fail(objects.steps + request, ObjectFault.REFUSED)
    lease.release()
    assert run.acquire().epoch == 2
    assert run.waits == 0


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "600"])
    yield child
    child.kill()
    child.wait(timeout=10)


def test_another_process_here_is_watched_only_while_it_is_stopped(run: Run, other: subprocess.Popen[bytes]) -> None:
    run.acquire()
    run.rewrite(pid=other.pid, started=holders._started(other.pid))
    run.time += 1e6
    with pytest.raises(RunInUseError, match=f"process {other.pid} on"):
        run.acquire()
    assert run.waits == 0
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    waited = run.wait

    def continuing(seconds: float) -> None:
        waited(seconds)
        if run.waits == 5:
            other.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, other.pid, os.WCONTINUED)

    run.wait = continuing  # type: ignore[method-assign]
    with pytest.raises(RunInUseError, match=f"process {other.pid} on"):
        run.acquire()
    other.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    assert run.acquire().epoch == 2
    assert run.waits == 5 + 20


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"started": "1"}])
def test_a_dead_driver_on_this_machine_is_relieved_at_once(run: Run, change: dict[str, object]) -> None:
    run.acquire()
    run.rewrite(**change)
    assert run.acquire().epoch == 2
    assert run.waits == 0


def test_nothing_is_known_of_processes_elsewhere() -> None:
    here = holders.this_process("t", 0.0)
    assert not here.is_dead
    assert msgspec.structs.replace(here, pid=2**22 + 1).is_dead
    for change in ({"host": "elsewhere"}, {"boot": "another"}, {"boot": ""}):
        assert not msgspec.structs.replace(here, pid=2**22 + 1, **change).is_dead


def test_a_child_that_ended_and_was_not_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holders._started(child.pid) == ""
    child.communicate(timeout=10)


def test_a_damaged_note_makes_the_next_driver_watch(run: Run) -> None:
    run.acquire()
    run.bucket.flip(KEY, 77)
    assert run.acquire().epoch == 2
    assert run.waits == 20


def test_a_store_that_does_not_answer_costs_nobody_the_lease(run: Run) -> None:
    objects = FakeObjects(run.bucket)
    lease = run.acquire(objects)
    for fault in (ObjectFault.REFUSED, ObjectFault.LOST_REPLY):
        for request in range(2):
            objects.fail(objects.steps + request, fault)
            assert lease.renew()
    assert run.lost == []


def test_a_late_renewal_of_a_relieved_driver_is_put_right(run: Run) -> None:
    stale = FakeObjects(run.bucket)
    old = run.acquire(stale)
    stale.fail(stale.steps + 1, ObjectFault.DELAYED)
    assert old.renew()
    run.rewrite(host="elsewhere")
    new = run.acquire()
    stale.land()
    assert new.renew()
    assert not old.renew()


def test_a_relieved_driver_does_not_release_what_it_has_not(run: Run) -> None:
    old = run.acquire()
    run.rewrite(host="elsewhere")
    run.acquire()
    old.release()
    run.rewrite(host="elsewhere")
    run.acquire()
    assert run.waits == 40


def test_a_relieved_driver_ends_for_that_reason_whatever_it_meets(run: Run) -> None:
    """Its files on this machine are moved, for one."""
    old, missing = run.acquire(), FileNotFoundError(2, "No such file or directory")
    assert old.cause_of(missing) is missing
    run.rewrite(host="elsewhere")
    run.acquire()
    assert "has been taken over by" in str(old.cause_of(missing))


def test_a_killed_driver_is_relieved_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, SUPPORT / "object_stores" / "one_driver.py", tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "1\n"
        objects = DirectoryObjects(tmp_path)
        waits: list[float] = []

        def acquire() -> RemoteLease:
            def claim(token: str) -> Opened:
                return RemoteJournal.open(objects, token)

            def wait(seconds: float) -> None:
                waits.append(seconds)
                if len(waits) == 3:
                    objects.put(KEY, objects.get(KEY) + b"\n")  # the living one's next renewal, without waiting for it

            return RemoteLease.acquire(objects, claim, on_lost=lambda _: None, wait=wait)

        with pytest.raises(RunInUseError, match=f"process {child.pid} on"):
            acquire()
        child.kill()
        child.wait(timeout=10)
        waits.clear()
        lease = acquire()
        lease.release()
        assert (lease.epoch, waits) == (2, [])
        assert said_in(objects) == ["Hello"]
    finally:
        child.kill()
        child.wait(timeout=10)
        child.stdout.close()
