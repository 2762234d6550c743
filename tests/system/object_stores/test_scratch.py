"""What a machine keeps of a run on an object store: whose it is, and who may use and remove it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.object_stores.proxy import Fault, FaultProxy
from support.object_stores.remote_job import expected, run_job
from support.object_stores.servers import KEYS, S3Server, make_bucket, s3_server

STRANGER = 65534


def test_what_another_user_may_have_planted_is_neither_adopted_nor_uploaded(
    bucket: str, proxy: FaultProxy, marks: str, tmp_path: Path
) -> None:
    """A pending checkpoint that the next driver would adopt, in a directory that is not its user's."""
    proxy.arm("upload", Fault("503", seconds=3.0))
    gathered = str(tmp_path / "scratch" / "**" / "checkpoint_000005.json")
    config = {"steps": 8, "marks": marks, "blows": [{"what": "driver", "step": 5, "rank": 0, "await": gathered}]}
    assert run_job(bucket, config).returncode == -signal.SIGKILL
    planted = [*(tmp_path / "scratch").rglob("*")]
    assert planted
    for path in planted:
        path.chmod(0o777)
        if os.geteuid() == 0:
            os.chown(path, STRANGER, STRANGER)
    refused = run_job(bucket, config)
    assert refused.returncode == 1
    assert "Set HOLDFAST_SCRATCH_DIR to a directory of your own" in refused.stderr
    assert f"holdfast-{os.geteuid()} cannot be used for private files" in refused.stderr


@pytest.mark.usefixtures("proxy")
def test_files_in_scratch_are_private(bucket: str, marks: str, tmp_path: Path) -> None:
    config = {"steps": 3, "marks": marks, "blows": [{"what": "driver", "step": 2, "rank": 0}]}
    assert run_job(bucket, config).returncode == -signal.SIGKILL
    (own,) = (tmp_path / "scratch").iterdir()
    assert own.stat().st_mode & 0o077 == 0
    done = run_job(bucket, config)
    assert done.stdout.split()[-1:] == [expected(3)], done.stderr


def test_runs_of_one_url_on_two_servers_have_nothing_in_common(
    bucket: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run on the first server has a pending checkpoint here when one of the same URL starts on the other."""

    def config(name: str, **more: Any) -> dict[str, Any]:
        (tmp_path / name).mkdir(exist_ok=True)
        return {"steps": 8, "marks": str(tmp_path / name), **more}

    with s3_server() as other, FaultProxy(s3.port) as proxy:
        make_bucket(other.url, bucket.split("/")[2], **KEYS)
        proxy.arm("upload", Fault("503", seconds=3600.0))
        gathered = str(tmp_path / "scratch" / "**" / "checkpoint_000005.json")
        here = config("here", blows=[{"what": "driver", "step": 5, "rank": 0, "await": gathered}])
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        assert run_job(bucket, here).returncode == -signal.SIGKILL
        monkeypatch.setenv("AWS_ENDPOINT_URL", other.url)
        there = config("there")
        assert run_job(bucket, there).stdout.split()[-1:] == [expected(8)]
        assert starts(there) == [0], "it took up a checkpoint of the other run"
        proxy.disarm()
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        done = run_job(bucket, here)
        assert done.stdout.split()[-1:] == [expected(8)], done.stderr
        assert starts(here) == [0, 5], "the pending checkpoint of the first run is lost"


def starts(config: dict[str, Any]) -> list[int]:
    lines = (line.split() for line in Path(config["marks"], "notes").read_text().splitlines())
    return [int(line[2]) for line in lines if line[:2] == ["start", "0"]]
