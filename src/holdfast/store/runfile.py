"""run.json: the run's identity and configuration, replaced only as a whole."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.errors import NotARunError, StorageError
from holdfast.store import formats, values
from holdfast.store.disk import Disk, ensure_dir, write_atomic
from holdfast.store.formats import FORMAT
from holdfast.store.layout import RunLayout
from holdfast.store.regular import read_whole
from holdfast.store.sealed import seal, unseal


class _Content(msgspec.Struct):
    format: int
    run: dict[Any, Any]


values.prepare(_Content)


def write(layout: RunLayout, disk: Disk, body: dict[str, Any]) -> None:
    ensure_dir(disk, layout.root)
    write_atomic(disk, layout.run_file, content_of(body))


def read(layout: RunLayout) -> dict[str, Any]:
    path = layout.run_file
    try:
        content = read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        raise missing(str(layout.root)) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    return parse(content, str(path))


def content_of(body: dict[str, Any]) -> bytes:
    return seal(values.encode({"format": FORMAT, "version": __version__, "run": body}, "run.json"))


def parse(line: bytes, where: str) -> dict[str, Any]:
    """The content that ``content_of`` encoded. If it is not intact, a StorageError names ``where``."""
    data = unseal(line[:-1]) if line.endswith(b"\n") else None
    if data is None:
        raise _damaged(where)
    try:
        fields = values.decode(data)
        formats.check(fields, where)
        return msgspec.convert(fields, _Content).run
    except (ValueError, msgspec.ValidationError):
        raise _damaged(where) from None


def id_of(*identities: Mapping[str, Any] | None) -> str:
    """The run's id: that of the first of these that has one, otherwise a new one. An id is created once, and
    distinguishes the run from earlier and later runs of the same name."""
    ids = (identity.get("id") for identity in identities if identity is not None)
    return next((id for id in ids if isinstance(id, str) and id), None) or uuid.uuid4().hex


def missing(root: str) -> NotARunError:
    return NotARunError(
        f"{root} is not a Holdfast run: it has no run.json. Pass the directory of a run: <storage_path>/<name>."
    )


def _damaged(where: str) -> StorageError:
    return StorageError(
        f"{where} is damaged: its content does not match its checksum. Checkpoints and the journal are not "
        f"affected. Restore this file from a copy, or start a run with another name from one of its checkpoints."
    )
