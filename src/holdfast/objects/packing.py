"""An object as a file: a pickle, then the memory of its arrays and tensors, which readers map instead of copying it.

A numpy array is read-only for its readers. Torch has no read-only tensors, and a write to read-only memory would kill
the process. So a tensor's memory is private: the first write to a page copies that page, unseen by other processes.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
from collections.abc import Sequence
from typing import Any

import cloudpickle

_MAGIC = b"holdfast-object1"
_HEADER = struct.Struct("<16sQQ")  # the magic, the length of the pickle, the number of buffers
_BUFFER = struct.Struct("<QQQ")  # the buffer's position, its length, and whether a reader may write to it
_ALIGNMENT = 64
_ACCESS: dict[str, Any] = {"access": mmap.ACCESS_COPY}
if sys.version_info >= (3, 13):
    _ACCESS["trackfd"] = False  # otherwise each mapping keeps a file descriptor open


def pack(value: Any) -> list[memoryview]:
    """The parts to write, in order. The memory of arrays is not copied, so it must not change until it is written."""
    body, pickler = _pickled(value)
    buffers = [buffer.raw() for buffer in pickler.buffers]
    at = _HEADER.size + _BUFFER.size * len(buffers) + len(body)
    table, parts = b"", []
    for buffer, source in zip(buffers, pickler.buffers, strict=True):
        gap = -at % _ALIGNMENT
        parts += [memoryview(bytes(gap)), buffer]
        table += _BUFFER.pack(at + gap, len(buffer), id(source) in pickler.private)
        at += gap + len(buffer)
    head = _HEADER.pack(_MAGIC, len(body), len(buffers)) + table
    return [memoryview(head), memoryview(body), *parts]


def write(fd: int, parts: Sequence[memoryview]) -> None:
    for part in parts:
        while part:
            part = part[os.write(fd, part) :]


def unpack(fd: int) -> Any:
    """The object in the file. Its arrays and tensors keep the mapping alive, so the file may be closed and removed."""
    size = os.fstat(fd).st_size
    mapping = mmap.mmap(fd, size, **_ACCESS)
    memory = memoryview(mapping)
    magic, length, count = _HEADER.unpack_from(memory)
    if magic != _MAGIC:
        raise ValueError("not an object that put() wrote")
    body_at = _HEADER.size + _BUFFER.size * count
    buffers = []
    for number in range(count):
        at, size, private = _BUFFER.unpack_from(memory, _HEADER.size + _BUFFER.size * number)
        part = memory[at : at + size]
        buffers.append(part if private else part.toreadonly())
    return pickle.loads(memory[body_at : body_at + length], buffers=buffers)


def _pickled(value: Any) -> tuple[memoryview, _Pickler]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getbuffer(), pickler


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO) -> None:
        self.buffers: list[pickle.PickleBuffer] = []
        self.private: set[int] = set()  # ids of the buffers that a reader may write to
        super().__init__(file, protocol=5, buffer_callback=self.buffers.append)

    def reducer_override(self, obj: Any) -> Any:
        """Torch pickles a tensor, except for its storage: torch would copy that."""
        torch = sys.modules.get("torch")
        if torch is not None:
            if type(obj) is torch.storage.TypedStorage:
                return _typed_storage, (obj._untyped_storage, obj.dtype)
            if type(obj) is torch.UntypedStorage and obj.device.type == "cpu":
                return self._reduce_storage(torch, obj)
        return super().reducer_override(obj)

    def _reduce_storage(self, torch: Any, storage: Any) -> Any:
        if not storage.nbytes():
            return _empty_storage, ()
        memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
        buffer = pickle.PickleBuffer(memory)
        self.private.add(id(buffer))
        return _storage, (buffer,)


def _storage(memory: memoryview) -> Any:
    import torch

    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def _empty_storage() -> Any:
    import torch

    return torch.UntypedStorage(0)


def _typed_storage(untyped: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
