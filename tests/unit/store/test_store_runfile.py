from __future__ import annotations

import json
import math

import pytest

from holdfast.errors import NewerFormatError, NotARunError, StorageError
from holdfast.store import runfile
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.sealed import seal

BODY = {"name": "a run", "config": {"lr": 0.1, "ratio": math.inf}, "workers": 2}


def test_what_was_written_is_read_and_is_plain_json(layout: RunLayout) -> None:
    runfile.write(layout, Disk(), BODY)
    assert runfile.read(layout) == BODY
    assert json.loads(layout.run_file.read_bytes())["run"]["name"] == "a run"


def test_a_moved_run_reads_the_same(layout: RunLayout) -> None:
    runfile.write(layout, Disk(), BODY)
    moved = RunLayout(layout.root.with_name("moved"))
    layout.root.rename(moved.root)
    assert runfile.read(moved) == BODY


def test_a_directory_without_run_file_is_not_a_run(layout: RunLayout) -> None:
    with pytest.raises(NotARunError, match=r"is not a Holdfast run.*<storage_path>/<name>"):
        runfile.read(layout)
    layout.root.parent.mkdir(parents=True)
    layout.root.write_text("a file")
    with pytest.raises(NotARunError):
        runfile.read(layout)


def test_any_flipped_bit_and_any_truncation_is_noticed(layout: RunLayout) -> None:
    runfile.write(layout, Disk(), BODY)
    content = layout.run_file.read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        for damaged in (bytes(flipped), content[:position]):
            layout.run_file.write_bytes(damaged)
            with pytest.raises(StorageError, match=r"run\.json is damaged"):
                runfile.read(layout)


def test_a_newer_format_says_to_upgrade(layout: RunLayout) -> None:
    layout.root.mkdir(parents=True)
    layout.run_file.write_bytes(seal(b'{"format":2,"version":"3.4","body":[]}'))
    with pytest.raises(NewerFormatError, match=r"by Holdfast 3\.4 in format 2.*Upgrade"):
        runfile.read(layout)


@pytest.mark.parametrize("data", [b'{"format":1}', b'{"format":"x","run":{}}', b'{"format":1,"run":[]}', b"[1,2]"])
def test_intact_bytes_that_are_no_run_file_are_damage(layout: RunLayout, data: bytes) -> None:
    layout.root.mkdir(parents=True)
    layout.run_file.write_bytes(seal(data))
    with pytest.raises(StorageError, match="is damaged"):
        runfile.read(layout)
