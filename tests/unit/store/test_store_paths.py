"""Anyone who can write a run's storage can write a manifest: no path in one leads out of the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import (
    FileEntry,
    Manifest,
    Shard,
    choose,
    manifest_line,
    parse_manifest,
    parse_manifest_line,
)
from holdfast.store.staging import compare, describe, difference, make_way

OUTSIDE = ["/etc/passwd", "../up", "a/../../up", "..", ".", "", "a//b", "./a", "a/.", "a/", "a\0b"]
INSIDE = ["weights.bin", "a/b/c", ".hidden", "..a", "a..", "a b", "ünï\n\x1b[2J", "back\\slash"]


def manifest_of(*files: FileEntry, id: str = "c") -> Manifest:
    return Manifest(1, id, 1, 0, 1, 1, 0.0, {}, list(files))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_with_a_path_that_leads_out_is_damaged(path: str) -> None:
    files = [FileEntry(path, 1, "00"), FileEntry("good", 1, "00", at=path)]
    for entry in files if path else files[:1]:  # an empty ``at`` means the checkpoint's own directory
        with pytest.raises(CheckpointDamagedError, match="is not the path of a file in a checkpoint"):
            parse_manifest("c", manifest_line(manifest_of(entry)), "c.json")
        with pytest.raises(StorageError, match="is not the path of a file in a checkpoint"):
            choose("c", [Shard(0, "", [entry])])


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_inside_is_taken(path: str) -> None:
    manifest = manifest_of(FileEntry(path, 1, "00"), FileEntry(path, 1, "00", at=path))
    assert parse_manifest("c", manifest_line(manifest), "c.json") == manifest


@pytest.mark.parametrize("id", ["../c", "/c", "", ".", "a/b", "a\0b"])
def test_a_manifest_of_a_name_that_leads_out_is_damaged(id: str) -> None:
    with pytest.raises(CheckpointDamagedError):
        parse_manifest_line(manifest_line(manifest_of(FileEntry("a", 1, "00"), id=id)))


def test_a_file_of_a_negative_size_is_damage() -> None:
    with pytest.raises(CheckpointDamagedError, match="-1 bytes"):
        parse_manifest_line(manifest_line(manifest_of(FileEntry("a", -1, "00"))))


def test_what_lies_behind_a_link_is_not_in_a_checkpoint(tmp_path: Path) -> None:
    outside, directory = tmp_path / "outside", tmp_path / "checkpoint"
    for parent in (outside, directory / "sub"):
        parent.mkdir(parents=True)
        (parent / "file").write_bytes(b"same")
    entries = describe(directory)
    assert compare(directory, entries, ignore=lambda _path: False) == []
    (directory / "sub" / "file").unlink()
    (directory / "sub").rmdir()
    (directory / "sub").symlink_to(outside)
    assert "is a link" in str(difference(directory, entries[0]))


@pytest.mark.parametrize("linked", ["sub", "sub/file"])
def test_a_file_is_not_fetched_through_a_link(tmp_path: Path, linked: str) -> None:
    outside, directory = tmp_path / "outside", tmp_path / "checkpoint"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "file").write_bytes(b"mine")
    (directory / linked).parent.mkdir(parents=True)
    (directory / linked).symlink_to(outside / linked)
    make_way(directory, "sub/file").write_bytes(b"fetched")
    assert (outside / "sub" / "file").read_bytes() == b"mine"
    assert (directory / "sub" / "file").read_bytes() == b"fetched"


def test_a_checkpoint_directory_that_became_a_link_is_damage_and_is_not_followed(
    layout: RunLayout, tmp_path: Path
) -> None:
    store = CheckpointStore(layout)
    staged = layout.shard_dir(1, 0, 0)
    staged.mkdir(parents=True)
    (staged / "file").write_bytes(b"content")
    shard = Shard(0, layout.relative(staged), store.seal(staged))
    store.commit(manifest_of(id="c"), [shard])
    layout.checkpoint_dir("c").rename(tmp_path / "elsewhere")
    layout.checkpoint_dir("c").symlink_to(tmp_path / "elsewhere")
    manifests, damage = store.scan()
    assert manifests == []
    assert "is a link" in damage[0].what
    with pytest.raises(CheckpointDamagedError, match="is a link"):
        store.verify("c")
    store.delete("c")
    assert not layout.checkpoint_dir("c").is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_bytes() == b"content"


def test_a_manifest_in_the_name_of_another_is_damaged() -> None:
    line = manifest_line(msgspec.structs.replace(manifest_of(FileEntry("a", 1, "00")), id="other"))
    with pytest.raises(CheckpointDamagedError, match="other"):
        parse_manifest("c", line, "c.json")
