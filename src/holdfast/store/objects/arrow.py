"""pyarrow's file systems as fsspec's, with features that fsspec's own wrapper lacks."""

from __future__ import annotations

from typing import Any

from fsspec.implementations.arrow import ArrowFSWrapper


class ArrowFileSystem(ArrowFSWrapper):  # type: ignore[misc]
    leaves_directories = True  # when its last file is deleted, pyarrow makes an object of the directory

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        """fsspec asks a stream that cannot seek for its position if the range begins at 0."""
        return super().cat_file(path, start, end, **{"seekable": True, **options})
