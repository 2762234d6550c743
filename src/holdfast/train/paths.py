"""Where a path given by the user points. Only local disk for now; every refusal of another place is said here."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")


def local_path(argument: str, path: str | os.PathLike[str], filesystem: Any = None) -> str:
    """The absolute local path that ``path`` means. ``argument`` is written as in ``checks``: ``ClassName(field``."""
    if filesystem is not None and getattr(filesystem, "type_name", None) != "local":
        raise ValueError(
            f"{argument}={path!r}, with the file system {filesystem!r}): object stores and other file systems are not "
            "there yet in this version; use a local or mounted directory and leave the file system out"
        )
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise TypeError(f"{argument}={path!r}): pass a str or a pathlib.Path")
    text = os.fspath(path)
    if not text:
        raise ValueError(f"{argument}={path!r}): the path is empty; pass a directory")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return os.path.abspath(os.path.expanduser(text))
    if scheme.group(1).lower() != "file":
        raise ValueError(
            f"{argument}={path!r}): object stores are not there yet in this version; use a local or mounted directory"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"{argument}={path!r}): write a local URL with three slashes, as in file:///data/runs")
    return os.path.abspath(unquote(parts.path))
