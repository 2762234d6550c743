"""What every storage of runs must do: journal, lease, checkpoints, run.json and the files that grow.

Subclass ``DiskRunContract`` or ``ObjectRunContract`` as ``TestMyStorage``, and give a fixture ``location``: an empty
place for one run, new for each test.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import xxhash

from holdfast.errors import NewerFormatError, NotARunError, RunInUseError, StorageError
from holdfast.store import metrics, runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.interfaces import DriverLease, JournalWriter, LivingDriver, RunStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.manifests import FileEntry, Shard
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.remote_checkpoints import begin_upload
from holdfast.testing.checkpoint_contract import PATIENCE_S, CheckpointContract, contents, flip, newer

IDENTITY = {"name": "run", "nested": {"numbers": [1, 2.5, None, True]}, "text": "ümlaut"}
ODD = {"x": float("inf"), "by rank": {0: b"bytes"}, "$odd": "key", "line": "a\nb", "ü": [None, True]}
GAP = "record %d before it is missing"
METRICS = "metrics/attempt-0001/rank-0.jsonl"
LOG = "logs/attempt-0001/rank-0.log"


class RunStoreContract(CheckpointContract):
    """The tests that every run store must pass: journal, lease, checkpoints, run.json and growing files."""

    # The journal

    def test_records_come_back_in_order_over_all_epochs(self, store: RunStore) -> None:
        for _ in range(3):
            with driving(store) as (_, journal):
                journal.append([("Said", {"n": 1}), ("Said", {"n": 2, "what": ODD})], 1.0)
                journal.append([], 2.0)
                journal.append([("Said", {"n": 3})], 3.0, sync=False)
                journal.sync()
        records, damage = store.read_journal()
        assert damage == []
        assert said(records) == [1, 2, 3] * 3
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert [record.time for record in records if record.kind == "Said"] == [1.0, 1.0, 3.0] * 3
        assert [record.body.get("what") for record in records if record.body.get("n") == 2] == [ODD] * 3

    def test_the_next_driver_gets_the_history(self, store: RunStore) -> None:
        with driving(store) as (_, journal):
            say(journal, 1, 2)
        lease = store.acquire(ignore)
        journal, records, damage = lease.open_journal()
        try:
            assert (said(records), damage) == ([1, 2], [])
        finally:
            journal.close()
            lease.release()

    def test_what_never_began_has_no_records(self, store: RunStore) -> None:
        assert store.read_journal() == ([], [])
        assert not store.is_run()

    def test_a_body_that_cannot_be_stored_leaves_the_journal_as_it_was(self, store: RunStore) -> None:
        with driving(store) as (_, journal):
            say(journal, 1)
            with pytest.raises(TypeError, match=r"Said\['n'\] is a"):
                journal.append([("Said", {"n": 2}), ("Said", {"n": object()})], 1.0)
            with pytest.raises(TypeError, match="keys of a Said record must be strings"):
                journal.append([("Said", {0: "rank"})], 1.0)  # type: ignore[dict-item]
            say(journal, 3)
        records, damage = store.read_journal()
        assert (said(records), damage) == ([1, 3], [])

    def test_a_torn_tail_is_named_and_the_next_driver_goes_on_behind_it(
        self, store: RunStore, raw: ObjectStore
    ) -> None:
        with driving(store) as (_, journal):
            say(journal, 1)
            say(journal, 2)
        last = last_of_journal(raw)
        raw.put(last, raw.get(last)[:-20])
        records, damage = store.read_journal()
        assert said(records) == [1]
        assert [(one.path, one.what) for one in damage] == [(last, "the last write was cut short")]
        with driving(store) as (_, journal):
            say(journal, 3)
        records, damage = store.read_journal()
        assert said(records) == [1, 3]
        assert [record.seq for record in records] == list(range(1, len(records) + 1)), "its number is used again"
        assert len(damage) == 1

    def test_a_damaged_record_costs_itself_alone(self, store: RunStore, raw: ObjectStore) -> None:
        with driving(store) as (_, journal):
            say(journal, 1, 2, 3)
        last = last_of_journal(raw)
        content = raw.get(last)
        raw.put(last, content.replace(b'"n":2', b'"n":7'))
        records, damage = store.read_journal()
        assert said(records) == [1, 3]
        assert {one.path for one in damage} <= {last, "journal/"}
        assert [one.what for one in damage] == ["its checksum does not match its content", GAP % (records[-1].seq - 1)]

    def test_records_of_kinds_that_are_not_known_come_back_too(self, store: RunStore) -> None:
        """Later versions add kinds of records."""
        with driving(store) as (_, journal):
            journal.append([("OfALaterVersion", {"x": 1})], 1.0)
        assert [record.kind for record in store.read_journal()[0]][-1] == "OfALaterVersion"

    # The lease

    def test_epochs_rise(self, store: RunStore) -> None:
        epochs = []
        for _ in range(3):
            with driving(store) as (lease, _):
                epochs.append(lease.epoch)
            lease.release()  # a second release changes nothing
        assert epochs == [1, 2, 3]

    def test_a_second_driver_is_refused_and_told_who_drives(self, store: RunStore) -> None:
        with driving(store) as (lease, journal):
            with pytest.raises(RunInUseError, match=r"is being driven by .*process"):
                store.acquire(ignore)
            lease.check()
            assert not lease.is_lost
            say(journal, 1)
        assert said(store.read_journal()[0]) == [1]

    def test_the_driver_is_known_as_long_as_it_drives(self, store: RunStore) -> None:
        assert store.living_driver() is None
        with driving(store) as (lease, journal):
            assert is_this_process(store.living_driver())
            lease.check()  # looking did not lose the lease
            say(journal, 1)
            with pytest.raises(RunInUseError), store.keep_drivers_out():
                pass
        assert store.living_driver() is None
        with store.keep_drivers_out():
            pass
        with driving(store):
            pass

    def test_a_driver_that_was_relieved_writes_no_more(self, store: RunStore, raw: ObjectStore) -> None:
        """The driver was silent for so long that another one took over."""
        with driving(store) as (old, journal):
            say(journal, 1)
            raw.delete(["lease.json"])
            with driving(store) as (new, journal_of_new):
                assert new.epoch > old.epoch
                say(journal_of_new, 2)
                assert old.is_lost
                assert not new.is_lost
                with pytest.raises(RunInUseError, match=r"taken over|lease\.json"):
                    drive_on(old, journal)
                say(journal_of_new, 4)
                new.check()
        assert said(store.read_journal()[0]) == [1, 2, 4]

    # run.json

    def test_the_identity_comes_back(self, store: RunStore) -> None:
        store.write_identity(IDENTITY)
        assert store.read_identity() == IDENTITY
        store.write_identity({"name": "other"})
        assert store.read_identity() == {"name": "other"}
        assert store.is_run()
        assert store.is_there()
        assert store.identity_damage() == []

    def test_where_there_is_no_run(self, store: RunStore, location: Location) -> None:
        assert not store.is_run()
        with pytest.raises(NotARunError, match="is not a Holdfast run"):
            store.read_identity()

    def test_a_driver_that_begins_has_no_run_yet(self, store: RunStore) -> None:
        """Otherwise a reader would find a run that cannot be read."""
        with driving(store) as (_, journal):
            assert not store.is_run()
            say(journal, 1)
            assert store.is_run()

    def test_a_damaged_identity_is_named(self, store: RunStore, raw: ObjectStore) -> None:
        store.write_identity(IDENTITY)
        flip(raw, "run.json", 30)
        with pytest.raises(StorageError, match=r"run\.json is damaged"):
            store.read_identity()
        assert [one.path for one in store.identity_damage()] == ["run.json"]
        assert store.is_run()

    def test_a_run_of_a_newer_version_is_not_driven(self, store: RunStore, raw: ObjectStore) -> None:
        raw.put("run.json", newer(runfile.content_of(IDENTITY)))
        before = contents(raw)
        for refused in (store.read_identity, store.check_format, lambda: store.acquire(ignore)):
            with pytest.raises(NewerFormatError, match="Upgrade Holdfast"):
                refused()
        assert contents(raw) == before

    # Files that grow

    def test_logs_are_read_from_any_byte(self, store: RunStore, raw: ObjectStore) -> None:
        assert (store.directories("logs"), store.files("logs"), list(store.read(LOG))) == ([], [], [])
        raw.put(LOG, b"0123456789")
        assert (store.directories("logs"), store.files("logs")) == (["attempt-0001"], [LOG])
        assert store.files("logs/attempt-0001") == [LOG]
        assert [b"".join(store.read(LOG, start)) for start in (0, 4, 10, 99)] == [b"0123456789", b"456789", b"", b""]
        assert b"".join(reversed([*store.read_backwards(LOG)])) == b"0123456789"
        assert [*store.read_backwards("logs/attempt-0001/none")] == []

    def test_reports_come_back_and_damage_to_them_is_named(self, store: RunStore, raw: ObjectStore) -> None:
        assert store.reports(METRICS) == ([], [])
        lines = [metrics.line(index, 1.0, {"loss": index}) for index in range(5)]
        raw.put(METRICS, b"".join(lines))
        rows, damage = store.reports(METRICS)
        assert ([row["metrics"]["loss"] for row in rows], damage) == (list(range(5)), [])
        raw.put(METRICS, b"".join(lines).replace(b'"loss":2', b'"loss":7'))
        rows, damage = store.reports(METRICS)
        assert [row["index"] for row in rows] == [0, 1, 3, 4]
        assert [(one.path, one.where) for one in damage] == [(METRICS, "line 3")]


class DiskRunContract(RunStoreContract):
    def stage(self, location: Location, id: str, files: Mapping[str, bytes]) -> tuple[list[FileEntry], list[Shard]]:
        layout = RunLayout(Path(str(location)))
        directory = layout.shard_dir(1, sum(id.encode()), 0)
        for path, data in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
        return [], [Shard(0, layout.relative(directory), CheckpointStore(layout).seal(directory))]


class ObjectRunContract(RunStoreContract):
    def stage(self, location: Location, id: str, files: Mapping[str, bytes]) -> tuple[list[FileEntry], list[Shard]]:
        objects = location.open(PATIENCE_S)
        begin_upload(objects, id)
        for path, data in files.items():
            objects.put(f"checkpoints/{id}/{path}", data)
        entries = [FileEntry(path, len(data), xxhash.xxh3_128_hexdigest(data)) for path, data in sorted(files.items())]
        return entries, []


@contextmanager
def driving(store: RunStore) -> Iterator[tuple[DriverLease, JournalWriter]]:
    lease = store.acquire(ignore)
    try:
        journal, _, _ = lease.open_journal()
        try:
            yield lease, journal
        finally:
            journal.close()
    finally:
        lease.release()


def say(journal: JournalWriter, *numbers: int) -> None:
    journal.append([("Said", {"n": number}) for number in numbers], 1.0)


def drive_on(lease: DriverLease, journal: JournalWriter) -> None:
    lease.check()
    say(journal, 3)


def ignore(_lost: RunInUseError) -> None:
    """The callback is not needed here: the contract asks the lease itself."""


def said(records: list[Record]) -> list[Any]:
    return [record.body["n"] for record in records if record.kind == "Said"]


def is_this_process(driver: LivingDriver | None) -> bool:
    return driver is not None and (driver.pid, driver.host) == (os.getpid(), socket.gethostname())


def last_of_journal(raw: ObjectStore) -> str:
    return max(info.key for info in raw.list("journal/"))
