"""Checkpoints: staged by workers, sealed by agents, committed by the driver. The manifest is the commit point.

A checkpoint exists if and only if its manifest does. Files become durable before the manifest, and the manifest goes
before the files. A mark stands beside them from before the first change until after the last one, so that whatever is
cut off in between is invisible and known to be ours. What has neither was put there by somebody else, and stays.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from holdfast.errors import CheckpointDamagedError, StorageError, StorageFullError
from holdfast.store import formats, staging, values
from holdfast.store.disk import Disk, ensure_dir, is_temporary, write_atomic
from holdfast.store.formats import FORMAT as FORMAT
from holdfast.store.layout import UNFINISHED, RunLayout, check_stored_name, is_stored_name, path_problem
from holdfast.store.regular import read_whole
from holdfast.store.sealed import Damage, seal, unseal
from holdfast.store.staging import FileEntry as FileEntry

log = logging.getLogger(__name__)
USER_METADATA = ".metadata.json"  # what Checkpoint.set_metadata writes, also after the commit: carried, not verified


class Manifest(msgspec.Struct, frozen=True):
    format: int
    id: str
    generation: int
    index: int  # the group's k-th report, from 0
    report: int  # the run's overall report number
    world_size: int
    created: float
    metrics: Any
    files: list[FileEntry]
    validation: Any = None  # what its validation is to be called with, if one was asked for
    epoch: int = 0  # of the driver that committed it, where that can be seen only later: on object stores


values.prepare(Manifest)


class Shard(msgspec.Struct, frozen=True):
    """What one rank staged and its agent sealed."""

    rank: int
    directory: str
    files: list[FileEntry]


def manifest_line(manifest: Manifest) -> bytes:
    """The content of a manifest's file."""
    files = [
        {name: value for name, value in msgspec.structs.asdict(entry).items() if name != "at" or value}
        for entry in manifest.files
    ]
    fields = msgspec.structs.asdict(manifest) | {"files": files}
    return seal(values.encode(fields, f"manifest of {manifest.id}"))


def parse_manifest(id: str, line: bytes, where: str) -> Manifest:
    """What ``manifest_line`` made of a checkpoint; CheckpointDamagedError, which names ``where``, if it is not that."""
    manifest = parse_manifest_line(line, where)
    if manifest.id != id:
        raise CheckpointDamagedError(f"The manifest {where} belongs to another checkpoint, {manifest.id!r}")
    return manifest


def parse_manifest_line(line: bytes, where: str = "of a checkpoint") -> Manifest:
    data = unseal(line[:-1]) if line.endswith(b"\n") else None
    if data is None:
        raise CheckpointDamagedError(f"The manifest {where} is damaged: its content does not fit its checksum")
    try:
        fields = values.decode(data)
        formats.check(fields, f"The manifest {where}")
        manifest = msgspec.convert(fields, Manifest)
        check_stored_name(manifest.id)
        for entry in manifest.files:
            _check_entry(entry)
    except (ValueError, msgspec.ValidationError) as error:
        raise CheckpointDamagedError(f"The manifest {where} is not one that this version reads: {error}") from None
    return manifest


def _check_entry(entry: FileEntry) -> None:
    """Anyone who can write the storage can write a manifest, and may seal it: no file may lie outside the run."""
    for path in (entry.path, entry.at) if entry.at else (entry.path,):
        problem = path_problem(path)
        if problem:
            raise ValueError(f"{path[:200]!r} is not the path of a file in a checkpoint: {problem}")
    if entry.size < 0:
        raise ValueError(f"{entry.path!r} cannot have {entry.size} bytes")


class _Unfinished(msgspec.Struct, frozen=True):
    """The report whose checkpoint was being committed."""

    generation: int
    index: int


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, layout: RunLayout, disk: Disk | None = None) -> None:
        self._layout = layout
        self._disk = disk or Disk()

    def stage(self, source: Path, target: Path, move: bool) -> list[FileEntry]:
        """Take a rank's directory into staging; its files with their sizes. A checkpoint of this run is copied even if
        it may be moved."""
        source = source.resolve()
        may_move = move and not source.is_relative_to(self._layout.root.resolve())
        if not self._layout.root.is_dir():  # a run that goes on where it was would be two
            raise StorageError(f"The run directory {self._layout.root} was moved or removed during the run.")
        self._disk.make_private_dir(self._layout.staging_dir)
        return staging.stage(self._disk, source, target.resolve(), may_move)

    def seal(self, directory: Path) -> list[FileEntry]:
        """Make a staged directory's files durable and take their digests."""
        return staging.seal(self._disk, directory)

    def commit(self, manifest: Manifest, shards: Sequence[Shard]) -> Manifest:
        """Merge the shards into a checkpoint. It exists when this returns; if it raises, the shards are as before."""
        manifest_file = self._layout.manifest_file(manifest.id)
        if manifest_file.exists():
            raise StorageError(f"Checkpoint {manifest.id} is committed already: give each checkpoint its own name")
        chosen = [self._located(entry, shard) for entry, shard in choose(manifest.id, shards)]
        for entry, source in chosen:
            staging.check_unchanged(source, entry)
        manifest = msgspec.structs.replace(
            manifest, format=FORMAT, files=[entry for entry, _ in chosen if not is_user_metadata(entry.path)]
        )
        data = manifest_line(manifest)
        ensure_dir(self._disk, self._layout.checkpoints_dir)
        self._make_way(manifest.id)
        moved: list[tuple[Path, Path]] = []
        try:
            self._mark(manifest.id, _Unfinished(manifest.generation, manifest.index))
            self._merge(manifest.id, chosen, moved)
            write_atomic(self._disk, manifest_file, data)
        except (StorageError, OSError):
            self._undo(manifest_file, moved)
            raise
        with contextlib.suppress(StorageError, OSError):  # beside a manifest it means nothing
            self._disk.unlink(self._layout.unfinished_file(manifest.id))
        self._discard(shards)
        return manifest

    def take_back(self, generation: int, index: int, rank: int, entries: Sequence[FileEntry]) -> None:
        """Give a shard back what a commit that was cut off had moved into a checkpoint. For each rank in turn."""
        shard = self._layout.shard_dir(generation, index, rank)
        for id in self._unfinished_ids():
            directory = self._layout.checkpoint_dir(id)
            mark = read_whole(self._layout.unfinished_file(id))
            of_another = mark != msgspec.json.encode(_Unfinished(generation, index))
            if of_another or self._layout.manifest_file(id).exists() or directory.is_symlink():
                continue
            for entry in entries:
                place = (self._layout.root / entry.at if entry.at else shard) / entry.path
                if not place.exists() and staging.difference(directory, entry) is None:
                    self._disk.makedirs(place.parent)
                    self._disk.rename(directory / entry.path, place)

    def read_manifest(self, id: str) -> Manifest:
        path = self._layout.manifest_file(id)
        try:
            line = read_whole(path)
        except OSError as error:
            raise CheckpointDamagedError(f"Checkpoint {id} has no readable manifest: {error}") from error
        return parse_manifest(id, line, str(path))

    def verify(self, id: str) -> Manifest:
        """Compare every file with the manifest; CheckpointDamagedError names what differs."""
        manifest = self.read_manifest(id)
        directory = self._directory(id)
        problems = staging.compare(directory, manifest.files, ignore=is_user_metadata)
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise CheckpointDamagedError(f"Checkpoint {directory} is damaged: {'; '.join(problems[:5])}{more}")
        return manifest

    def delete(self, id: str) -> None:
        """Remove a checkpoint; deleting one that is not there is no error."""
        manifest_file = self._layout.manifest_file(id)
        if manifest_file.exists():
            with contextlib.suppress(StorageFullError):  # to delete must still be possible then
                self._mark(id)
            self._disk.unlink(manifest_file)
            self._disk.fsync_dir(self._layout.checkpoints_dir)
        if self._is_ours(id):
            self._clear(id)

    def quarantine(self, id: str, why: str) -> None:
        """Never offer this checkpoint again. Its files stay to be looked at, until its name is committed anew."""
        marker, manifest_file = self._layout.quarantine_file(id), self._layout.manifest_file(id)
        if manifest_file.exists():
            self._disk.rename(manifest_file, marker)
        elif not marker.exists():
            ensure_dir(self._disk, self._layout.checkpoints_dir)
            self._disk.write_new(marker, b"")
        elif self._layout.quarantine_reason_file(id).exists():
            return  # the first reason stays: that its manifest is gone says less
        self._disk.fsync_dir(self._layout.checkpoints_dir)
        # Only the rename counts: on a full disk the reason is lost, and the checkpoint is still out of the way.
        with contextlib.suppress(StorageError):
            write_atomic(self._disk, self._layout.quarantine_reason_file(id), f"{why}\n".encode(errors="replace"))

    def ids(self) -> set[str]:
        """Of all that have a manifest, intact or not."""
        return {path.name.removesuffix(".json") for path in self._entries() if path.suffix == ".json"}

    def scan(self) -> tuple[list[Manifest], list[Damage]]:
        """The checkpoints whose manifests are intact, by report number. Their files are not looked into."""
        manifests: list[Manifest] = []
        damage: list[Damage] = []
        for path in self._entries():
            if path.suffix != ".json" or path.name.startswith("."):
                continue
            try:
                manifest = self.read_manifest(path.name.removesuffix(".json"))
                if not self._directory(manifest.id).is_dir():
                    raise CheckpointDamagedError("its directory is missing")
                manifests.append(manifest)
            except (CheckpointDamagedError, ValueError) as error:
                damage.append(Damage(self._layout.relative(path), "file", str(error)))
        return sorted(manifests, key=lambda manifest: (manifest.report, manifest.id)), damage

    def collect(self) -> list[str]:
        """Remove what crashes left, and say what it was: what carries our mark, and nothing that others put there. Only
        for the holder of the lease. Workers of an earlier one may not know yet and still stage files, which nobody
        wants: the next driver removes them."""
        leftovers = [self._layout.staging_dir] if self._layout.staging_dir.exists() else []
        for directory in (self._layout.root, self._layout.journal_dir, self._layout.checkpoints_dir):
            if directory.is_dir():
                leftovers += [path for path in sorted(directory.iterdir()) if is_temporary(path.name)]
        leftovers += self._unfinished()
        for path in leftovers:
            if path == self._layout.staging_dir:
                self.remove_staged()
            else:
                self._remove(path)
        return [self._layout.relative(path) for path in leftovers]

    def remove_staged(self) -> None:
        path = self._layout.staging_dir
        self._disk.rmdir(path)  # a colleague's can be removed if it is empty, though not entered
        try:
            self._disk.rmtree(path)
        except StorageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ENOTEMPTY:
                raise

    def _entries(self) -> list[Path]:
        directory = self._layout.checkpoints_dir
        return sorted(directory.iterdir()) if directory.is_dir() else []

    def _unfinished(self) -> list[Path]:
        """The directory of each checkpoint that was being committed or deleted, and then its mark."""
        found: list[Path] = []
        for id in self._unfinished_ids():
            kept = self._layout.manifest_file(id).exists() or self._layout.quarantine_file(id).exists()
            directory, mark = self._layout.checkpoint_dir(id), self._layout.unfinished_file(id)
            found += [mark] if kept or not os.path.lexists(directory) else [directory, mark]
        return found

    def _unfinished_ids(self) -> list[str]:
        marks = [path.name for path in self._entries() if path.name.startswith(".") and path.name.endswith(UNFINISHED)]
        return [id for mark in marks if is_stored_name(id := mark[1 : -len(UNFINISHED)])]

    def _is_ours(self, id: str) -> bool:
        marks = self._layout.manifest_file, self._layout.unfinished_file, self._layout.quarantine_file
        return any(mark(id).exists() for mark in marks)

    def _remove(self, path: Path) -> None:
        """A link goes, and what it leads to stays."""
        if path.is_dir() and not path.is_symlink():
            self._disk.rmtree(path)
        else:
            self._disk.unlink(path)

    def _directory(self, id: str) -> Path:
        directory = self._layout.checkpoint_dir(id)
        if directory.is_symlink():
            raise CheckpointDamagedError(f"{directory} is a link, not the directory that was committed")
        return directory

    def _located(self, entry: FileEntry, shard: Shard) -> tuple[FileEntry, Path]:
        """A file of a shard with its place. One that its user stored in the run is sealed now: when every rank has
        reported, nobody writes into it any more."""
        if not entry.at:
            return entry, self._layout.root / shard.directory / entry.path
        return staging.seal_file(self._disk, self._layout.root / entry.at, entry.path)

    def _merge(self, id: str, chosen: list[tuple[FileEntry, Path]], moved: list[tuple[Path, Path]]) -> None:
        target = self._layout.checkpoint_dir(id)
        directories: set[Path] = set()
        for entry, source in chosen:
            destination = target / entry.path
            if destination.parent not in directories:
                self._disk.makedirs(destination.parent)
                directories |= {parent for parent in destination.parents if parent.is_relative_to(target)}
            self._disk.rename(source, destination)
            moved.append((source, destination))
        for directory in sorted(directories, reverse=True):
            self._disk.fsync_dir(directory)
        self._disk.fsync_dir(self._layout.checkpoints_dir)

    def _undo(self, manifest_file: Path, moved: list[tuple[Path, Path]]) -> None:
        """Put the files back so that the commit can be tried again. As long as the manifest stands, they must stay."""
        with contextlib.suppress(StorageError, OSError):
            if manifest_file.exists():
                self._disk.unlink(manifest_file)
                self._disk.fsync_dir(manifest_file.parent)
            for source, destination in reversed(moved):
                self._disk.rename(destination, source)

    def _mark(self, id: str, report: _Unfinished | None = None) -> None:
        """What has this name from now on is ours, and is collected unless it is committed."""
        mark = self._layout.unfinished_file(id)
        if not mark.exists():
            self._disk.write_new(mark, b"" if report is None else msgspec.json.encode(report))
        self._disk.fsync_dir(self._layout.checkpoints_dir)

    def _make_way(self, id: str) -> None:
        """Remove what is left of an earlier checkpoint of that name. What somebody else put there is kept beside it."""
        directory = self._layout.checkpoint_dir(id)
        if self._is_ours(id) or not os.path.lexists(directory):
            self._clear(id)
            return
        aside = directory.with_name(f"{id}.set-aside-{os.urandom(4).hex()}")
        self._disk.rename(directory, aside)
        log.warning(
            "%s is not a checkpoint of this run, but has the name of a new one. Renamed to %s", directory, aside.name
        )

    def _clear(self, id: str) -> None:
        """Remove the files of a checkpoint that has no manifest: a leftover, or quarantined and now replaced."""
        directory = self._layout.checkpoint_dir(id)
        if os.path.lexists(directory):
            self._remove(directory)
            self._disk.fsync_dir(self._layout.checkpoints_dir)
        marks = self._layout.quarantine_file, self._layout.quarantine_reason_file, self._layout.unfinished_file
        for mark in marks:  # last, as long as there is something to be known by it
            if mark(id).exists():
                self._disk.unlink(mark(id))

    def _discard(self, shards: Sequence[Shard]) -> None:
        """Remove what is left of the shards; what cannot be removed now is collected later."""
        for shard in shards:
            directory = self._layout.root / shard.directory
            with contextlib.suppress(StorageError, OSError):
                self._disk.rmtree(directory)
                self._disk.rmdir(directory.parent)
            for at in {entry.at for entry in shard.files if entry.at}:
                self._remove_emptied(self._layout.root / at)

    def _remove_emptied(self, top: Path) -> None:
        """Of a directory that its user filled: the directories whose files are all in a checkpoint now."""
        for parent, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(StorageError, OSError):  # the user has put something else there
                os.rmdir(parent)


def choose(id: str, shards: Sequence[Shard]) -> list[tuple[FileEntry, Shard]]:
    """The checkpoint's files in order: each path's from the lowest rank that has it."""
    chosen: dict[str, tuple[FileEntry, Shard]] = {}
    for shard in sorted(shards, key=lambda shard: shard.rank):
        for entry in shard.files:
            chosen.setdefault(entry.path, (entry, shard))
    if not chosen:
        raise StorageError(f"Checkpoint {id} has no file at all: save something into its directory before report()")
    for path, (entry, _) in chosen.items():
        try:
            _check_entry(entry)
        except ValueError as error:
            raise StorageError(f"Checkpoint {id} cannot be committed: {error}") from None
        for parent in PurePosixPath(path).parents:
            if str(parent) in chosen:
                raise StorageError(
                    f"Checkpoint {id} cannot be merged: one rank saved the file {str(parent)!r} and another saved "
                    f"{path!r} below it. Give the ranks' files different names."
                )
    return [chosen[path] for path in sorted(chosen)]


def is_user_metadata(path: str) -> bool:
    return path.startswith(USER_METADATA) and "/" not in path
