"""Checkpoints: staged by workers, sealed by agents, committed by the driver. The manifest is the commit point.

A checkpoint exists if and only if its manifest does. Files are synced before the manifest is written, and the manifest
is removed before the files. A mark beside them exists from before the first change until after the last one. So an
interrupted change is invisible, and known to be ours. Files with neither manifest nor mark were put there by a user,
and stay.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

import msgspec

from holdfast.errors import CheckpointDamagedError, StorageError, StorageFullError
from holdfast.store import staging
from holdfast.store.disk import Disk, ensure_dir, is_temporary, write_atomic
from holdfast.store.formats import FORMAT
from holdfast.store.interfaces import NO_REASON, Checkpoints, Judge
from holdfast.store.layout import UNFINISHED, RunLayout, is_stored_name
from holdfast.store.manifests import Manifest, Shard, choose, is_user_metadata, manifest_line, parse_manifest
from holdfast.store.regular import read_whole
from holdfast.store.sealed import Damage
from holdfast.store.staging import FileEntry

log = logging.getLogger(__name__)
_REASON = 1 << 20  # bytes


class _Unfinished(msgspec.Struct, frozen=True, rename={"attempt_number": "generation"}):
    """The report whose checkpoint was being committed."""

    attempt_number: int
    index: int


class CheckpointStore(Checkpoints):
    """The checkpoints of one run."""

    def __init__(self, layout: RunLayout, disk: Disk | None = None) -> None:
        self._layout = layout
        self._disk = disk or Disk()

    def stage(self, source: Path, target: Path, move: bool) -> list[FileEntry]:
        """Take a rank's directory into staging; returns its files with their sizes. A checkpoint of this run is copied
        even if it may be moved."""
        source = source.resolve()
        may_move = move and not source.is_relative_to(self._layout.root.resolve())
        if not self._layout.root.is_dir():  # creating it again would split the run in two
            raise StorageError(f"The run directory {self._layout.root} was moved or removed during the run.")
        self._disk.make_private_dir(self._layout.staging_dir)
        return staging.stage(self._disk, source, target.resolve(), may_move)

    def seal(self, directory: Path) -> list[FileEntry]:
        """Sync a staged directory's files and compute their digests."""
        return staging.seal(self._disk, directory)

    def commit(
        self,
        manifest: Manifest,
        shards: Sequence[Shard] = (),
        leave_rest: bool = False,
        before: Callable[[], object] = lambda: None,
    ) -> Manifest:
        """Merge the shards into a checkpoint. It exists when this returns. If this raises, the shards are as before.
        ``leave_rest``: do not call ``discard``, which takes long if there are many shards. ``before`` is called when
        only the manifest is missing, and can still refuse by raising."""
        manifest_file = self._layout.manifest_file(manifest.id)
        if manifest_file.exists():
            raise StorageError(f"Checkpoint {manifest.id} is committed already: give each checkpoint its own name")
        root = str(self._layout.root)
        chosen = [self._located(entry, shard, root) for entry, shard in choose(manifest.id, shards)]
        for entry, source in chosen:
            staging.check_unchanged(source, entry)
        manifest = msgspec.structs.replace(
            manifest, format=FORMAT, files=[entry for entry, _ in chosen if not is_user_metadata(entry.path)]
        )
        data = manifest_line(manifest)
        ensure_dir(self._disk, self._layout.checkpoints_dir)
        self._make_way(manifest.id)
        moved: list[tuple[str, str]] = []
        try:
            self._mark(manifest.id, _Unfinished(manifest.attempt_number, manifest.index))
            self._merge(manifest.id, chosen, moved)
            before()
            write_atomic(self._disk, manifest_file, data)
        except (StorageError, OSError):
            self._undo(manifest_file, moved)
            raise
        with contextlib.suppress(StorageError, OSError):  # beside a manifest the mark has no meaning
            self._disk.unlink(self._layout.unfinished_file(manifest.id))
        if not leave_rest:
            self.discard(shards)
        return manifest

    def commit_copy(self, source: Manifest, of: Checkpoints, manifest: Manifest) -> Manifest:
        """Committed files are never changed, so both checkpoints can share them."""
        assert isinstance(of, CheckpointStore)
        staged = self._layout.shard_dir(manifest.attempt_number, manifest.index, 0)
        if staged.exists():
            shutil.rmtree(staged)
        shutil.copytree(of._layout.checkpoint_dir(source.id), staged, copy_function=_link)
        of.verify(source.id)
        return self.commit(manifest, [Shard(0, str(staged), self.seal(staged))])

    def take_back(self, attempt_number: int, index: int, rank: int, entries: Sequence[FileEntry]) -> None:
        """Move files that an interrupted commit had moved into a checkpoint back to the shard of this rank."""
        shard = self._layout.shard_dir(attempt_number, index, rank)
        for id in self._unfinished_ids():
            directory = self._layout.checkpoint_dir(id)
            mark = read_whole(self._layout.unfinished_file(id))
            of_another = mark != msgspec.json.encode(_Unfinished(attempt_number, index))
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

    def has_manifest(self, id: str) -> bool:
        return self._layout.manifest_file(id).exists()

    def verify(self, id: str) -> Manifest:
        manifest = self.read_manifest(id)
        directory = self._directory(id)
        problems = staging.compare(directory, manifest.files, ignore=is_user_metadata)
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            raise CheckpointDamagedError(f"Checkpoint {directory} is damaged: {'; '.join(problems[:5])}{more}")
        return manifest

    def delete(self, id: str) -> None:
        manifest_file = self._layout.manifest_file(id)
        if manifest_file.exists():
            with contextlib.suppress(StorageFullError):  # deleting must be possible on a full disk
                self._mark(id)
            self._disk.unlink(manifest_file)
            self._disk.fsync_dir(self._layout.checkpoints_dir)
        if self._is_ours(id):
            self._clear(id)

    def quarantine(self, id: str, why: str) -> None:
        marker, manifest_file = self._layout.quarantine_file(id), self._layout.manifest_file(id)
        if manifest_file.exists():
            self._disk.rename(manifest_file, marker)
        elif not marker.exists():
            ensure_dir(self._disk, self._layout.checkpoints_dir)
            self._disk.write_new(marker, b"")
        elif self._layout.quarantine_reason_file(id).exists():
            return  # keep the first reason: a missing manifest says less
        self._disk.fsync_dir(self._layout.checkpoints_dir)
        # Only the rename counts: on a full disk the reason is lost, but the checkpoint is still quarantined.
        with contextlib.suppress(StorageError):
            write_atomic(self._disk, self._layout.quarantine_reason_file(id), f"{why}\n".encode(errors="replace"))

    def quarantined(self) -> list[tuple[str, str]]:
        found = []
        for path in self._entries():
            if not path.name.endswith(".json.damaged"):
                continue
            id = path.name.removesuffix(".json.damaged")
            try:
                why = read_whole(self._layout.quarantine_reason_file(id), _REASON).decode(errors="replace").strip()
            except OSError:
                why = ""
            found.append((id, why or NO_REASON))
        return found

    def remove_files(self, manifest: Manifest) -> None:
        self._disk.rmtree(self._layout.checkpoint_dir(manifest.id))

    def ids(self) -> set[str]:
        """The ids of all checkpoints that have a manifest, intact or not."""
        return {path.name.removesuffix(".json") for path in self._entries() if path.suffix == ".json"}

    def scan(self, judge: Judge | None = None) -> tuple[list[Manifest], list[Damage]]:
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
                if path.exists():  # otherwise a driver has just deleted it
                    damage.append(Damage(self._layout.relative(path), "file", str(error)))
        return sorted(manifests, key=lambda manifest: (manifest.report, manifest.id)), damage

    def collect(self) -> list[str]:
        """Remove what crashes left behind and return its paths: only files with our mark, nothing that users put there.
        Only the holder of the lease may call this. Workers of an earlier driver may still stage files meanwhile. Those
        are not needed; the next driver removes them."""
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
        self._disk.rmdir(path)  # another user's directory can be removed if it is empty, but not read
        try:
            self._disk.rmtree(path)
        except StorageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ENOTEMPTY:
                raise

    def _entries(self) -> list[Path]:
        directory = self._layout.checkpoints_dir
        return sorted(directory.iterdir()) if directory.is_dir() else []

    def _unfinished(self) -> list[Path]:
        """For each checkpoint that was being committed or deleted: its directory, then its mark."""
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
        """Remove a file or directory. Of a link, the target stays."""
        if path.is_dir() and not path.is_symlink():
            self._disk.rmtree(path)
        else:
            self._disk.unlink(path)

    def _directory(self, id: str) -> Path:
        directory = self._layout.checkpoint_dir(id)
        if directory.is_symlink():
            raise CheckpointDamagedError(f"{directory} is a link, not the directory that was committed")
        return directory

    def _located(self, entry: FileEntry, shard: Shard, root: str) -> tuple[FileEntry, str]:
        """A file of a shard with its place. A file that the user stored in the run is sealed now: every rank has
        reported, so nothing writes to it any more."""
        if not entry.at:
            return entry, f"{os.path.join(root, shard.directory)}/{entry.path}"
        sealed, place = staging.seal_file(self._disk, self._layout.root / entry.at, entry.path)
        return sealed, str(place)

    def _merge(self, id: str, chosen: list[tuple[FileEntry, str]], moved: list[tuple[str, str]]) -> None:
        """Names are plain strings here: for ten thousand files, path objects would take longer than the renames."""
        target = str(self._layout.checkpoint_dir(id))
        directories: set[str] = set()
        for entry, source in chosen:
            below = entry.path.rpartition("/")[0]
            if below not in directories:
                self._disk.makedirs(Path(target, below))
                directories |= {"" if str(parent) == "." else str(parent) for parent in PurePath(entry.path).parents}
            destination = f"{target}/{entry.path}"
            self._disk.rename(source, destination)
            moved.append((source, destination))
        for directory in sorted(directories, reverse=True):
            self._disk.fsync_dir(Path(target, directory))
        self._disk.fsync_dir(self._layout.checkpoints_dir)

    def _undo(self, manifest_file: Path, moved: list[tuple[str, str]]) -> None:
        """Move the files back so that the commit can be retried. If the manifest cannot be removed first, they stay."""
        with contextlib.suppress(StorageError, OSError):
            if manifest_file.exists():
                self._disk.unlink(manifest_file)
                self._disk.fsync_dir(manifest_file.parent)
            for source, destination in reversed(moved):
                self._disk.rename(destination, source)

    def _mark(self, id: str, report: _Unfinished | None = None) -> None:
        """From now on, files under this name are ours, and are removed unless they are committed."""
        mark = self._layout.unfinished_file(id)
        if not mark.exists():
            self._disk.write_new(mark, b"" if report is None else msgspec.json.encode(report))
        self._disk.fsync_dir(self._layout.checkpoints_dir)

    def _make_way(self, id: str) -> None:
        """Remove what is left of an earlier checkpoint with that name. A user's files are kept under another name."""
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
        """Remove the files of a checkpoint without a manifest: it was unfinished, or quarantined and is now
        replaced."""
        directory = self._layout.checkpoint_dir(id)
        if os.path.lexists(directory):
            self._remove(directory)
            self._disk.fsync_dir(self._layout.checkpoints_dir)
        marks = self._layout.quarantine_file, self._layout.quarantine_reason_file, self._layout.unfinished_file
        for mark in marks:  # last, because they show that the files are ours
            if mark(id).exists():
                self._disk.unlink(mark(id))

    def discard(self, shards: Sequence[Shard]) -> None:
        """Remove the rest of the shards. Files that cannot be removed now are collected later. Most shards are empty by
        now; there may be ten thousand, so removing an empty one must be fast."""
        above: set[str] = set()
        for shard in shards:
            directory = os.path.join(self._layout.root, shard.directory)
            above.add(os.path.dirname(directory))
            with contextlib.suppress(StorageError, OSError):
                if not self._disk.rmdir(directory):
                    self._disk.rmtree(Path(directory))
            for at in {entry.at for entry in shard.files if entry.at}:
                self._remove_emptied(self._layout.root / at)
        for directory in sorted(above):
            with contextlib.suppress(StorageError, OSError):
                self._disk.rmdir(directory)

    def _remove_emptied(self, top: Path) -> None:
        """Remove directories below one that a user filled, if all of their files are in a checkpoint now."""
        for parent, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(StorageError, OSError):  # the user has put something else there
                os.rmdir(parent)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
