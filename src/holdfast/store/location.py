"""What a user's path means: a directory on this machine, or a place in an object store. Secrets are never shown.

A ``Location`` is a value: creating one touches nothing and imports nothing; ``open`` does.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.store.objects.base import ObjectStore

NOT_A_DIRECTORY, MISSING = "is not a directory", "does not exist"  # why no run can be at a local path
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")
_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "memory": "memory",
}
_KNOWN = "a plain path, file://, s3://, gs://, az://, abfss:// or memory://"


@dataclass(frozen=True, eq=False)
class Location:
    """Compared and hashed by its printed form; ``str()`` is the path or the URL, without options."""

    root: str  # "" for a local path, otherwise the part before the key, such as "s3://bucket"
    key: str  # the absolute local path, or the key below the root, without slashes around it
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may hold secrets
    filesystem: Any = field(default=None, repr=False)

    @staticmethod
    def parse(argument: str, path: str | os.PathLike[str] | Location, filesystem: Any = None) -> Location:
        """The location that ``path`` means. Error texts begin with ``argument``, such as ``ClassName(field``."""
        if isinstance(path, Location):
            return path
        if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
            raise TypeError(f"{argument}={path!r}): pass a str or a pathlib.Path")
        text = os.fspath(path)
        if not text:
            raise ValueError(f"{argument}={path!r}): the path is empty; pass a directory")
        if "\0" in text:
            raise ValueError(f"{argument}={text!r}): a path cannot contain a NUL character; remove it")
        if filesystem is not None:
            return _on_filesystem(argument, text, filesystem)
        scheme = _URL.match(text)
        if scheme is None:
            return Location("", os.path.abspath(os.path.expanduser(text)))
        if scheme.group(1).lower() == "file":
            return Location("", _path_of_file_url(argument, text))
        return _remote(argument, text, scheme.group(1).lower())

    @property
    def path(self) -> Path | None:
        """The local directory; None if the location is in an object store."""
        return None if self.root else Path(self.key)

    @property
    def local_problem(self) -> str | None:
        """Why no run can be there. None for a directory, and for an object store, which must be asked."""
        path = self.path
        if path is None or path.is_dir():
            return None
        return NOT_A_DIRECTORY if path.exists() else MISSING

    @property
    def takes_uploads(self) -> bool:
        """Whether files must be uploaded to this location. On a disk, the driver and the user reach them directly. A
        run gets this once, in its ``RunSpec``. Code that wants the files uses ``directory_here``."""
        return bool(self.root)

    def directory_here(self, instead: str = "") -> str:
        """The directory on this machine, or else ``instead``, such as the directory of files that are uploaded
        later."""
        return instead if self.root else self.key

    @property
    def resolved(self) -> str:
        """The same text for all spellings of a location: a local path without symbolic links."""
        return str(self) if self.root else os.path.realpath(self.key)

    def spelled_as(self, given: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """An absolute local path, or the URL as it was given, with its options."""
        return given if self.root else self.key

    def pause_s(self, disk: float, objects: float) -> float:
        """How long to wait between two looks. On an object store each look is a request."""
        return objects if self.root else disk

    def at_once(self, most: int) -> int:
        """How many reads to make at the same time. On an object store each is a request; on a disk, threads would only
        wait for each other."""
        return most if self.root else 1

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2] or self.root.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        if not self.root:
            return replace(self, key=str(Path(self.key).parent))
        return replace(self, key=self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> Location:
        if not self.root:
            return replace(self, key=str(Path(self.key) / name))
        return replace(self, key="/".join(part for part in (self.key, name.strip("/")) if part))

    def open(self, patience_s: float) -> ObjectStore:
        """The store whose keys begin here."""
        from holdfast.store.objects import opening

        return opening.open_location(self, patience_s)

    def as_filesystem(self) -> Any:
        """The file system that the user gave, or a pyarrow one, in which ``str(location)`` is a path."""
        if self.filesystem is not None:
            return self.filesystem
        if self.is_in_memory:
            return None
        try:
            from holdfast.store.objects.arrow_view import arrow_filesystem
        except ImportError as error:
            raise ImportError(f"filesystem needs pyarrow: run pip install 'holdfast[data]' ({error})") from error
        return arrow_filesystem(self)

    @property
    def identity(self) -> str:
        """Distinguishes this location from every other one, because the same URL may exist on several servers."""
        from holdfast.store.objects import opening

        return f"{self} {opening.server_of(self)}" if self.root else self.key

    def __str__(self) -> str:
        return f"{self.root}/{self.key}".rstrip("/") if self.root else self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def is_in_memory(self) -> bool:
        """Whether only this process can reach it."""
        return self.root.startswith("memory:")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "process": os.getpid()} if self.is_in_memory else dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("process", os.getpid()) != os.getpid():
            raise TypeError(
                f"{state['root']} is in the memory of another process; use a directory or a bucket for what several "
                "processes share"
            )
        self.__dict__.update(state)


def _path_of_file_url(argument: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ValueError(f"{argument}={text!r}): write a local URL with three slashes, as in file:///data/runs")
    return os.path.abspath(unquote(parts.path))


def _remote(argument: str, text: str, scheme: str) -> Location:
    parts = urlsplit(text)
    shown = f"{argument}={_without_secrets(text)!r})"
    if scheme not in _SCHEMES:
        raise ValueError(f"{shown}: {scheme}:// is not supported. Use {_KNOWN}.")
    if not parts.netloc:
        raise ValueError(f"{shown}: name the bucket, as in {scheme}://bucket/runs")
    if "@" in parts.netloc and _SCHEMES[scheme] != "abfss":
        raise ValueError(f"{shown}: give credentials by environment variables, not in the URL")
    if parts.fragment:
        raise ValueError(f"{shown}: a URL with a # cannot be used; rename the directory")
    options = tuple(parse_qsl(parts.query, keep_blank_values=True))
    return Location(f"{_SCHEMES[scheme]}://{parts.netloc}", _key(shown, parts.path), options)


def _on_filesystem(argument: str, text: str, filesystem: Any) -> Location:
    """A path inside a file system that the user configured. obstore, fsspec and pyarrow are told apart by methods."""
    shown = f"{argument}={_without_secrets(text)!r})"
    ours = getattr(getattr(filesystem, "handler", None), "location", None)
    if isinstance(ours, Location):  # the result of ``as_filesystem``
        inside = f"{(text.partition('://')[2] or text).strip('/')}/".removeprefix(f"{ours.root.partition('://')[2]}/")
        return replace(ours, key=_key(shown, inside))
    if hasattr(filesystem, "_strip_protocol"):
        protocol = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
        if protocol in ("file", "local"):
            return Location("", os.path.abspath(str(filesystem._strip_protocol(text))))
        return Location(f"{protocol}:/", str(filesystem._strip_protocol(text)).rstrip("/"), filesystem=filesystem)
    if _URL.match(text):
        raise ValueError(f"{shown}: with a storage_filesystem, pass the path inside it, without a scheme")
    if hasattr(filesystem, "type_name") and hasattr(filesystem, "get_file_info"):
        if filesystem.type_name == "local":
            return Location("", os.path.abspath(os.path.expanduser(text)))
        return Location(f"{filesystem.type_name}:/", _key(shown, text), filesystem=filesystem)
    if any(base.__module__.partition(".")[0] == "obstore" for base in type(filesystem).__mro__):
        kind = type(filesystem).__name__
        if kind == "LocalStore":
            return Location("", os.path.abspath(Path(filesystem.prefix or "/") / _key(shown, text)))
        return Location(_root_of_store(kind, filesystem), _key(shown, text), filesystem=filesystem)
    raise TypeError(
        f"{shown} with storage_filesystem of type {type(filesystem).__name__}: pass a store of obstore, or a file "
        "system of fsspec or pyarrow"
    )


def _root_of_store(kind: str, store: Any) -> str:
    scheme = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}.get(kind)
    if scheme is None:
        return f"memory://{id(store):x}"
    bucket = store.config.get("bucket") or store.config.get("container_name") or store.config.get("container") or ""
    return f"{scheme}://{bucket}/{store.prefix or ''}".rstrip("/")


def _key(shown: str, path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if {".", ".."} & set(parts):
        raise ValueError(f"{shown}: . and .. have no meaning in an object store; write the path without them")
    return "/".join(parts)


def _without_secrets(text: str) -> str:
    scheme, slashes, rest = text.partition("://")
    rest = re.split(r"[?#]", rest)[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"
