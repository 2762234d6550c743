"""The files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.store.staging import FileEntry


@dataclass(frozen=True)
class Files:
    """What a report brings: a directory to be staged, or files that its user has stored in the run already."""

    directory: str | None = None
    move: bool = False  # the files may be moved
    remove: bool = False  # what is left of the directory goes
    elsewhere: Sequence[FileEntry] = ()

    @property
    def is_empty(self) -> bool:
        return self.directory is None and not self.elsewhere
