"""Nodes that come and go while the run is stored far away: each brings what its own workers saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

import holdfast.train as train
from holdfast.store.location import Location
from holdfast.store.remote import remote_journal
from support.elastic.elastic_job import Scene, wait_until
from support.object_stores.proxy import Fault, FaultProxy
from support.object_stores.servers import S3Server, s3_server


@pytest.fixture(scope="module", autouse=True)
def obstore_is_running() -> None:
    """Its own threads and files are started before a test counts what it left open."""
    obstore.put(MemoryStore(), "warm", b"")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def far(scene: Scene, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Its storage is a bucket."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    scene.storage = f"s3://{server.make_bucket()}/runs"
    return scene


def records(scene: Scene, kind: str) -> list[dict[str, Any]]:
    objects = Location.parse("run", f"{scene.storage}/run").open(10)
    try:
        return [record.body for record in remote_journal.read(objects)[0] if record.kind == kind]
    finally:
        objects.close()


def saved(result: train.Result) -> set[str]:
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        return {path.name for path in Path(directory).iterdir()}


def test_each_node_uploads_what_its_workers_saved(far: Scene) -> None:
    for _ in range(2):
        far.cluster.add_node(cpus=1)
    with far.meanwhile(lambda: far.await_steps(5, world=2)):
        result = far.trainer(2, config={"all_save": True}).fit()
    far.check(result)
    assert saved(result) == {"state.json", "rank-1.json"}
    assert not list((far.home / "scratch").glob("*/*")), "files are left on the nodes"


@pytest.mark.parametrize("all_save", [False, True])
def test_an_attempt_that_grows_loses_no_step(all_save: bool, far: Scene) -> None:
    """The new node has nothing of the checkpoint, and gets it from storage when it is there."""
    far.cluster.add_node(cpus=1)

    def join() -> None:
        far.await_steps(3)
        far.cluster.add_node(cpus=1)
        far.await_steps(3, world=2)

    with far.meanwhile(join):
        far.check(far.trainer((1, 2), config={"all_save": all_save}).fit())
    first, second = records(far, "GroupStarted")
    assert [first["world_size"], second["world_size"]] == [1, 2]
    assert second["base"] == max(step for _, world, step in far.notes("step") if world == 1) + 1
    assert records(far, "StagedLost") == []


def test_a_drained_node_brings_its_part_to_storage_before_it_goes(far: Scene) -> None:
    first, _ = (far.cluster.add_node(cpus=1) for _ in range(2))

    def drain() -> None:
        far.await_steps(3, world=2)
        far.cluster.drain_node(first, deadline_s=60)
        far.await_steps(3, world=1)

    with far.meanwhile(drain):
        far.check(far.trainer((1, 2), config={"all_save": True}).fit())
    assert records(far, "StagedLost") == []
    assert [group["world_size"] for group in records(far, "GroupStarted")] == [2, 1]


def test_a_node_that_is_lost_before_its_upload_costs_only_that_checkpoint(
    far: Scene, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoints behind it are in storage, and the run resumes from the newest of them."""
    with FaultProxy(server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        far.cluster.add_node(cpus=1)
        second = far.cluster.add_node(cpus=2)  # ranks 0 and 1; the other node has what nobody else will save

        def lose() -> None:
            far.await_steps(3, world=3)
            wait_until(lambda: records(far, "Committed"), "a first commit")
            proxy.arm("upload", Fault("503", seconds=3600))
            far.await_steps(3, world=3)
            far.cluster.remove_node(second)
            wait_until(lambda: records(far, "WorkerFailed"), "the loss")
            proxy.disarm()
            far.await_steps(3, world=1)

        with far.meanwhile(lose):
            far.check(far.trainer((1, 3), config={"all_save": True, "pause_s": 0.1}, max_failures=1).fit())
        again = records(far, "GroupStarted")[1]
        committed = [record["record"]["id"] for record in records(far, "Committed")]
        assert again["resume"] in committed
        assert again["base"] < max(step for _, world, step in far.notes("step") if world == 3)
