"""The place of each file of a run. Nothing that is stored contains an absolute path, so a run can be moved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.printable import UNPRINTABLE

UNFINISHED = ".unfinished"
_MAX_NAME_BYTES = 200


@dataclass(frozen=True)
class RunLayout:
    root: Path

    @property
    def run_file(self) -> Path:
        return self.root / "run.json"

    @property
    def lease_file(self) -> Path:
        """Only ``Lease`` may open it: outside Linux, closing any handle of this file drops this process's lock."""
        return self.root / "lease.json"

    @property
    def journal_dir(self) -> Path:
        return self.root / "journal"

    @property
    def checkpoints_dir(self) -> Path:
        return self.root / "checkpoints"

    @property
    def staging_dir(self) -> Path:
        return self.root / ".staging"

    @property
    def metrics_dir(self) -> Path:
        return self.root / "metrics"

    @property
    def logs_dir(self) -> Path:
        return self.root / "logs"

    def segment_file(self, epoch: int) -> Path:
        return self.journal_dir / f"{epoch:06d}.jsonl"

    def segments(self) -> list[tuple[int, Path]]:
        """The journal's segments that exist, by epoch."""
        if not self.journal_dir.is_dir():
            return []
        found = [(path.stem, path) for path in self.journal_dir.iterdir() if path.suffix == ".jsonl"]
        return sorted((int(stem), path) for stem, path in found if stem.isascii() and stem.isdigit())

    def checkpoint_dir(self, id: str) -> Path:
        check_stored_name(id)
        return self.checkpoints_dir / id

    def manifest_file(self, id: str) -> Path:
        check_stored_name(id)
        return self.checkpoints_dir / f"{id}.json"

    def unfinished_file(self, id: str) -> Path:
        """Marks a checkpoint whose files are being merged or deleted. With the mark, files under its name are ours."""
        check_stored_name(id)
        return self.checkpoints_dir / f".{id}{UNFINISHED}"

    def quarantine_file(self, id: str) -> Path:
        """The former manifest of a damaged checkpoint."""
        check_stored_name(id)
        return self.checkpoints_dir / f"{id}.json.damaged"

    def quarantine_reason_file(self, id: str) -> Path:
        check_stored_name(id)
        return self.checkpoints_dir / f"{id}.json.damaged.txt"

    def shard_dir(self, attempt_number: int, index: int, rank: int) -> Path:
        return Path(self.shard_path(attempt_number, index, rank))

    def shard_path(self, attempt_number: int, index: int, rank: int) -> str:
        """The same as text, which is faster: it is needed for ten thousand ranks at a time."""
        return f"{self.root}/.staging/attempt-{attempt_number:04d}-report-{index:06d}/rank-{rank}"

    def report_log(self, attempt_number: int, rank: int) -> Path:
        """The report log of a rank in an attempt, beside its staged files."""
        return self.staging_dir / f"attempt-{attempt_number:04d}" / f"rank-{rank}.jsonl"

    def metrics_file(self, attempt_number: int, rank: int) -> Path:
        return self.metrics_dir / f"attempt-{attempt_number:04d}" / f"rank-{rank}.jsonl"

    def log_file(self, attempt_number: int, rank: int) -> Path:
        return self.logs_dir / f"attempt-{attempt_number:04d}" / f"rank-{rank}.log"

    def standby_log(self, attempt_number: int, number: int) -> Path:
        """The output of a standby worker before it had a rank."""
        return self.logs_dir / f"attempt-{attempt_number:04d}" / f"standby-{number}.log"

    def stacks_file(self, attempt_number: int) -> Path:
        """The stacks of the ranks of a hung attempt."""
        return self.logs_dir / f"attempt-{attempt_number:04d}" / "stacks.txt"

    def relative(self, path: Path) -> str:
        """How a path of this run is named in records and messages."""
        return path.relative_to(self.root).as_posix()


def check_name(name: str, argument: str = "name") -> None:
    """Refuse the name of a new run or checkpoint unless it is one safe path component. The error names the argument."""
    if not isinstance(name, str):
        raise TypeError(f"{argument}={name!r}: a name must be a string, not {type(name).__name__}")
    _refuse(name, argument, _name_problem(name) or _look_problem(name))


def check_stored_name(name: str) -> None:
    """Check a name that is stored. Earlier versions accepted names that are not safe to print; they can still be
    read."""
    _refuse(name, "name", _name_problem(name))


def _refuse(name: str, argument: str, problem: str | None) -> None:
    if problem:
        raise ValueError(
            f"{argument}={name[:60]!r}{')' if '(' in argument else ''}: not a valid name: {problem}. "
            "Use letters, digits, '-', '_' and '.', for example 'epoch-0005'."
        )


def is_stored_name(name: str) -> bool:
    return _name_problem(name) is None


def path_problem(path: str) -> str | None:
    """Why a stored path must not be used, or None if it may: a path has to stay below its directory."""
    if path.startswith("/"):
        return "it is absolute"
    if {"", ".", ".."} & set(path.split("/")):
        return "it contains an empty part, '.' or '..'"
    return "it contains a NUL character" if "\0" in path else None


def _look_problem(name: str) -> str | None:
    return "it contains a control character" if UNPRINTABLE.search(name) else None


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.startswith("."):
        return "it starts with a dot"
    if "/" in name or "\\" in name or "\0" in name:
        return "it has a path separator or a NUL in it"
    if ".json" in name:
        return "'.json' marks Holdfast's own files"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return f"it is longer than {_MAX_NAME_BYTES} bytes" if size > _MAX_NAME_BYTES else None
