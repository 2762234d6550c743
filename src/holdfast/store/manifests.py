"""The parts of a checkpoint: the manifest, one sealed line, and the shards from which the checkpoint is merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.store import formats, values
from holdfast.store.formats import FORMAT as FORMAT
from holdfast.store.layout import check_stored_name, path_problem
from holdfast.store.sealed import seal, unseal
from holdfast.store.staging import FileEntry as FileEntry

USER_METADATA = ".metadata.json"  # what Checkpoint.set_metadata writes, even after the commit: kept, but not verified


class Manifest(msgspec.Struct, frozen=True, rename={"attempt_number": "generation"}):
    format: int
    id: str
    attempt_number: int
    index: int  # the attempt's k-th report, from 0
    report: int  # the run's overall report number
    world_size: int
    created: float
    metrics: Any
    files: list[FileEntry]
    validation: Any = None  # the arguments of its validation, if one was requested
    epoch: int = 0  # the epoch of the driver that committed it; only on object stores, where readers need it


values.prepare(Manifest)
_FIELDS = msgspec.structs.fields(Manifest)


class Shard(msgspec.Struct, frozen=True):
    """The files that one rank staged and its agent sealed."""

    rank: int
    directory: str
    files: list[FileEntry]


def manifest_line(manifest: Manifest) -> bytes:
    """The content of a manifest's file."""
    files = [
        {name: value for name, value in msgspec.structs.asdict(entry).items() if name != "at" or value}
        for entry in manifest.files
    ]
    fields = {field.encode_name: getattr(manifest, field.name) for field in _FIELDS} | {"files": files}
    return seal(values.encode(fields, f"manifest of {manifest.id}"))


def parse_manifest(id: str, line: bytes, where: str) -> Manifest:
    """The manifest in a line from ``manifest_line``. Otherwise a CheckpointDamagedError that names ``where``."""
    manifest = parse_manifest_line(line, where)
    if manifest.id != id:
        raise CheckpointDamagedError(f"The manifest {where} belongs to another checkpoint, {manifest.id!r}")
    return manifest


def parse_manifest_line(line: bytes, where: str = "of a checkpoint") -> Manifest:
    data = unseal(line[:-1]) if line.endswith(b"\n") else None
    if data is None:
        raise CheckpointDamagedError(f"The manifest {where} is damaged: its content does not match its checksum")
    try:
        fields = values.decode(data)
        formats.check(fields, f"The manifest {where}")
        manifest = msgspec.convert(fields, Manifest)
        check_stored_name(manifest.id)
        for entry in manifest.files:
            _check_entry(entry)
    except (ValueError, msgspec.ValidationError) as error:
        raise CheckpointDamagedError(f"The manifest {where} cannot be read by this version: {error}") from None
    return manifest


def intact_manifests(lines: Iterable[bytes]) -> Iterator[Manifest]:
    """The manifests that are whole. A checkpoint with a torn manifest never was complete, or is gathered again."""
    for line in lines:
        try:
            manifest = parse_manifest_line(line)
        except CheckpointDamagedError:
            continue
        yield manifest


def _check_entry(entry: FileEntry) -> None:
    """Anyone who can write to the storage can write a sealed manifest, so check that no file lies outside the run."""
    for path in (entry.path, entry.at) if entry.at else (entry.path,):
        problem = path_problem(path)
        if problem:
            raise ValueError(f"{path[:200]!r} is not the path of a file in a checkpoint: {problem}")
    if entry.size < 0:
        raise ValueError(f"{entry.path!r} cannot have {entry.size} bytes")


def choose(id: str, shards: Sequence[Shard]) -> list[tuple[FileEntry, Shard]]:
    """The checkpoint's files in order. Each path comes from the lowest rank that has it."""
    chosen: dict[str, tuple[FileEntry, Shard]] = {}
    for shard in sorted(shards, key=lambda shard: shard.rank):
        for entry in shard.files:
            chosen.setdefault(entry.path, (entry, shard))
    if not chosen:
        raise StorageError(f"Checkpoint {id} is empty: save files into its directory before report()")
    for path, (entry, _) in chosen.items():
        try:
            _check_entry(entry)
        except ValueError as error:
            raise StorageError(f"Checkpoint {id} cannot be committed: {error}") from None
        for parent in PurePosixPath(path).parents if "/" in path else ():
            if str(parent) in chosen:
                raise StorageError(
                    f"Checkpoint {id} cannot be merged: one rank saved the file {str(parent)!r} and another saved "
                    f"{path!r} below it. Use different names for the ranks' files."
                )
    return [chosen[path] for path in sorted(chosen)]


def overwritten(shards: Sequence[Shard]) -> dict[str, list[int]]:
    """The paths that several ranks saved with different content, with those ranks. ``choose`` keeps the file of the
    lowest rank."""
    brought: dict[str, dict[int, str]] = {}
    for shard in shards:
        for entry in shard.files:
            if entry.digest and not is_user_metadata(entry.path):
                brought.setdefault(entry.path, {})[shard.rank] = entry.digest
    return {path: sorted(ranks) for path, ranks in sorted(brought.items()) if len(set(ranks.values())) > 1}


def is_user_metadata(path: str) -> bool:
    return path.startswith(USER_METADATA) and "/" not in path
