"""Directory trees that become part of a checkpoint: moved or copied, synced, and compared with their description."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import xxhash

from holdfast.errors import StorageError
from holdfast.store.disk import Disk
from holdfast.store.parallel import in_parallel

_BUFFER = 4 << 20
_THREADS = min(4, os.cpu_count() or 1)  # threads: reading, syncing and hashing release the interpreter's lock


class FileEntry(msgspec.Struct, frozen=True):
    path: str  # relative, with "/"
    size: int
    digest: str  # xxh3_128, hex; empty: the user stored the file, and only its size is known
    at: str = ""  # in remote storage: where the user put it, relative to the run; empty: beside the other files

    def key(self, id: str) -> str:
        """The file's key in remote storage, as part of this checkpoint."""
        return f"{self.at or f'checkpoints/{id}'}/{self.path}"


def stage(disk: Disk, source: Path, target: Path, move: bool) -> list[FileEntry]:
    """Rename the content of ``source`` into ``target`` if it may be moved, otherwise copy it. Returns each file with
    its size.

    This blocks the training loop, so nothing is synced or hashed here; ``seal`` does that.
    """
    if target.is_relative_to(source):
        raise StorageError(f"{source} cannot be a checkpoint: the run itself is stored below it")
    entries: list[FileEntry] = []
    movable = _check_tree(source, "", frozenset(), entries)
    if target.exists():
        disk.rmtree(target)
    disk.makedirs(target)
    renamed: list[str] = []
    try:
        for name in sorted(os.listdir(source)):
            if move and movable and _renamed(disk, source / name, target / name):
                renamed.append(name)
            else:
                _copy_tree(disk, source / name, target / name)
    except (StorageError, OSError):
        with contextlib.suppress(StorageError, OSError):
            for name in renamed:  # the user's only copy
                disk.rename(target / name, source / name)
            disk.rmtree(target)
        raise
    return entries


def seal(disk: Disk, directory: Path) -> list[FileEntry]:
    """Sync all files and names below a directory, and return a description of each file."""
    entries = describe(directory, disk.fsync_file)
    for parent, _, _ in os.walk(directory, topdown=False):
        disk.fsync_dir(Path(parent))
    return entries


def seal_file(disk: Disk, directory: Path, path: str) -> tuple[FileEntry, Path]:
    """Sync one file; returns its description and its place."""
    place, link = directory / path, link_on_the_way(directory, path)
    if link is not None or not place.is_file():
        raise StorageError(f"{place} cannot be committed: it is missing, or not a regular file")
    disk.fsync_file(place)
    return FileEntry(path, *_digest(place)), place


def describe(directory: Path, before: Callable[[Path], None] = lambda _path: None) -> list[FileEntry]:
    """Each file below a directory with its size and digest. ``before`` is called for each file first."""
    paths = sorted(files(directory))
    if not paths:
        raise StorageError(f"The checkpoint staged in {directory} is empty: save files into it before report()")

    def describe_file(path: str) -> FileEntry:
        before(directory / path)
        size, digest = _digest(directory / path)
        return FileEntry(path, size, digest)

    return in_parallel(describe_file, paths, _THREADS, "hash")


def compare(directory: Path, entries: Sequence[FileEntry], ignore: Callable[[str], bool]) -> list[str]:
    """The differences between the files in a directory and their description; empty if there are none."""
    expected = {entry.path for entry in entries}
    extra = [path for path in sorted(files(directory)) if path not in expected and not ignore(path)]
    problems = in_parallel(lambda entry: difference(directory, entry), entries, _THREADS, "hash")
    return [problem for problem in problems if problem] + [f"{path} does not belong to it" for path in extra]


def check_unchanged(path: str, entry: FileEntry) -> None:
    """Refuse a staged file that is missing, or whose size has changed since it was sealed."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise StorageError(f"The staged file {path} cannot be committed: {error.strerror}") from error
    if status.st_size != entry.size or not stat.S_ISREG(status.st_mode):
        raise StorageError(
            f"The staged file {path} changed after it was reported ({entry.size} bytes then, {status.st_size} now): "
            "do not write to a checkpoint's files after report()"
        )


def difference(directory: Path, entry: FileEntry) -> str | None:
    """How a file in a directory differs from its description; None if it does not."""
    path = directory / entry.path
    try:
        link = link_on_the_way(directory, entry.path)
        if link is not None:
            return f"{entry.path} is not a regular file: {link} is a link"
        status = os.stat(path, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return f"{entry.path} is not a regular file"
        if status.st_size != entry.size:
            return f"{entry.path} has {status.st_size} bytes instead of {entry.size}"
        if not entry.digest:
            return None
        _, digest = _digest(path)
    except FileNotFoundError:
        return f"{entry.path} is missing"
    except OSError as error:
        return f"{entry.path} cannot be read ({error.strerror})"
    return None if digest == entry.digest else f"{entry.path} has other content than was committed"


def link_on_the_way(directory: Path, path: str) -> Path | None:
    """The first link on the path from a directory to a file. A file behind a link is not in the directory."""
    for part in path.split("/"):
        directory /= part
        if directory.is_symlink():
            return directory
    return None


def make_way(directory: Path, path: str) -> Path:
    """A path at which a file of a directory can be written. An existing file of that name, and links on the way, are
    removed."""
    directory.mkdir(parents=True, exist_ok=True)
    while (link := link_on_the_way(directory, path)) is not None:
        link.unlink()
    target = directory / path
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _digest(path: Path) -> tuple[int, str]:
    hasher = xxhash.xxh3_128()
    size = 0
    with open(path, "rb", buffering=0) as file:
        # A small file gets a small buffer. An empty file gets a buffer too, because an empty buffer reads
        # nothing.
        buffer = memoryview(bytearray(max(1, min(_BUFFER, os.fstat(file.fileno()).st_size))))
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
            size += count
    return size, hasher.hexdigest()


def files(directory: Path) -> Iterator[str]:
    """The relative paths of everything below a directory except directories."""
    for parent, directories, names in os.walk(directory):
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in names + links:
            yield Path(parent, name).relative_to(directory).as_posix()


def _check_tree(directory: Path, below: str, above: frozenset[tuple[int, int]], found: list[FileEntry]) -> bool:
    """Whether renames can move the whole content. Content that no checkpoint can hold is an error. Each file is added
    to ``found``, with its path relative to the first ``below``.

    Links are copied: a rename would leave the target of a symlink behind, and a file with a second name could still be
    changed through that name.
    """
    movable = True
    here = os.stat(directory)
    above |= {(here.st_dev, here.st_ino)}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = os.stat(entry.path)
                entry.name.encode()
            except OSError as error:
                raise _unfit(entry.path, f"{error.strerror}") from error
            except UnicodeEncodeError:
                raise _unfit(entry.path, "its name is not valid Unicode") from None
            if stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) in above:
                    raise _unfit(entry.path, "it links to a directory above it")
                movable &= _check_tree(Path(entry.path), f"{below}{entry.name}/", above, found)
            elif not stat.S_ISREG(status.st_mode):
                raise _unfit(entry.path, "it is not a regular file or directory")
            else:
                found.append(FileEntry(f"{below}{entry.name}", status.st_size, ""))
                movable &= status.st_nlink == 1
            if entry.is_symlink():
                movable = False
    return movable


def _unfit(path: str, why: str) -> StorageError:
    return StorageError(f"{os.fsencode(path).decode(errors='replace')} cannot be part of a checkpoint: {why}")


def _renamed(disk: Disk, source: Path, target: Path) -> bool:
    try:
        disk.rename(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _copy_tree(disk: Disk, source: Path, target: Path) -> None:
    if source.is_dir():
        disk.makedirs(target)
        for name in sorted(os.listdir(source)):
            _copy_tree(disk, source / name, target / name)
    else:
        disk.copy_file(source, target, sync=False)
