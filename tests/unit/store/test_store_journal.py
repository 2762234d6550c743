from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import RunInUseError, StorageError, StorageFullError
from holdfast.store.disk import Disk
from holdfast.store.journal import JournalFile, Record, read
from holdfast.store.layout import RunLayout
from support.store.faulty_disk import FullDisk


def write(layout: RunLayout, epoch: int, *entries: tuple[str, dict[str, Any]]) -> list[Record]:
    journal, _, _ = JournalFile.open(layout, epoch)
    for entry in entries:
        journal.append([entry], float(epoch))
    journal.close()
    return read(layout)[0]


def kinds(layout: RunLayout) -> list[str]:
    return [record.kind for record in read(layout)[0]]


def test_a_group_is_one_write_and_one_sync(layout: RunLayout) -> None:
    calls: list[str] = []

    class Counting(Disk):
        def append(self, file: Any, data: bytes) -> None:
            calls.append("append")
            super().append(file, data)

        def sync(self, file: Any) -> None:
            calls.append("sync")
            super().sync(file)

    disk = Counting()
    journal, _, _ = JournalFile.open(layout, 1, disk)
    journal.append([(f"k{n}", {"n": n}) for n in range(50)], 1.0)
    journal.append([], 1.0)
    journal.close()
    assert calls == ["append", "sync"]
    assert len(read(layout)[0]) == 50


def test_an_epoch_is_opened_once(layout: RunLayout) -> None:
    written = write(layout, 1, ("a", {}))
    with pytest.raises(RunInUseError, match="another driver of this run has begun epoch 1"):
        JournalFile.open(layout, 1)
    assert read(layout)[0] == written


def test_a_failed_append_does_not_poison_the_next(layout: RunLayout) -> None:
    disk = FullDisk(at=1)
    journal, _, _ = JournalFile.open(layout, 1, disk)
    journal.append([("a", {})], 1.0)
    for _ in range(2):
        with pytest.raises(StorageFullError):
            journal.append([("lost 1", {}), ("lost 2", {"x": "y" * 100})], 2.0)
    disk.full = False
    journal.append([("b", {})], 3.0)
    journal.close()
    records, damage = read(layout)
    assert [(record.seq, record.kind) for record in records] == [(1, "a"), (2, "b")]
    assert damage == []


def test_an_append_whose_sync_failed_is_taken_back(layout: RunLayout) -> None:
    class Unsyncable(Disk):
        fail = False

        def sync(self, file: Any) -> None:
            if self.fail:
                raise StorageError("input/output error")
            super().sync(file)

    disk = Unsyncable()
    journal, _, _ = JournalFile.open(layout, 1, disk)
    disk.fail = True
    with pytest.raises(StorageError):
        journal.append([("refused", {})], 1.0)
    disk.fail = False
    journal.append([("a", {})], 1.0)
    disk.fail = True
    with pytest.raises(StorageError):
        journal.append([("refused", {})], 1.0)
    journal.close()
    assert read(layout) == ([Record(1, 1.0, "a", {})], [])


def damaged(layout: RunLayout, epoch: int, change: Callable[[bytes], bytes]) -> tuple[list[str], list[str]]:
    path = layout.segment_file(epoch)
    path.write_bytes(change(path.read_bytes()))
    records, damage = read(layout)
    assert all(item.path == f"journal/{epoch:06d}.jsonl" or "missing" in item.what for item in damage)
    return [record.kind for record in records], [f"{item.where}: {item.what}" for item in damage]


def test_a_torn_tail_is_cut_and_named(layout: RunLayout) -> None:
    write(layout, 1, ("a", {}), ("b", {}))
    assert damaged(layout, 1, lambda data: data[:-10]) == (["a"], ["line 2: the last write was cut short"])


def test_records_glued_by_a_lost_newline_are_both_kept(layout: RunLayout) -> None:
    write(layout, 1, ("a", {}), ("b", {}), ("c", {}))
    found, damage = damaged(layout, 1, lambda data: data.replace(b"\n", b"\x0b", 1))
    assert found == ["a", "b", "c"]
    assert damage == ["line 1: its checksum does not match its content; 2 intact in it kept"]


def test_a_record_that_lost_only_its_newline_is_kept(layout: RunLayout) -> None:
    write(layout, 1, ("a", {}), ("b", {}))
    assert damaged(layout, 1, lambda data: data[:-1]) == (["a", "b"], [])


def test_a_lost_segment_is_a_named_gap(layout: RunLayout) -> None:
    write(layout, 1, ("a", {}))
    write(layout, 2, ("b", {}), ("c", {}))
    write(layout, 3, ("d", {}))
    layout.segment_file(2).unlink()
    records, damage = read(layout)
    assert [record.kind for record in records] == ["a", "d"]
    assert [(item.where, item.what) for item in damage] == [("record 4", "records 2 to 3 are missing")]


@pytest.mark.parametrize("garbage", [b"", b"\n\n\n", b"\xff\xfe\x00", b"[1, 2]\n", b"{}", b'{"seq":1}\n' * 3])
def test_garbage_in_a_segment_is_never_an_exception(layout: RunLayout, garbage: bytes) -> None:
    write(layout, 1, ("a", {}))
    write(layout, 2, ("b", {}))
    found, damage = damaged(layout, 1, lambda _: garbage)
    assert found == ["b"]
    assert damage


def test_a_directory_in_place_of_a_segment_is_named(layout: RunLayout) -> None:
    write(layout, 1, ("a", {}))
    layout.segment_file(2).mkdir()
    records, damage = read(layout)
    assert len(records) == 1
    assert [(item.path, item.where) for item in damage] == [("journal/000002.jsonl", "file")]


ENTRIES = [
    ("start", {"x": 1.5}),
    ("report", {"by": {1: float("-inf")}, "nested": {"seq": 1, "sum": "0123456789abcdef"}}),
    ("text", {"text": '{"seq":9,"sum":"' + "é\n" * 5}),
    ("end", {}),
]


@functools.cache
def written_once() -> tuple[list[Record], list[bytes]]:
    with tempfile.TemporaryDirectory() as directory:
        layout = RunLayout(Path(directory))
        write(layout, 1, *ENTRIES)
        records = write(layout, 2, *ENTRIES)
        return records, [path.read_bytes() for _, path in layout.segments()]


def history(root: Path) -> tuple[RunLayout, list[Record], list[bytes]]:
    layout = RunLayout(root)
    records, segments = written_once()
    layout.journal_dir.mkdir()
    for epoch, content in enumerate(segments, start=1):
        layout.segment_file(epoch).write_bytes(content)
    return layout, records, segments


def test_every_newline_may_be_lost_without_losing_a_record(tmp_path: Path) -> None:
    layout, written, (segment, _) = history(tmp_path)
    for position in (position for position, byte in enumerate(segment) if byte == ord("\n")):
        layout.segment_file(1).write_bytes(segment[:position] + b"?" + segment[position + 1 :])
        records, damage = read(layout)
        assert records == written
        assert len(damage) == 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bit_flip_costs_more_than_the_record_it_hits(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout, written, segments = history(Path(directory))
        which = data.draw(st.integers(0, 1))
        content = bytearray(segments[which])
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= 1 << data.draw(st.integers(0, 7))
        layout.segment_file(which + 1).write_bytes(content)
        records, damage = read(layout)
    hit = which * len(ENTRIES) + segments[which][:position].count(b"\n")
    spared = segments[which][position] == ord("\n")
    assert records == [record for number, record in enumerate(written) if spared or number != hit]
    assert damage


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_truncation_costs_a_record_before_the_cut(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout, written, segments = history(Path(directory))
        which = data.draw(st.integers(0, 1))
        kept = segments[which][: data.draw(st.integers(0, len(segments[which]) - 1))]
        layout.segment_file(which + 1).write_bytes(kept)
        records, damage = read(layout)
    whole = sum(1 for line in kept.split(b"\n") if line and line in segments[which].split(b"\n"))
    first, second = written[: len(ENTRIES)], written[len(ENTRIES) :]
    assert records == (first[:whole] + second if which == 0 else first + second[:whole])
    torn = bool(kept) and not kept.endswith((b"}", b"\n"))
    followed = which == 0 and whole < len(ENTRIES)
    assert damage or not (torn or followed)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.data())
def test_no_garbage_makes_a_record_that_was_not_written(garbage: bytes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        layout, written, segments = history(Path(directory))
        at = data.draw(st.integers(0, len(segments[0])))
        over = data.draw(st.booleans())
        rest = segments[0][at + len(garbage) if over else at :]
        layout.segment_file(1).write_bytes(segments[0][:at] + garbage + rest)
        records, _ = read(layout)
    assert all(record in written for record in records)
    assert records[-len(ENTRIES) :] == written[len(ENTRIES) :]
    assert len(records) >= len(written) - (2 + len(garbage) // 40 if over else 1)
