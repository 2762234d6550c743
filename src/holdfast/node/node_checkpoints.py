"""A run's checkpoints on a node when storage is remote: those that wait for upload, and those that workers read. The
directory has the layout of a run. When a checkpoint is complete, its staged files are renamed into
``checkpoints/<id>/``, with the manifest beside it, and stay there as long as a worker may need them. A mark lists the
checkpoints that storage does not have yet. It survives the agent and the driver, and the next driver on this node
uploads them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.errors import CheckpointDamagedError, ObjectMissingError, StorageError
from holdfast.node.node_files import FilesInPlace, Left, NodeFiles
from holdfast.private_dirs import make_private
from holdfast.store import report_log, scratch, staging
from holdfast.store.disk import replace_file
from holdfast.store.layout import RunLayout, path_problem
from holdfast.store.manifests import Manifest, is_user_metadata, parse_manifest
from holdfast.store.objects.base import ObjectStore
from holdfast.store.parallel import in_parallel
from holdfast.store.regular import read_whole
from holdfast.store.remote.parts import PartUploader
from holdfast.store.remote.remote_checkpoints import begin_upload
from holdfast.store.staging import FileEntry
from holdfast.wire import messages as wire
from holdfast.worker.run_address import RunAddress, address_in

_FILES_AT_ONCE = 8  # in addition, large files are sent in parallel parts
_LOG_PATIENCE_S = 5.0
_WRITERS_END_WITHIN_S = 5.0
_DOWNLOADS = 2  # a file that arrives with other content is fetched once more before it counts as damaged


class _Mark(msgspec.Struct, frozen=True, rename={"attempt_number": "generation"}):
    """Which parts of a checkpoint were gathered on this node: by rank, from which report."""

    attempt_number: int
    index: int
    parts: list[tuple[int, list[str]]]

    @property
    def paths(self) -> list[str]:
        return [path for _, paths in self.parts for path in paths]


class NodeCheckpoints(NodeFiles):
    save_logs_every_s = 10.0

    def __init__(self, home: Path, open_objects: Callable[[], ObjectStore]) -> None:
        self.layout = RunLayout(home)
        self._open_objects = open_objects
        self._objects: ObjectStore | None = None
        self._opening = threading.Lock()
        self._fetching = threading.Lock()
        self._logs: dict[Path, PartUploader] = {}
        self._log_lock = threading.Lock()
        self._resumed: str | None = None  # what the current attempt started from
        self._newest: str | None = None  # the newest that is in storage

    @property
    def objects(self) -> ObjectStore:
        with self._opening:
            if self._objects is None:
                self._objects = self._open_objects()
            return self._objects

    def seal(self, attempt_number: int, index: int, rank: int) -> list[FileEntry]:
        return staging.describe(self.layout.shard_dir(attempt_number, index, rank))

    def gather(
        self, id: str, attempt_number: int, index: int, manifest: bytes, parts: list[tuple[int, list[str]]]
    ) -> None:
        """Only renames files. After a crash in the middle, a repetition continues where it stopped."""
        target = self.layout.checkpoint_dir(id)
        target.mkdir(parents=True, exist_ok=True)
        replace_file(self._mark(id), msgspec.json.encode(_Mark(attempt_number, index, parts)))
        for rank, paths in parts:
            source = self.layout.shard_dir(attempt_number, index, rank)
            for path in paths:
                destination = target / path
                if not destination.exists():
                    destination.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(source / path, destination)
        replace_file(self.layout.manifest_file(id), manifest)
        shutil.rmtree(self.layout.shard_dir(attempt_number, index, 0).parent, ignore_errors=True)

    def upload(self, id: str) -> None:
        """The gathered files; FileNotFoundError if one of them is missing.

        A file that storage already has in its full size was uploaded by an earlier try: no other content has its name.
        """
        directory = self.layout.checkpoint_dir(id)
        paths = self._read_mark(id).paths
        begin_upload(self.objects, id)
        there = {info.key: info.size for info in self.objects.list(f"checkpoints/{id}/")}

        def upload_file(path: str) -> None:
            key = f"checkpoints/{id}/{path}"
            if there.get(key) != (directory / path).stat().st_size:
                self.objects.upload(directory / path, key)

        in_parallel(upload_file, paths, _FILES_AT_ONCE, "transfer")

    def fetch(self, id: str, manifest_line: bytes, stored: bool) -> None:
        """Make sure that every file of the manifest is here and matches its digest. CheckpointDamagedError if storage
        has other content, or if a file is missing here and the checkpoint is not ``stored``."""
        manifest = parse_manifest(id, manifest_line, id)
        with self._fetching:
            in_parallel(
                lambda entry: self._fetch_file(manifest, entry, stored), manifest.files, _FILES_AT_ONCE, "transfer"
            )
            if stored:
                self._fetch_metadata(id)
            replace_file(self.layout.manifest_file(id), manifest_line)

    def _fetch_file(self, manifest: Manifest, entry: FileEntry, stored: bool) -> None:
        directory = self.layout.checkpoint_dir(manifest.id)
        problem = staging.difference(directory, entry)
        for _ in range(_DOWNLOADS if problem else 0):
            if not stored and not entry.at:
                break
            path = staging.make_way(directory, entry.path)
            try:
                self.objects.download(entry.key(manifest.id), path, entry.size)
            except CheckpointDamagedError as error:
                problem = str(error)
                continue
            except ObjectMissingError:
                problem = f"{entry.path} is missing"
                break
            problem = staging.difference(directory, entry)
            if problem is None:
                break
        if problem:
            raise CheckpointDamagedError(f"Checkpoint {manifest.id} is damaged: {problem}")

    def _fetch_metadata(self, id: str) -> None:
        """What Checkpoint.set_metadata wrote, which no manifest names."""
        for info in self.objects.level(f"checkpoints/{id}/").objects:
            name = info.key.rpartition("/")[2]
            if is_user_metadata(name):
                replace_file(self.layout.checkpoint_dir(id) / name, self.objects.get(info.key))

    def has(self, id: str) -> bool:
        """Whether the whole checkpoint is here: with several nodes, a node may have only the files of its own
        workers."""
        try:
            manifest = parse_manifest(id, read_whole(self.layout.manifest_file(id)), id)
            directory = self.layout.checkpoint_dir(id)
            return all((directory / entry.path).stat().st_size == entry.size for entry in manifest.files)
        except (OSError, CheckpointDamagedError):
            return False

    def resume_from(self, id: str | None) -> None:
        self._resumed = id

    def mark_durable(self, id: str) -> None:
        """The checkpoint is in storage now. Of such checkpoints, keep only the newest and those that workers may still
        read."""
        if not self.layout.checkpoint_dir(id).is_dir():
            return
        self._mark(id).unlink(missing_ok=True)
        self._newest = id
        self._prune()

    def _prune(self) -> None:
        kept = {self._resumed, self._newest, *self._marked()}
        for name in os.listdir(self.layout.checkpoints_dir):
            id = name.removesuffix(".json")
            if name.endswith(".json") and id not in kept:
                self._remove(id)

    def forget(self, attempt_number: int, index: int, id: str) -> None:
        shutil.rmtree(self.layout.shard_dir(attempt_number, index, 0).parent, ignore_errors=True)
        if id:
            self._remove(id)

    def _remove(self, id: str) -> None:
        self.layout.manifest_file(id).unlink(missing_ok=True)
        shutil.rmtree(self.layout.checkpoint_dir(id), ignore_errors=True)
        self._mark(id).unlink(missing_ok=True)

    def unsaved(self) -> list[bytes]:
        """The manifests of checkpoints that are gathered here and are not in storage."""
        files = [self.layout.manifest_file(id) for id in sorted(self._marked())]
        return [read_whole(file) for file in files if file.exists()]

    def take_back(self) -> None:
        """Undo each interrupted gathering, so that all staged files of its ranks are in one place again."""
        for id in self._marked():
            if self.layout.manifest_file(id).exists():
                continue
            with contextlib.suppress(CheckpointDamagedError, OSError):
                self._undo(id)
            self._remove(id)

    def _undo(self, id: str) -> None:
        mark = self._read_mark(id)
        for rank, paths in mark.parts:
            shard = self.layout.shard_dir(mark.attempt_number, mark.index, rank)
            for path in paths:
                moved = self.layout.checkpoint_dir(id) / path
                if moved.exists() and not (shard / path).exists():
                    (shard / path).parent.mkdir(parents=True, exist_ok=True)
                    os.rename(moved, shard / path)

    def left(self) -> list[Left]:
        """The reports of the last attempt here."""
        logs = sorted(self.layout.staging_dir.glob("attempt-*/rank-*.jsonl"))
        logs = [log for log in logs if log.parent == logs[-1].parent]
        found: list[Left] = []
        for log in logs:
            attempt_number, rank = int(log.parent.name.rpartition("-")[2]), int(log.stem.rpartition("-")[2])
            content = report_log.read(log)
            reports = report_log.parse(content)
            shards = {index: self.layout.shard_dir(attempt_number, index, rank) for index in reports.staged}
            lost = [index for index, shard in shards.items() if reports.damage(index, shard) is not None]
            found.append(Left(attempt_number, rank, content, lost))
        return found

    def sweep(self, until: int) -> None:
        """Remove what attempts up to that one staged and no driver wants."""
        for path in self.layout.staging_dir.glob("attempt-*"):
            number = path.name.split("-")[1]
            if number.isdigit() and int(number) <= until:
                shutil.rmtree(path, ignore_errors=True)

    def _mark(self, id: str) -> Path:
        return self.layout.checkpoints_dir / f".{id}.unsaved"

    def _read_mark(self, id: str) -> _Mark:
        """The gathered files. Only files in the checkpoint's own directory leave this machine, whatever a mark says."""
        try:
            mark = msgspec.json.decode(read_whole(self._mark(id)), type=_Mark | list[str])
        except msgspec.DecodeError as error:
            raise CheckpointDamagedError(f"the list of its files is damaged: {error}") from None
        if isinstance(mark, list):  # as earlier versions wrote it
            mark = _Mark(0, 0, [(0, mark)])
        directory = self.layout.checkpoint_dir(id)
        for path in mark.paths:
            if path_problem(path) or staging.link_on_the_way(directory, path):
                raise CheckpointDamagedError(f"{path[:200]!r} is not a file of {id}")
        return mark

    def _marked(self) -> set[str]:
        if not self.layout.checkpoints_dir.is_dir():
            return set()
        names = os.listdir(self.layout.checkpoints_dir)
        return {n.removeprefix(".").removesuffix(".unsaved") for n in names if n.endswith(".unsaved")}

    def save_logs(self) -> None:
        """Upload the new part of the logs. A log that cannot be stored does not fail the run."""
        with self._log_lock, contextlib.suppress(StorageError, OSError):
            for path in self.layout.logs_dir.rglob("*.log"):
                key = self.layout.relative(path)
                if path not in self._logs:
                    self._logs[path] = PartUploader(self.objects.with_patience(_LOG_PATIENCE_S), key, path)
                self._logs[path].sync()

    def wind_up(self, submit: Callable[[Callable[[], None]], None]) -> None:
        submit(lambda: self.close(True))

    def close(self, over: bool) -> None:
        if over:
            self.save_logs()
        with self._opening:
            objects, self._objects = self._objects, None
        if objects is not None:
            objects.close()
        if over and not self.unsaved():
            scratch.remove(self.layout.root.parent, self.layout.root.name)


def node_files(session: wire.Configure) -> NodeFiles:
    """Chosen once for each run of a node."""
    address, home = address_in(session), Path(session.run_dir)
    return address.files(lambda: FilesInPlace(home), lambda: _held_files(session, address, home))


def _held_files(session: wire.Configure, address: RunAddress, home: Path) -> NodeCheckpoints:
    make_private(Path(session.scratch), scratch.REMEDY)
    # Workers of an earlier driver may live a moment longer. Their reports until then are adopted too.
    logs = home.parent.glob(f"epoch-*/{session.node_id}/.staging/attempt-*/rank-*.jsonl")
    report_log.await_writers(logs, _WRITERS_END_WITHIN_S)
    home = scratch.take_over(home, session.node_id)
    return NodeCheckpoints(home, lambda: address.location().open(session.patience_s))
