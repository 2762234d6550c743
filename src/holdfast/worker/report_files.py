"""The files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.staging import FileEntry


@dataclass(frozen=True)
class Files:
    """The files of a report: a directory to be staged, or files that the user has already stored in the run."""

    directory: str | None = None
    move: bool = False  # the files may be moved instead of copied
    remove: bool = False  # everything else in the directory is removed
    elsewhere: Sequence[FileEntry] = ()

    @property
    def is_empty(self) -> bool:
        return self.directory is None and not self.elsewhere
