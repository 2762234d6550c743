"""Checkpoints on an object store: files first, then the manifest, whose creation is the commit.

As on disk, a checkpoint exists if and only if its manifest does, and the manifest is removed before the files. Writes
of a driver that has lost the run may arrive late. So manifests name the driver's epoch, and the journal decides which
of them count.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec
import xxhash

from holdfast.errors import CheckpointDamagedError, ObjectExistsError, ObjectMissingError, StorageError
from holdfast.store import formats
from holdfast.store.interfaces import NO_REASON, Checkpoints, Judge
from holdfast.store.layout import check_stored_name, is_stored_name
from holdfast.store.manifests import FORMAT, FileEntry, Manifest, Shard, is_user_metadata, manifest_line, parse_manifest
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel
from holdfast.store.remote.fetch import get_all
from holdfast.store.remote.remote_runfile import KEY as RUN_FILE
from holdfast.store.sealed import Damage
from holdfast.store.staging import difference

DIRECTORY = "checkpoints/"
_MANIFEST, _MARKER, _REASON, _OURS = ".json", ".json.damaged", ".json.damaged.txt", ".ours"
_OUR_NAME = re.compile(r"checkpoint_\d{6,}(-[grx]\d+)*")
_RANGE = 8 << 20  # bytes
_FORMATS_CHECKED = 15  # with run.json, these take one round of requests; others are checked when they are read
_AHEAD = 8  # ranges that may be in memory at the same time


class Listing(NamedTuple):
    """The existing parts of a run's checkpoints, by name only."""

    committed: list[str]
    quarantined: list[str]
    directories: list[str]  # directories of files; a checkpoint may be committed, quarantined, or neither yet
    marked: Sequence[str] = ()  # marked as ours, because a user could have chosen the name


class RemoteCheckpoints(Checkpoints):
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def commit(self, manifest: Manifest, shards: Sequence[Shard] = ()) -> Manifest:
        """The checkpoint's files are uploaded already; it exists when this returns. If this raises, it may or may not
        exist, and this driver or the next one can commit the same manifest again."""
        files = [entry for entry in manifest.files if not is_user_metadata(entry.path)]
        manifest = msgspec.structs.replace(manifest, format=FORMAT, files=files)
        try:
            self._objects.create(_key(manifest.id, _MANIFEST), manifest_line(manifest))
        except ObjectExistsError:
            there = self._same_of_another_driver(manifest)
            if there is not None:
                return there
            raise StorageError(
                f"Checkpoint {manifest.id} is committed already: give each checkpoint its own name"
            ) from None
        return manifest

    def check_format(self) -> None:
        """NewerFormatError if a newer version has written into the run. Its newest checkpoints would show that."""
        keys = [info.key for info in self._objects.level(DIRECTORY).objects if info.key.endswith(_MANIFEST)]
        keys = [RUN_FILE, *sorted(keys)[-_FORMATS_CHECKED:]]
        lines = get_all(self._objects, keys)
        formats.check_lines((f"{self._objects.url}/{key}", line) for key, line in zip(keys, lines, strict=True))

    def missing(self, manifest: Manifest) -> list[str]:
        """The files of an uncommitted checkpoint that are missing or have the wrong size."""
        there = {info.key: info.size for info in self._objects.list(_key(manifest.id, "/"))}
        return [
            entry.path
            for entry in manifest.files
            if not entry.at and not is_user_metadata(entry.path) and there.get(entry.key(manifest.id)) != entry.size
        ]

    def read_manifest(self, id: str) -> Manifest:
        key = _key(id, _MANIFEST)
        try:
            line = self._objects.get(key)
        except ObjectMissingError as error:
            raise CheckpointDamagedError(f"Checkpoint {id} has no manifest: {error}") from None
        return parse_manifest(id, line, f"{self._objects.url}/{key}")

    def commit_copy(self, source: Manifest, of: Checkpoints, manifest: Manifest) -> Manifest:
        assert isinstance(of, RemoteCheckpoints)
        files: list[FileEntry] = []
        with tempfile.TemporaryDirectory(prefix="holdfast-adoption-") as scratch:
            for entry in source.files:
                path = Path(scratch, "file")
                of._objects.download(entry.key(source.id), path, entry.size)
                if (problem := difference(Path(scratch), msgspec.structs.replace(entry, path="file"))) is not None:
                    raise CheckpointDamagedError(f"Checkpoint {source.id} is damaged: {problem}")
                own = msgspec.structs.replace(entry, at="")
                self._objects.upload(path, own.key(manifest.id))
                files.append(own)
                path.unlink()
        return self.commit(msgspec.structs.replace(manifest, files=files))

    def has_manifest(self, id: str) -> bool:
        return not self.gone([id])

    def scan(self, judge: Judge | None = None) -> tuple[list[Manifest], list[Damage]]:
        listing = self.listing()
        counts = judge() if judge else lambda _: True
        with_files = set(listing.directories)
        manifests: list[Manifest] = []
        damage: list[Damage] = []
        keys = [_key(id, _MANIFEST) for id in listing.committed]
        for id, key, line in zip(listing.committed, keys, get_all(self._objects, keys), strict=True):
            if line is None:
                continue  # deleted since
            try:
                manifest = parse_manifest(id, line, f"{self._objects.url}/{key}")
                if not counts(manifest):
                    continue
                if id not in with_files and not all(entry.at for entry in manifest.files):
                    raise CheckpointDamagedError("its directory is missing")
                manifests.append(manifest)
            except CheckpointDamagedError as error:
                damage.append(Damage(key, "file", str(error)))
        return sorted(manifests, key=lambda manifest: (manifest.report, manifest.id)), damage

    def quarantined(self) -> list[tuple[str, str]]:
        ids = self.listing().quarantined
        reasons = get_all(self._objects, [_key(id, _REASON) for id in ids])
        texts = [(why or b"").decode(errors="replace").strip() for why in reasons]
        return [(id, why or NO_REASON) for id, why in zip(ids, texts, strict=True)]

    def remove_files(self, manifest: Manifest) -> None:
        files = [info.key for info in self._objects.list(_key(manifest.id, "/"))]
        self._objects.delete([*files, *(entry.key(manifest.id) for entry in manifest.files if entry.at)])

    def listing(self) -> Listing:
        level = self._objects.level(DIRECTORY)
        keys = [info.key for info in level.objects]
        committed, marked = _ids(keys, _MANIFEST), _ids(keys, _MARKER)
        # A marker beside a manifest belongs to an earlier checkpoint of that name, or is not valid yet.
        quarantined = sorted(set(marked) - set(committed))
        hidden = [key.replace(f"{DIRECTORY}.", DIRECTORY) for key in keys if key.startswith(f"{DIRECTORY}.")]
        return Listing(committed, quarantined, _ids(level.directories, ""), tuple(_ids(hidden, _OURS)))

    def unknown(
        self, listing: Listing, known: Collection[str], counts: Callable[[Manifest], bool]
    ) -> tuple[list[Manifest], list[Damage]]:
        """The manifests that count although the journal does not know them, by report number. Only these are read."""
        manifests: list[Manifest] = []
        damage: list[Damage] = []
        ids = [id for id in listing.committed if id not in known]
        for id, manifest in zip(ids, in_parallel(self._try_manifest, ids), strict=True):
            if isinstance(manifest, CheckpointDamagedError):
                damage.append(Damage(_key(id, _MANIFEST), "file", str(manifest)))
            elif counts(manifest):
                manifests.append(manifest)
        return sorted(manifests, key=lambda manifest: (manifest.report, manifest.id)), damage

    def gone(self, ids: Sequence[str]) -> list[str]:
        """The checkpoints without a manifest. It is looked up: a checkpoint may have been committed since the
        listing."""
        lines = get_all(self._objects, [_key(id, _MANIFEST) for id in ids])
        return [id for id, line in zip(ids, lines, strict=True) if line is None]

    def verify(self, id: str) -> Manifest:
        manifest = self.read_manifest(id)
        directory = _key(id, "/")
        places = {directory, *(f"{entry.at}/" for entry in manifest.files if entry.at)}
        sizes = {info.key: info.size for place in sorted(places) for info in self._objects.list(place)}
        problems = [*self._differences(id, manifest.files, sizes)]
        expected = {entry.key(id) for entry in manifest.files}
        below = (
            key.removeprefix(directory) for key in sorted(sizes) if key.startswith(directory) and key not in expected
        )
        problems += [f"{path} does not belong to it" for path in below if not is_user_metadata(path)]
        if problems:
            more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
            where = f"{self._objects.url}/{directory[:-1]}"
            raise CheckpointDamagedError(f"Checkpoint {where} is damaged: {'; '.join(problems[:5])}{more}")
        return manifest

    def delete(self, id: str, elsewhere: Sequence[str] = ()) -> None:
        """Delete a checkpoint, or what is left of one. ``elsewhere``: its files that the user put into the run's
        storage."""
        self._objects.delete([_key(id, _MANIFEST)])
        files = [info.key for info in self._objects.list(_key(id, "/"))]
        marks = [] if _is_our_name(id) else [_mark(id)]
        self._objects.delete([*files, *elsewhere, _key(id, _MARKER), _key(id, _REASON), *marks])

    def quarantine(self, id: str, why: str) -> None:
        try:
            self._objects.put(_key(id, _MARKER), self._objects.get(_key(id, _MANIFEST)))
        except ObjectMissingError:
            with contextlib.suppress(ObjectExistsError):
                self._objects.create(_key(id, _MARKER), b"")
            with contextlib.suppress(StorageError):  # keep the first reason: a missing manifest says less
                self._objects.create(_key(id, _REASON), f"{why}\n".encode(errors="replace"))
            return
        with contextlib.suppress(StorageError):
            self._objects.put(_key(id, _REASON), f"{why}\n".encode(errors="replace"))
        self._objects.delete([_key(id, _MANIFEST)])

    def collect(self, listing: Listing, keep: Collection[str]) -> list[str]:
        """Remove listed checkpoints that are neither kept nor quarantined, and return their ids. They were never
        committed, or a driver committed them after it had lost the run. Only the holder of the lease may call this.

        A checkpoint with a damaged manifest may have been worth keeping, so it is quarantined. Files that have neither
        a manifest, nor a mark, nor a name of ours were put there by a user, and stay.
        """
        spared = {*keep, *listing.quarantined}
        unfinished = {*listing.marked, *filter(_is_our_name, listing.directories)}
        return [
            id
            for id in sorted({*listing.committed, *unfinished} - spared)
            if self._collect_one(id, id in listing.committed)
        ]

    def _collect_one(self, id: str, was_committed: bool) -> bool:
        """False if the manifest was removed after the listing: the checkpoint is quarantined, or being deleted."""
        key = _key(id, _MANIFEST)
        try:
            if was_committed:
                parse_manifest(id, self._objects.get(key), f"{self._objects.url}/{key}")
        except ObjectMissingError:
            return False
        except CheckpointDamagedError as error:
            self.quarantine(id, str(error))
        else:
            self.delete(id)
        return True

    def _same_of_another_driver(self, manifest: Manifest) -> Manifest | None:
        """The same checkpoint, if an earlier driver's commit arrived late. Its files were still on their node, so this
        driver was about to commit it too."""
        there = self._try_manifest(manifest.id)
        if isinstance(there, CheckpointDamagedError):
            return None
        ours = msgspec.structs.replace(manifest, epoch=there.epoch)
        return there if manifest_line(ours) == manifest_line(there) else None

    def _try_manifest(self, id: str) -> Manifest | CheckpointDamagedError:
        try:
            return self.read_manifest(id)
        except CheckpointDamagedError as error:
            return error

    def _differences(self, id: str, entries: list[FileEntry], sizes: dict[str, int]) -> Iterator[str]:
        readable: list[FileEntry] = []
        for entry in entries:
            size = sizes.get(entry.key(id))
            if size is None:
                yield f"{entry.path} is missing"
            elif size != entry.size:
                yield f"{entry.path} has {size} bytes instead of {entry.size}"
            elif entry.digest:
                readable.append(entry)
        for entry, digest in _digests(self._objects, id, readable):
            if digest != entry.digest:
                yield f"{entry.path} {'is missing' if digest is None else 'has other content than was committed'}"


def _digests(objects: ObjectStore, id: str, entries: list[FileEntry]) -> Iterator[tuple[FileEntry, str | None]]:
    """Each file's digest, or None if it is missing. Ranges of all files are read ahead and hashed in order."""
    todo = ((entry, start) for entry in entries for start in range(0, max(1, entry.size), _RANGE))
    ahead: deque[tuple[FileEntry, int, Future[bytes]]] = deque()
    hasher, gone = xxhash.xxh3_128(), False
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="holdfast-verify") as pool:
        while True:
            while len(ahead) < _AHEAD and (item := next(todo, None)) is not None:
                entry, start = item
                length = min(_RANGE, entry.size - start)
                ahead.append((entry, start, pool.submit(_read_range, objects, entry.key(id), start, length)))
            if not ahead:
                return
            entry, start, future = ahead.popleft()
            try:
                hasher.update(future.result())
            except ObjectMissingError:
                gone = True
            if start + _RANGE >= entry.size:
                yield entry, None if gone else hasher.hexdigest()
                hasher, gone = xxhash.xxh3_128(), False


def _read_range(objects: ObjectStore, key: str, start: int, length: int) -> bytes:
    return objects.get_range(key, start, length) if length else b""


def begin_upload(objects: ObjectStore, id: str) -> None:
    """Call this before the first file. It marks objects under this name as ours, committed or not, until they are
    deleted."""
    if not _is_our_name(id):
        objects.put(_mark(id), b"")


def _is_our_name(id: str) -> bool:
    """Whether Holdfast chose this name. Such a name marks objects as ours without a request."""
    return _OUR_NAME.fullmatch(id) is not None


def _mark(id: str) -> str:
    check_stored_name(id)
    return f"{DIRECTORY}.{id}{_OURS}"


def _key(id: str, suffix: str) -> str:
    check_stored_name(id)
    return f"{DIRECTORY}{id}{suffix}"


def _ids(keys: Iterable[str], suffix: str) -> list[str]:
    """The checkpoints to which these keys belong. Keys with other names were put there by a user."""
    names = [key.removeprefix(DIRECTORY).removesuffix(suffix) for key in keys if key.endswith(suffix)]
    return [name for name in names if is_stored_name(name)]
