"""Checkpoints whose files are in a bucket and that are not committed yet."""

from __future__ import annotations

import xxhash

from holdfast.store.manifests import FileEntry, Manifest
from holdfast.testing.fake_objects import Bucket

FILES = {"model.pt": b"weights" * 300, "shards/0.bin": b"0" * 4096, "empty": b""}


def upload(bucket: Bucket, id: str, files: dict[str, bytes] = FILES, epoch: int = 1, report: int = 0) -> Manifest:
    """The files of a checkpoint, and the manifest with which it can be committed."""
    entries = []
    for path, data in files.items():
        bucket.content[f"checkpoints/{id}/{path}"] = data
        entries.append(FileEntry(path, len(data), xxhash.xxh3_128_hexdigest(data)))
    return Manifest(0, id, 1, report, report, 2, 1.5, {"loss": float("inf")}, entries, epoch=epoch)
