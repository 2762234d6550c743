"""Which run, or which storage path, an argument means. Only local disk for now."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from holdfast import settings
from holdfast.errors import NotARunError
from holdfast.store.layout import RunLayout


def run_directory(text: str) -> Path:
    """The run's directory: a path, or the name of a run in the default storage path."""
    path = _local(text)
    if not path.exists() and "/" not in text:
        by_name = storage_directory(None) / text
        if is_run(by_name):
            return by_name
    if is_run(path):
        return path
    if not path.exists():
        raise NotARunError(
            f"{path} does not exist. Give the directory of a run, or the name of one in "
            f"{storage_directory(None)}; holdfast ls lists them."
        )
    if path.is_dir() and runs_below(path):
        raise NotARunError(f"{path} is no run, but holds some: holdfast ls {path} lists them.")
    raise NotARunError(
        f"{path} holds no run of Holdfast: it has no run.json. Give the directory of a run: <storage_path>/<name>."
    )


def storage_directory(text: str | None) -> Path:
    return _local(settings.load().storage_path if text is None else text)


def runs_below(storage: Path) -> list[Path]:
    return sorted(path for path in storage.iterdir() if is_run(path))


def is_run(path: Path) -> bool:
    """A run that lost its run.json is still one: the journal has a copy."""
    if not path.is_dir():
        return False
    layout = RunLayout(path)
    try:
        return layout.run_file.exists() or bool(layout.segments())
    except PermissionError:
        return True  # it may be one, and then reading it says what is wrong


def _local(text: str) -> Path:
    if text.startswith("file:///"):
        text = unquote(text.removeprefix("file://"))
    elif "://" in text:
        raise ValueError(f"{text}: object stores are not there yet in this version; use a local or mounted directory")
    if not text:
        raise ValueError("the path is empty; give a directory")
    return Path(os.path.abspath(os.path.expanduser(text)))
