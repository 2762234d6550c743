"""A remote checkpoint's files on this machine: fetched once, shared by all users, checked against the manifest.

Beside a shared directory is the file ``<name>.users``, on which each user holds a lock. It is created and removed under
the directory's own lock. The last user removes the file and the directory. What a killed process fetched is used again
if it matches the manifest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from holdfast import settings
from holdfast.errors import CheckpointDamagedError, ObjectMissingError, StorageUnavailableError
from holdfast.store import staging
from holdfast.store.location import Location
from holdfast.store.manifests import is_user_metadata, parse_manifest
from holdfast.store.objects.base import ObjectInfo, ObjectStore
from holdfast.store.parallel import in_parallel
from holdfast.store.remote.fetch import get_all
from holdfast.store.scratch import make_scratch_root
from holdfast.store.staging import FileEntry

PATIENCE_S = 60.0
_LARGE = 8 << 20  # bytes; larger files are fetched in parallel parts
_DOWNLOADS = 2  # if a file arrives with wrong content, fetch it once more before it counts as damaged


class Remote(NamedTuple):
    """A checkpoint as it is in storage."""

    location: Location
    objects: ObjectStore
    files: list[ObjectInfo]
    entries: dict[str, FileEntry] | None  # by path; None if the expected content is unknown
    manifest: bytes


def exists(location: Location) -> bool:
    """Whether anything exists there. It is an error if the store does not answer."""
    if location.path is not None:
        return location.path.is_dir()
    level = location.open(PATIENCE_S).level()
    return bool(level.objects or level.directories) or _beside(location, ".json")[0] is not None


def sizes(location: Location) -> dict[str, int]:
    """The sizes of all files below it, by their relative paths."""
    if location.path is not None:
        return {path: (location.path / path).lstat().st_size for path in sorted(staging.files(location.path))}
    with contextlib.closing(location.open(PATIENCE_S)) as objects:
        return {info.key: info.size for info in objects.list()}


def look(location: Location) -> Remote:
    """FileNotFoundError if it does not exist, CheckpointDamagedError if it is quarantined or its files differ."""
    (line,) = _beside(location, ".json")
    if line is None:
        _check_not_set_aside(location)
    objects = location.open(PATIENCE_S)
    files = _files(location, objects)
    if line is None:
        if not files:
            raise FileNotFoundError(f"The checkpoint {location} does not exist (deleted, or never committed)")
        return Remote(location, objects, files, None, b"")
    manifest = parse_manifest(location.name, line, f"{location}.json")
    entries = {entry.path: entry for entry in manifest.files}
    _check_names(location, entries)
    there = {info.key for info in files}
    problems = [f"{path} is missing" for path, entry in entries.items() if path not in there and not entry.at]
    problems += [
        f"{path} does not belong to it" for path in there if path not in entries and not is_user_metadata(path)
    ]
    if problems:
        raise _damaged(location, sorted(problems))
    files += [ObjectInfo(entry.path, entry.size) for entry in manifest.files if entry.at]
    return Remote(location, objects, files, entries, line)


def fetch(remote: Remote, directory: Path) -> None:
    """When this returns, all files are in the directory and verified. Files of an earlier call are used if they can be
    verified."""
    directory.mkdir(parents=True, exist_ok=True)
    small = [info for info in remote.files if info.size <= _LARGE]
    problems = in_parallel(lambda info: _fetch_file(remote, info, directory), small)
    problems += [_fetch_file(remote, info, directory) for info in remote.files if info.size > _LARGE]
    found = [problem for problem in problems if problem]
    if found:
        raise _damaged(remote.location, found)


@contextlib.contextmanager
def shared(remote: Remote, identity: str) -> Iterator[str]:
    """A directory with the files, to read from. ``identity`` distinguishes files without a manifest."""
    target = _shared_directory(remote, identity)
    users = f"{target}.users"
    with lock(target):
        fd = os.open(users, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not (_is_in_use(fd) and os.path.isdir(target)):
                _fetch_anew(remote, Path(target))
            fcntl.flock(fd, fcntl.LOCK_SH)
        except BaseException:
            _leave(fd, users, target)
            raise
    try:
        yield target
    finally:
        with lock(target):
            _leave(fd, users, target)


def own_directory() -> str:
    """A directory private to this user, so existing files in it are trusted."""
    return str(make_scratch_root(settings.load().scratch_dir))


@contextlib.contextmanager
def lock(target: str) -> Iterator[bool]:
    """Hold the machine-wide lock on ``target``. Yields whether another process held it before."""
    digest = hashlib.sha256(target.encode(errors="surrogateescape")).hexdigest()[:32]
    path = os.path.join(own_directory(), f"copy-{digest}.lock")
    waited = False
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
                fcntl.flock(fd, fcntl.LOCK_EX)
            # If the previous holder removed the file, our lock is on a file that no other process sees.
            if not _is_same_file(fd, path):
                continue
            try:
                yield waited
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


def _check_not_set_aside(location: Location) -> None:
    marker, why = _beside(location, ".json.damaged", ".json.damaged.txt")
    if marker is not None:
        said = (why or b"").decode(errors="replace").strip() or "it was found damaged"
        raise CheckpointDamagedError(f"Checkpoint {location} was set aside: {said}")


def _files(location: Location, objects: ObjectStore) -> list[ObjectInfo]:
    """The files, without the empty objects that web consoles create for directories."""
    files = objects.list()
    _check_names(location, (info.key for info in files))
    directories = {str(parent) for info in files for parent in PurePosixPath(info.key).parents}
    return [info for info in files if info.size or info.key not in directories]


def _check_names(location: Location, names: Iterable[str]) -> None:
    """No name may lead out of the target directory."""
    wrong = [name for name in names if {"", ".", ".."} & set(name.split("/"))]
    if wrong:
        raise _damaged(location, [f"{name!r} is not the name of a file in a checkpoint" for name in wrong])


def _fetch_file(remote: Remote, info: ObjectInfo, directory: Path) -> str | None:
    """The problem with the file in storage; None if there is none."""
    path = directory / info.key
    if is_user_metadata(info.key):  # it may change at any time, and is replaced as a whole
        with contextlib.suppress(ObjectMissingError):
            staging.make_way(directory, info.key).write_bytes(remote.objects.get(info.key))
        return None
    entry = None if remote.entries is None else remote.entries[info.key]
    problem: str | None = "it is not here yet"
    if entry is not None and path.exists():
        problem = staging.difference(directory, entry)
    for _ in range(_DOWNLOADS if problem else 0):
        staging.make_way(directory, info.key)
        try:
            if entry is not None and entry.at:  # the user stored it elsewhere in the run
                remote.location.parent.parent.open(PATIENCE_S).download(entry.key(""), path, entry.size)
            else:
                remote.objects.download(info.key, path, info.size if entry is None else entry.size)
        except CheckpointDamagedError as error:
            problem = str(error)
            continue
        except ObjectMissingError:
            return f"{info.key} is missing"
        problem = None if entry is None else staging.difference(directory, entry)
        if problem is None:
            return None
        path.unlink()
    return problem


def _fetch_anew(remote: Remote, target: Path) -> None:
    """Call this under the lock, without other users. Files of an earlier use can be verified only with a manifest."""
    partial = Path(f"{target}.part")
    if target.exists():
        shutil.rmtree(partial, ignore_errors=True)
        target.rename(partial)
    try:
        fetch(remote, partial)
    except StorageUnavailableError:
        raise  # the next try uses what has arrived so far
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    partial.rename(target)


def _leave(fd: int, users: str, target: str) -> None:
    """Call this under the lock. A child of this process may have the same handle, so unlock it explicitly."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    try:
        if not _is_in_use(fd):
            shutil.rmtree(target, ignore_errors=True)
            os.unlink(users)
    finally:
        os.close(fd)


def _is_in_use(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _shared_directory(remote: Remote, identity: str) -> str:
    told_by = remote.manifest or identity.encode()
    digest = hashlib.sha256(b"%s\0%s" % (remote.location.identity.encode(), told_by)).hexdigest()[:20]
    return os.path.join(own_directory(), f"checkpoint-{digest}")


def _beside(location: Location, *suffixes: str) -> list[bytes | None]:
    return get_all(location.parent.open(PATIENCE_S), [f"{location.name}{suffix}" for suffix in suffixes])


def _damaged(location: Location, problems: list[str]) -> CheckpointDamagedError:
    more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
    return CheckpointDamagedError(f"Checkpoint {location} is damaged: {'; '.join(problems[:5])}{more}")


def _is_same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
