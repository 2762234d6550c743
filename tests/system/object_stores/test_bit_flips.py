"""A bit that flips in any object of a run on a real S3 server is caught by whoever reads that object: 100 of 100.

All but the logs, which are plain text for people.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote import remote_journal, remote_runfile
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.sealed import unseal
from support.object_stores.remote_job import trainer
from support.object_stores.servers import S3Server

FLIPS = 100


@pytest.fixture
def run(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    url = f"s3://{s3.make_bucket()}/runs"
    trainer(url, "run", {"steps": 4, "marks": str(tmp_path), "mode": "SYNC"}).fit()
    return Location.parse("run", f"{url}/run")


def is_caught(run: Location, objects: ObjectStore, key: str) -> bool:
    """Whether those who read this object notice."""
    kind, _, name = key.partition("/")
    try:
        match kind:
            case "journal":
                return bool(remote_journal.read(objects)[1])
            case "metrics":
                return bool(StoredRun(run).metrics_damage(key)[1])
            case "run.json":
                remote_runfile.read(objects)
            case "lease.json":
                return unseal(objects.get(key).removesuffix(b"\n")) is None
            case "checkpoints":
                RemoteCheckpoints(objects).verify(name.partition("/")[0].removesuffix(".json"))
    except (CheckpointDamagedError, StorageError):
        return True
    return False


def test_a_flipped_bit_in_any_object_is_caught(run: Location) -> None:
    objects = run.open(10)
    keys = [info.key for info in objects.list() if info.size and not info.key.startswith("logs/")]
    kinds = {key.partition("/")[0] for key in keys}
    assert kinds == {"journal", "metrics", "run.json", "lease.json", "checkpoints"}
    chance = random.Random(0)
    missed = []
    for number in range(FLIPS):
        key = keys[number % len(keys)]
        intact = objects.get(key)
        assert not is_caught(run, objects, key), key
        flipped = bytearray(intact)
        bit = chance.randrange(8 * len(intact))
        flipped[bit // 8] ^= 1 << bit % 8
        objects.put(key, bytes(flipped))
        if not is_caught(run, objects, key):
            missed.append((key, bit))
        objects.put(key, intact)
    assert not missed, f"{FLIPS - len(missed)} of {FLIPS} were caught"
    objects.close()
