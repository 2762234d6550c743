"""One JSON object on one line that ends with its own checksum. Every record and manifest is stored this way."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import xxhash

from holdfast.store import values

T = TypeVar("T")
_MARK = b',"sum":"'
_TAIL_SIZE = len(_MARK) + 16 + 2  # the mark, 16 hex digits, and '"}'


class Damage(msgspec.Struct, frozen=True):
    """Stored content that is not what was written."""

    path: str  # relative to the run
    where: str  # which line, record or file
    what: str


def seal(data: bytes) -> bytes:
    """A line from a JSON object that has at least one key."""
    rest = data[:-1]
    return b'%s,"sum":"%s"}\n' % (rest, xxhash.xxh3_64_hexdigest(rest).encode())


def seal_struct(note: msgspec.Struct) -> bytes:
    return seal(values.encode(msgspec.to_builtins(note)))


def unseal_struct(content: bytes | None, kind: type[T]) -> T | None:
    """The struct that ``seal_struct`` wrote; None if the line is something else, or torn."""
    data = unseal(content.rstrip(b"\n")) if content else None
    try:
        return msgspec.convert(values.decode(data), kind) if data is not None else None
    except (ValueError, msgspec.ValidationError):
        return None


def unseal(line: bytes) -> bytes | None:
    """The JSON object in a line without its newline, or None if the line is not intact."""
    rest, tail = line[:-_TAIL_SIZE], line[-_TAIL_SIZE:]
    if tail != b'%s%s"}' % (_MARK, xxhash.xxh3_64_hexdigest(rest).encode()):
        return None
    return rest + b"}"
