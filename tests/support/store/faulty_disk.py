"""Disks that fail: crashed at one operation, full at one write, and one that loses what was not made durable."""

from __future__ import annotations

import inspect
import io
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import StorageError, StorageFullError
from holdfast.store.disk import Disk

OPERATIONS = tuple(name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if not name.startswith("_"))
WRITES = ("write_new", "append", "overwrite", "copy_file")
TEARABLE = (*WRITES, "rmtree")  # what can be half done when the process dies


class Crash(BaseException):
    """The process is gone: no handler for errors may run."""


class InterceptedDisk(Disk):
    """Calls ``intercept(name, args, do)`` in place of each operation."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()

    def __init_subclass__(cls) -> None:
        for name in OPERATIONS:
            setattr(cls, name, _intercepted(name))

    def intercept(self, name: str, args: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        raise NotImplementedError


def _intercepted(name: str) -> Callable[..., Any]:
    plain = getattr(Disk, name)

    def operation(self: InterceptedDisk, *args: Any, **options: Any) -> Any:
        with self._mutex:
            return self.intercept(name, args, lambda: plain(self, *args, **options))

    return operation


class CrashingDisk(InterceptedDisk):
    """Dies at operation number ``at``, counted from 0: before it, after it, or half-way through."""

    def __init__(self, at: int = -1, moment: str = "before") -> None:
        super().__init__()
        self.names: list[str] = []
        self.dead = False
        self._at = at
        self._moment = moment

    def intercept(self, name: str, args: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        if self.dead:
            raise Crash
        self.names.append(name)
        if len(self.names) - 1 != self._at:
            return do()
        self.dead = True
        if self._moment == "after":
            result = do()
            if isinstance(result, io.FileIO):
                result.close()
        elif self._moment == "half":
            do_half(name, args)
        raise Crash


class BrokenDisk(InterceptedDisk):
    """Fails with an error at operation number ``at``, and with ``for_good`` at all that follow."""

    def __init__(self, at: int, for_good: bool) -> None:
        super().__init__()
        self.operations = 0
        self._at = at
        self._for_good = for_good

    def intercept(self, name: str, args: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        number = self.operations
        self.operations += 1
        if number == self._at or (self._for_good and number > self._at):
            raise StorageError(f"input/output error in {name} {args}")
        return do()


class FullDisk(InterceptedDisk):
    """Has no space from write number ``at`` on until ``full`` is unset; each refused write gets half of its data in."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.writes = 0
        self.full = True
        self._at = at

    def intercept(self, name: str, args: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        if name in WRITES:
            self.writes += 1
            if self.full and self.writes > self._at:
                do_half(name, args)
                raise StorageFullError(f"no space for {args[0]}")
        return do()


def do_half(name: str, args: tuple[Any, ...]) -> None:
    disk = Disk()
    if name == "write_new":
        disk.write_new(args[0], args[1][: len(args[1]) // 2])
    elif name in ("append", "overwrite"):
        getattr(disk, name)(args[0], args[1][: len(args[1]) // 2])
    elif name == "copy_file":
        content = args[0].read_bytes()
        disk.write_new(args[1], content[: len(content) // 2])
    elif name == "rmtree":
        files = sorted(path for path in args[0].rglob("*") if path.is_file())
        for path in files[: (len(files) + 1) // 2]:
            path.unlink()


class File:
    def __init__(self, now: bytes, durable: bytes) -> None:
        self.now = now
        self.durable = durable


class Directory:
    def __init__(self) -> None:
        self.now: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}


class PowerCutDisk(InterceptedDisk):
    """Does everything for real below ``root``, and keeps a log that can be played up to any point of a power cut.

    The model grants only what POSIX does: a file's content is safe after its fsync, and a name (created, renamed or
    removed) after an fsync of its directory. All else may be lost or kept, each on its own.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self._root = root
        self._initial = {
            path.relative_to(root): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
        }

    def intercept(self, name: str, args: tuple[Any, ...], do: Callable[[], Any]) -> Any:
        given = tuple(Path(arg.name) if isinstance(arg, io.FileIO) else arg for arg in args)
        given = tuple(Path(arg) if isinstance(arg, str) else arg for arg in given)
        if name == "copy_file":
            given = (args[1], args[0].read_bytes())
        self.log.append((name, given))
        return do()

    def user_writes(self, path: Path, data: bytes) -> None:
        """A file that a training script saves: written, not synced."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.log.append(("user_writes", (path, data)))

    def cut(self, after: int, target: Path, keep: random.Random | None) -> None:
        """Leave in ``target`` what is there after a cut behind the first operations.

        With ``keep`` a coin decides for each thing that is not durable; without it all of that is lost.
        """
        top = Directory()
        for relative, content in self._initial.items():
            parent = _parent(top, relative)
            parent.now[relative.name] = Directory() if content is None else File(content, content)
            parent.durable = dict(parent.now)
        for name, args in self.log[:after]:
            relatives = [arg.relative_to(self._root) if isinstance(arg, Path) else arg for arg in args]
            _play(top, name, relatives)
        _materialise(top, target, keep)


def _parent(top: Directory, path: Path) -> Directory:
    here = top
    for part in path.parts[:-1]:
        below = here.now[part]
        assert isinstance(below, Directory)
        here = below
    return here


def _directory(top: Directory, path: Path) -> Directory:
    return _parent(top, path / "any")


def _file(top: Directory, path: Path) -> File:
    found = _parent(top, path).now[path.name]
    assert isinstance(found, File)
    return found


def _sync_all(here: Directory) -> None:
    here.durable = dict(here.now)
    for below in here.now.values():
        if isinstance(below, Directory):
            _sync_all(below)
        else:
            below.durable = below.now


def _play(top: Directory, name: str, args: list[Any]) -> None:
    path = args[0]
    if name == "makedirs" or name == "user_writes":
        here = top
        for part in path.parts if name == "makedirs" else path.parts[:-1]:
            below = here.now.setdefault(part, Directory())
            assert isinstance(below, Directory)
            here = below
        if name == "user_writes":
            here.now[path.name] = File(args[1], b"")
    elif name == "write_new":
        _parent(top, path).now[path.name] = File(args[1], args[1])
    elif name in ("open_append", "open_in_place"):
        _parent(top, path).now.setdefault(path.name, File(b"", b""))
    elif name == "append":
        _file(top, path).now += args[1]
    elif name == "copy_file":
        _parent(top, path).now[path.name] = File(args[1], args[1])
    elif name in ("truncate", "overwrite"):
        file = _file(top, path)
        file.now = file.durable = file.now[: args[1]] if name == "truncate" else args[1]
    elif name in ("sync", "fsync_file"):
        file = _file(top, path)
        file.durable = file.now
    elif name == "sync_file_system":
        _sync_all(top)
    elif name == "fsync_dir":
        directory = _directory(top, path)
        directory.durable = dict(directory.now)
    elif name == "rename":
        _parent(top, args[1]).now[args[1].name] = _parent(top, path).now.pop(path.name)
    elif name == "unlink":
        _parent(top, path).now.pop(path.name, None)
    elif name == "rmdir":
        found = _parent(top, path).now.get(path.name)
        if isinstance(found, Directory) and not found.now:
            del _parent(top, path).now[path.name]
    elif name == "rmtree":
        removed = _parent(top, path).now.pop(path.name, None)
        if isinstance(removed, Directory):
            _empty(removed)
    else:
        raise NotImplementedError(name)


def _empty(directory: Directory) -> None:
    for entry in directory.now.values():
        if isinstance(entry, Directory):
            _empty(entry)
    directory.now.clear()


def _materialise(directory: Directory, target: Path, keep: random.Random | None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(directory.now.keys() | directory.durable.keys()):
        kept = keep is not None and keep.random() < 0.5
        entry = (directory.now if kept else directory.durable).get(name)
        if isinstance(entry, Directory):
            _materialise(entry, target / name, keep)
        elif isinstance(entry, File):
            (target / name).write_bytes(_content(entry, keep))


def _content(file: File, keep: random.Random | None) -> bytes:
    if keep is None or file.now == file.durable or keep.random() < 0.5:
        return file.durable
    return file.now[: keep.randint(0, len(file.now))]
