"""The health probe finds what is wrong with a machine, and says what."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.node import probe


def test_a_healthy_machine_has_no_findings_and_is_left_as_it_was(tmp_path: Path) -> None:
    scratch = tmp_path / "run" / "node"
    (tmp_path / "run").mkdir()
    assert probe.findings(scratch) == []
    assert os.listdir(tmp_path / "run") == []


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = probe.findings(tmp_path / "file" / "below")
    assert found.startswith(f"disk at {tmp_path}/file/below: ")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)
    full = os.statvfs_result((*real[:4], 10, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: full if Path(path) == tmp_path else real)
    (found,) = probe.findings(tmp_path)
    assert "MiB are free" in found


def test_a_processor_that_errs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_BURST_DIGEST", "0" * 64)
    assert probe.findings(tmp_path) == ["processor: a computation gave a wrong result"]


def test_what_hangs_is_told_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(probe, "_WITHIN_S", 0.2)
    monkeypatch.setattr(probe, "_share_memory", lambda: go_on.wait(60.0))
    try:
        assert "shared memory at /dev/shm: no answer within 0.2 s" in probe.findings(tmp_path)
    finally:
        go_on.set()
