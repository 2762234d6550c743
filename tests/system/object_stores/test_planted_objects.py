"""Somebody else can write the bucket: nothing outside of a run's storage and scratch is written or deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fsspec.asyn
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from holdfast.errors import CheckpointDamagedError, NewerFormatError
from holdfast.node.node_checkpoints import NodeCheckpoints
from holdfast.store import values
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.objects.files import FileObjects
from holdfast.store.sealed import seal, unseal
from support.object_stores.remote_job import expected, load, trainer
from support.object_stores.servers import S3Server


@pytest.fixture(scope="module", autouse=True)
def fsspec_is_running() -> None:
    """Its thread lives as long as the process, and is not what a test leaves behind."""
    fsspec.asyn.get_loop()


@pytest.fixture(params=["obstore", "fsspec"])
def filesystem(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path) -> Any:
    if request.param == "obstore":
        return s3.store(s3.make_bucket())
    return DirFileSystem(str(tmp_path / "far"), fsspec.filesystem("file", auto_mkdir=True))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    (tmp_path / "marks").mkdir()
    return tmp_path / "scratch"


def newest_manifest(objects: ObjectStore) -> str:
    return max(info.key for info in objects.level("checkpoints/").objects if info.key.endswith(".json"))


@pytest.mark.parametrize(("where", "lead"), [("path", "absolute"), ("at", "up")])
def test_a_manifest_whose_path_leads_out_is_set_aside(filesystem: Any, tmp_path: Path, where: str, lead: str) -> None:
    config = {"marks": str(tmp_path / "marks")}
    trainer("runs", "run", {**config, "steps": 3}, storage_filesystem=filesystem).fit()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    objects = Location.parse("test(", "runs/run", filesystem).open(10.0)
    key = newest_manifest(objects)
    fields = values.decode(unseal(objects.get(key)[:-1]) or b"")
    way = str(precious) if lead == "absolute" else "../" * 12 + str(precious).lstrip("/")
    fields["files"][0][where] = way
    objects.put(key, seal(values.encode(fields)))

    result = trainer("runs", "run", {**config, "steps": 5}, storage_filesystem=filesystem).fit()
    assert result.return_value == expected(5)
    assert precious.read_text() == "mine"
    assert [info.key for info in objects.list("checkpoints/") if info.key == f"{key}.damaged"]
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        assert load(Path(directory)) == (expected(5), 5)
    starts = [line.split() for line in Path(tmp_path, "marks", "notes").read_text().splitlines() if "start 0" in line]
    assert [int(step) for _, _, step in starts] == [0, 2]
    objects.close()


@pytest.mark.parametrize("way", ["absolute", "up", "link"])
def test_a_mark_uploads_no_file_from_outside(tmp_path: Path, way: str) -> None:
    """Marks lie in scratch, and say what the next driver uploads."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    depot = NodeCheckpoints(tmp_path / "scratch", lambda: FileObjects(tmp_path / "far"))
    directory = depot.layout.checkpoint_dir("c")
    directory.mkdir(parents=True)
    (directory / "link").symlink_to(secret)
    path = {"absolute": str(secret), "up": os.path.relpath(secret, directory), "link": "link"}[way]
    (depot.layout.checkpoints_dir / ".c.unsaved").write_text(json.dumps([path]))
    with pytest.raises(CheckpointDamagedError):
        depot.upload("c")
    assert not [path for path in tmp_path.joinpath("far").rglob("*") if path.is_file()]


@pytest.mark.parametrize("which", ["run.json", "manifest"])
def test_a_newer_format_is_refused_and_nothing_is_changed(filesystem: Any, tmp_path: Path, which: str) -> None:
    config = {"marks": str(tmp_path / "marks")}
    trainer("runs", "run", {**config, "steps": 2}, storage_filesystem=filesystem).fit()
    objects = Location.parse("test(", "runs/run", filesystem).open(10.0)
    key = "run.json" if which == "run.json" else newest_manifest(objects)
    fields = values.decode(unseal(objects.get(key)[:-1]) or b"")
    objects.put(key, seal(values.encode({**fields, "format": 2, "version": "7.8.9"})))
    before = {info.key: objects.get(info.key) for info in objects.list()}
    with pytest.raises(NewerFormatError, match=r"by Holdfast 7\.8\.9 in format 2"):
        trainer("runs", "run", {**config, "steps": 5}, storage_filesystem=filesystem).fit()
    assert {info.key: objects.get(info.key) for info in objects.list()} == before
    objects.close()
