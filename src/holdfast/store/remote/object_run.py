"""A run that is stored in an object store. Only requested data is fetched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.errors import ObjectMissingError, RunInUseError
from holdfast.store.interfaces import LivingDriver, RunStore
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.metrics import parse_line, parse_lines
from holdfast.store.objects.base import Level, ObjectInfo, ObjectStore
from holdfast.store.remote import remote_journal, remote_runfile, sequence
from holdfast.store.remote.fetch import get_all
from holdfast.store.remote.parts import files_of
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.remote.remote_lease import Opened, RemoteLease, living_holder
from holdfast.store.sealed import Damage

_FIRST_PATIENCE_S = 10.0  # so that a wrong address or key is reported soon


class ObjectRun(RunStore):
    def __init__(self, location: Location, objects: ObjectStore, patience_s: float) -> None:
        self.location, self.objects = location, objects
        self.checkpoints: RemoteCheckpoints = RemoteCheckpoints(objects)
        self._patience_s = patience_s

    def is_there(self) -> bool:
        return self.objects.level() != Level([], [])

    def is_run(self) -> bool:
        level = self.objects.level()
        if any(info.key == remote_runfile.KEY for info in level.objects):
            return True
        if "journal" not in level.directories:
            return False
        records, damage = self.read_journal()  # a driver that starts a new run claims its epoch first
        return bool(damage) or any(record.kind != sequence.EPOCH_BEGAN for record in records)

    def check_format(self) -> None:
        self.checkpoints.check_format()

    def read_identity(self) -> dict[str, Any]:
        return remote_runfile.read(self.objects)

    def write_identity(self, identity: dict[str, Any]) -> None:
        remote_runfile.write(self.objects, identity)

    def read_journal(self) -> tuple[list[Record], list[Damage]]:
        return remote_journal.read(self.objects)

    def journal_files(self) -> str:
        count = len(self.objects.list(sequence.DIRECTORY))
        return f"{count:,} object{'' if count == 1 else 's'}"

    def living_driver(self) -> LivingDriver | None:
        holder = living_holder(self.objects)
        return None if holder is None else LivingDriver(holder.pid, holder.host, holder.since)

    def acquire(
        self, on_lost: Callable[[RunInUseError], None], beside: Callable[[], None] = lambda: None
    ) -> RemoteLease:
        """``beside`` is called right before the claim, for work that need not wait for it."""
        self.objects.with_patience(min(_FIRST_PATIENCE_S, self._patience_s)).level()
        self.check_format()

        def claim(token: str) -> Opened:
            beside()
            return RemoteJournal.open(self.objects, token)

        return RemoteLease.acquire(self.objects, claim, on_lost=on_lost)

    @contextlib.contextmanager
    def keep_drivers_out(self) -> Iterator[None]:
        """This only looks at the lease. A driver that starts meanwhile loses nothing that it resumes from."""
        driver = self.living_driver()
        if driver is not None:
            raise RunInUseError(
                f"The run in {self.location} is being driven by process {driver.pid} on {driver.host}. Its driver "
                "keeps what CheckpointConfig(num_to_keep=...) says; stop it before you delete anything."
            )
        yield

    def close(self) -> None:
        self.objects.close()

    def directories(self, directory: str = "") -> list[str]:
        keys = self.objects.level(f"{directory}/" if directory else "").directories
        return [key.rpartition("/")[2] for key in keys]

    def files(self, directory: str) -> list[str]:
        return sorted(files_of(info.key for info in self.objects.list(f"{directory}/")))

    def read(self, file: str, start: int = 0) -> Iterator[bytes]:
        for part in self._parts(file):
            if start < part.size:
                with contextlib.suppress(ObjectMissingError):
                    yield self.objects.get(part.key)[start:]
            start = max(0, start - part.size)

    def size(self, file: str) -> int:
        return sum(part.size for part in self._parts(file))

    def total_size(self, directory: str) -> int:
        return sum(info.size for info in self.objects.list(f"{directory}/"))

    def read_backwards(self, file: str) -> Iterable[bytes]:
        return (self.objects.get(part.key) for part in reversed(self._parts(file)))

    def reports(self, file: str) -> tuple[list[dict[str, Any]], list[Damage]]:
        """An unfinished last line is ignored: the rest will be uploaded, or was lost with the driver's machine."""
        parts = get_all(self.objects, [part.key for part in self._parts(file)])
        *lines, rest = b"".join(part or b"" for part in parts).split(b"\n")
        damage: list[Damage] = []
        rows = list(parse_lines(lines, file, damage))
        last = parse_line(rest)
        return [*rows, last] if last is not None else rows, damage

    def _parts(self, file: str) -> list[ObjectInfo]:
        """The objects that hold a growing file, in order."""
        there = {info.key: info for info in self.objects.list(f"{file.rpartition('/')[0]}/")}
        return [there[key] for key in files_of(there).get(file, [])]
