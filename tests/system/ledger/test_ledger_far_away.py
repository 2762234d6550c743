"""The ledgers of runs on a real S3 server, held against their journals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.remote import remote_journal
from support.driver.ledger_model import check_sum
from support.object_stores.proxy import Fault, FaultProxy
from support.object_stores.remote_job import __file__ as JOB
from support.object_stores.remote_job import trainer
from support.object_stores.servers import S3Server

ENDS_WITHIN_S = 120.0


def run_job(storage: str, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, JOB, storage, "run", json.dumps(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S)


def test_a_driver_is_killed(bucket: str, tmp_path: Path) -> None:
    blows = [{"what": "driver", "step": 4, "rank": 0, "durable": True}]
    config = {"steps": 6, "marks": str(tmp_path), "blows": blows}
    assert run_job(bucket, config).returncode == -signal.SIGKILL
    last = run_job(bucket, config)
    assert last.returncode == 0, last.stderr
    run = Location.parse("run", f"{bucket}/run")
    ledger = StoredRun(run).read().ledger
    check_sum(ledger)
    records, _ = remote_journal.read(run.open(10))
    first, second = [record.time for record in records if record.kind == "EpochBegan"]
    signs = [r.time for r in records] + [row["time"] for row in StoredRun(run).reports(1)]
    assert ledger.wall_clock_s == records[-1].time - first
    assert ledger.down_s == second - max(sign for sign in signs if sign < second)


def test_training_waits_for_storage(s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_LIMIT_GB", "0.001")
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.arm("upload", Fault("503", seconds=1.5))
        ledger = trainer(bucket, "run", {"steps": 8, "marks": str(tmp_path), "size": 400_000}).fit().ledger
        records, _ = remote_journal.read(Location.parse("run", f"{bucket}/run").open(10))
    check_sum(ledger)
    since = next(record.time for record in records if record.kind == "StorageLags" and record.body["stalled"])
    assert 0 < ledger.stalled_s <= records[-1].time - since
