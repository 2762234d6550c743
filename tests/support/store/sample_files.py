"""What a rank saves, and what is found of it."""

from __future__ import annotations

import os
from pathlib import Path

FILES = {"model.pt": b"weights" * 10, "optim/state.pt": b"momentum" * 10, "optim/empty": b""}


def fill(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def tree(root: Path) -> set[str]:
    """The files and the empty directories below."""
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() or not os.listdir(path)}


def content(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in tree(directory)}
