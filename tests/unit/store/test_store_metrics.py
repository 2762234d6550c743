from __future__ import annotations

import io
import math
import sys

import pytest

from holdfast.errors import StorageFullError
from holdfast.store import values
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import MetricsWriter, line, read_metrics
from support.store.faulty_disk import FullDisk, PowerCutDisk


def indexes(layout: RunLayout, attempt_number: int = 1, rank: int = 0) -> list[int]:
    return [row["index"] for row in read_metrics(layout, attempt_number, rank)[0]]


def test_lines_come_back_for_each_rank_and_attempt(layout: RunLayout) -> None:
    writer = MetricsWriter(layout)
    writer.append(1, 0, line(0, 1.5, {"loss": math.inf}) + line(1, 2.5, {"by layer": {0: 0.5}}))
    writer.append(1, 1, line(0, 1.5, {}))
    writer.append(2, 0, line(0, 3.5, {"loss": 0.25}))
    writer.close()
    assert read_metrics(layout, 1, 0) == (
        [
            {"index": 0, "time": 1.5, "metrics": {"loss": math.inf}},
            {"index": 1, "time": 2.5, "metrics": {"by layer": {0: 0.5}}},
        ],
        [],
    )
    assert (indexes(layout, 1, 1), indexes(layout, 2, 0), indexes(layout, 3, 0)) == ([0], [0], [])


def test_a_line_without_seal_is_read_too(layout: RunLayout) -> None:
    writer = MetricsWriter(layout)
    writer.append(1, 0, values.encode({"index": 0, "time": 1.0, "metrics": {"nan": math.inf}}) + b"\n")
    writer.close()
    assert indexes(layout) == [0]


def test_a_metric_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(TypeError, match=r"metrics\['a'\] is a builtins.object"):
        line(0, 1.0, {"a": object()})


def test_any_flipped_bit_costs_its_line_and_is_named(layout: RunLayout) -> None:
    writer = MetricsWriter(layout)
    lines = [line(index, 1.5, {"loss": index / 4}) for index in range(3)]
    writer.append(1, 0, b"".join(lines))
    writer.close()
    path = layout.metrics_file(1, 0)
    content = path.read_bytes()
    for position in range(len(lines[0]), len(lines[0] + lines[1]) - 1):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        rows, damage = read_metrics(layout, 1, 0)
        assert [row["index"] for row in rows] == [0, 2]
        assert damage[0].path == "metrics/attempt-0001/rank-0.jsonl"
        assert damage[0].where == "line 2"


def test_a_refused_append_does_not_spoil_the_next_line(layout: RunLayout) -> None:
    disk = FullDisk(at=1)
    writer = MetricsWriter(layout, disk)
    writer.append(1, 0, line(0, 1.0, {}))
    with pytest.raises(StorageFullError):
        writer.append(1, 0, line(1, 1.0, {}))
    disk.full = False
    writer.append(1, 0, line(2, 1.0, {}))
    writer.close()
    assert indexes(layout) == [0, 2]
    assert len(read_metrics(layout, 1, 0)[1]) == 1


def test_a_torn_line_of_an_earlier_writer_does_not_spoil_the_next(layout: RunLayout) -> None:
    path = layout.metrics_file(1, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(line(0, 1.0, {}) + line(1, 1.0, {})[:-20])
    writer = MetricsWriter(layout)
    writer.append(1, 0, line(2, 1.0, {}))
    writer.close()
    assert indexes(layout) == [0, 2]


def test_what_was_synced_survives_a_power_cut(layout: RunLayout) -> None:
    layout.root.mkdir(parents=True)
    disk = PowerCutDisk(layout.root)
    writer = MetricsWriter(layout, disk)
    writer.append(1, 0, line(0, 1.0, {}))
    writer.append(1, 1, line(0, 1.0, {}))
    writer.sync()
    writer.append(1, 0, line(1, 1.0, {}))
    cut = RunLayout(layout.root.with_name("cut"))
    disk.cut(len(disk.log), cut.root, None)
    writer.close()
    assert (indexes(cut), indexes(cut, rank=1)) == ([0], [0])


def test_files_of_older_attempts_are_closed_and_can_be_reopened(layout: RunLayout) -> None:
    writer = MetricsWriter(layout)
    for attempt_number in range(1, 30):
        writer.append(attempt_number, 0, line(0, 1.0, {}))
        writer.sync()
    assert len(writer._files) == 1
    writer.append(3, 0, line(1, 1.0, {}))
    writer.close()
    assert indexes(layout, 3) == [0, 1]


def test_a_directory_in_place_of_a_file_is_named(layout: RunLayout) -> None:
    layout.metrics_file(1, 0).mkdir(parents=True)
    rows, damage = read_metrics(layout, 1, 0)
    assert (rows, len(damage)) == ([], 1)


def test_files_of_many_ranks_are_synced_together(layout: RunLayout) -> None:
    synced: list[str] = []

    class Counting(Disk):
        def sync(self, file: io.FileIO) -> None:
            synced.append(str(file.name))
            super().sync(file)

    writer = MetricsWriter(layout, Counting())
    for ranks, apart in ((3, 3), (200, 0)):
        for rank in range(ranks):
            writer.append(1, rank, line(0, 0.0, {}))
        synced.clear()
        writer.sync()
        assert len(synced) == (apart if sys.platform == "linux" else ranks)
    writer.close()
    assert len(read_metrics(layout, 1, 199)[0]) == 1
