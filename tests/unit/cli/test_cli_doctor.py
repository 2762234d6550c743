"""``holdfast doctor``: what is wrong is found and named, and nothing is left where it looked."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import diagnosis_machine, diagnosis_storage
from holdfast.cli.diagnosis import DoctorFinding, Grade
from holdfast.store.location import Location
from support.cli.cli_shell import holdfast, holdfast_json


def found(*arguments: object, code: int = 0) -> dict[str, dict[str, Any]]:
    return {
        finding["what"]: finding for finding in holdfast_json("doctor", "--quick", *arguments, code=code)["findings"]
    }


def test_a_machine_that_is_fit(tmp_path: Path) -> None:
    storage = tmp_path / "not" / "there"
    findings = found(storage)
    assert {"holdfast", "torch", "processors", "open files", "storage", "locks", "syncs", "write speed"} <= set(
        findings
    )
    assert f"{storage} (does not exist yet; {tmp_path} is)" in findings["storage"]["text"]
    assert findings["locks"]["grade"] == "good"
    assert list(tmp_path.iterdir()) == []


def test_text_ends_with_a_verdict_and_names_remedies(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines = holdfast("doctor", "--quick", tmp_path / "file", code=1).stdout.splitlines()
    assert lines[-1].startswith("1 failed")
    at = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert lines[at].split()[1] == "storage"
    assert lines[at + 1].strip() == "-> choose a directory"


def test_wrong_storage() -> None:
    assert "ftp:// is not supported" in holdfast("doctor", "ftp://host/runs", code=2).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="/proc is what root may not write either")
def test_storage_that_cannot_be_written() -> None:
    (finding,) = look_at("/proc/holdfast-runs")
    assert (finding.what, finding.grade) == ("storage", Grade.BAD)
    assert "make it writable" in finding.remedy


def look_at(place: object) -> list[DoctorFinding]:
    return [f for look in diagnosis_storage.looks(Location.parse("path", str(place))) for f in look()]


def test_a_slow_and_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_storage, "_SLOW_SYNC_S", 0.0)
    monkeypatch.setattr(diagnosis_storage, "_SLOW_BYTES_A_SECOND", 1e18)
    monkeypatch.setattr(diagnosis_storage, "_LITTLE_SPACE", 1 << 60)
    grades = {finding.what: finding.grade for finding in look_at(tmp_path)}
    assert grades == {
        "storage": Grade.WARNING,
        "locks": Grade.GOOD,
        "syncs": Grade.WARNING,
        "write speed": Grade.WARNING,
    }


@pytest.mark.parametrize(("ahead_s", "told"), [(3600.4, "is 3600 s ahead of"), (-61.0, "is 61 s behind")])
def test_a_store_with_another_time_is_a_warning(ahead_s: float, told: str) -> None:
    finding = diagnosis_storage._clock(ahead_s)
    assert (finding.grade, finding.text) == (Grade.WARNING, f"{told} this machine's")


def about_ray(address: str | None) -> DoctorFinding:
    (finding,) = diagnosis_machine._ray(address)
    return finding


def test_a_ray_cluster_is_reached_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert about_ray(address).grade is Grade.GOOD
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        assert f"answers at ray://{address}" in about_ray(None).text
    assert "cannot be reached" in about_ray(address).text
    assert "Use host:port" in about_ray("nowhere").text


def test_torch_that_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_machine, "_TORCH", "raise ImportError('libcudart.so.99: not found')")
    (finding,) = diagnosis_machine._torch(quick=False)
    assert finding.grade is Grade.BAD
    assert "libcudart.so.99: not found" in finding.text


def test_limits_that_are_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis_machine, "_FEW_FILES", 1 << 40)
    monkeypatch.setattr(diagnosis_machine, "_SMALL_SHARED_MEMORY", 1 << 60)
    assert any("ulimit -n" in finding.remedy for finding in diagnosis_machine._limits())
    assert any("--shm-size" in finding.remedy for finding in diagnosis_machine._shared_memory())
