"""run.json: the run's identity and configuration, replaced only as a whole."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotARunError, StorageError
from holdfast.store import values
from holdfast.store.disk import Disk, ensure_dir, write_atomic
from holdfast.store.layout import RunLayout
from holdfast.store.sealed import seal, unseal

FORMAT = 1


class _Content(msgspec.Struct):
    format: int
    run: dict[Any, Any]


def write(layout: RunLayout, disk: Disk, body: dict[str, Any]) -> None:
    ensure_dir(disk, layout.root)
    data = values.encode({"format": FORMAT, "run": body}, "run.json")
    write_atomic(disk, layout.run_file, seal(data))


def read(layout: RunLayout) -> dict[str, Any]:
    path = layout.run_file
    try:
        line = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotARunError(
            f"{layout.root} holds no run of Holdfast: it has no run.json. "
            "Give the directory of a run: <storage_path>/<name>."
        ) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    data = unseal(line[:-1]) if line.endswith(b"\n") else None
    if data is None:
        raise _damaged(layout)
    try:
        content = msgspec.convert(values.decode(data), _Content)
    except (ValueError, msgspec.ValidationError):
        raise _damaged(layout) from None
    if content.format > FORMAT:
        raise StorageError(
            f"{path} has format {content.format}, and this version of Holdfast reads up to {FORMAT}: "
            "upgrade it (pip install --upgrade holdfast)."
        )
    return content.run


def _damaged(layout: RunLayout) -> StorageError:
    return StorageError(
        f"{layout.run_file} is damaged: its content does not fit its checksum. Checkpoints and journal are not touched "
        "by that: restore this file from a copy, or start a run under another name from a checkpoint of this one."
    )
