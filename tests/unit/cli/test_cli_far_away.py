"""The commands that change something, and watch, on runs that are kept on an S3 server."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.store.location import Location
from support.cli.cli_shell import PATIENCE_S, finish_job, holdfast, holdfast_json, start, start_job

if TYPE_CHECKING:
    from support.object_stores.servers import S3Server


@pytest.fixture(scope="module", autouse=True)
def obstore_is_running() -> None:
    """Its threads stay, and are no test's."""
    import obstore
    from obstore.store import MemoryStore

    obstore.put(MemoryStore(), "warm", b"")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    from support.object_stores.servers import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    return f"s3://{s3.make_bucket()}/runs"


def keys(url: str) -> list[str]:
    return [info.key for info in Location.parse("url", url).open(10.0).list()]


def wait_for(url: str, key: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while key not in keys(url):
        assert time.monotonic() < deadline, f"{key} did not come"
        time.sleep(0.05)


def test_watched_and_stopped_from_elsewhere(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EVENT_LOG", "1")
    job = start_job(bucket, marks=str(tmp_path), wait_at=3)
    run = f"{bucket}/run"
    wait_for(run, "checkpoints/checkpoint_000003.json")
    refused = holdfast("checkpoints", "delete", run, "checkpoint_000001", "--yes", code=1).stderr
    assert f"is being driven by process {job.pid}" in refused
    watcher = start([sys.executable, "-m", "holdfast", "watch", run, "--json", "--interval", "0.5"])
    assert watcher.stdout is not None
    assert json.loads(next(watcher.stdout))["state"] == "running"
    assert holdfast_json("stop", run)["state"] == "stopped"
    finish_job(job, code=128 + signal.SIGTERM)
    rest, errors = watcher.communicate(timeout=PATIENCE_S)
    assert (watcher.returncode, errors) == (0, "")
    assert json.loads(rest.splitlines()[-1])["state"] == "stopped"
    assert "stop.json" not in keys(run)
    (log,) = (key for key in keys(run) if key.startswith("events/"))
    content = Location.parse("url", run).open(10.0).get(log)
    assert [json.loads(line)["event"] for line in content.splitlines()][-1] in ("RunEnded", "Phase")
    assert "nothing to stop" in holdfast("stop", run).stdout


def test_checkpoints_are_verified_exported_and_deleted(bucket: str, tmp_path: Path) -> None:
    finish_job(start_job(bucket, marks=str(tmp_path), steps=4, keep=4))
    run, ids = f"{bucket}/run", [f"checkpoint_{n:06d}" for n in (1, 2, 3, 4)]
    assert [c["id"] for c in holdfast_json("checkpoints", "verify", run)["checkpoints"]] == ids
    told = holdfast_json("checkpoints", "export", run, ids[2], "--to", tmp_path / "exported")
    assert (told["id"], told["files"], told["size"]) == (ids[2], 3, 4001)
    assert (tmp_path / "exported" / "step").read_text() == "3"
    assert "resume from" in holdfast("checkpoints", "delete", run, ids[3], "--yes", code=2).stderr
    assert holdfast_json("checkpoints", "delete", run, "--keep", 2, "--yes")["deleted"] == ids[:2]
    assert not [key for key in keys(run) if key.startswith((f"checkpoints/{ids[0]}/", f"checkpoints/{ids[1]}/"))]
    checked = holdfast_json("verify", run)
    assert (checked["good"], checked["resume"]["id"]) == (True, ids[3])
    finish_job(start_job(bucket, marks=str(tmp_path), steps=5, keep=4))
    shown = holdfast_json("show", run)
    assert (shown["metrics"]["step"], shown["damage"]) == (5, [])


def test_the_doctor_tries_the_store_and_leaves_nothing(bucket: str) -> None:
    findings = {f["what"]: f for f in holdfast_json("doctor", "--quick", bucket)["findings"]}
    assert findings["storage"]["grade"] in ("good", "warning")
    assert findings["creation"]["grade"] in ("good", "warning")
    assert findings["store's clock"]["text"] == "agrees with this machine's"
    assert keys(bucket) == []


@pytest.mark.usefixtures("bucket")
def test_the_doctor_names_a_bucket_that_is_not_there() -> None:
    told = holdfast_json("doctor", "--quick", "s3://no-such-bucket-of-ours/runs", code=1)
    (bad,) = (finding for finding in told["findings"] if finding["grade"] == "bad")
    assert bad["what"] == "storage"
    assert "bucket" in bad["text"]
