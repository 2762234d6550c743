"""The random numbers of a rank, where they survive the rank: a file that its process maps, with places in turn.

A replacement on the same machine continues with the numbers of the rank that was lost. A place counts only if it is
whole: a process may be killed while it writes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import zlib
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand

_HEAD = struct.Struct("<qII")  # steps, length, checksum
_PLACE = 1 << 14  # bytes
_NUMBERS = struct.Struct("<qqdqqd")  # of Python: version, whether it has a gauss, that; of NumPy: position, the same
_WORDS = 624


class Numbers:
    """The states of the generators of Python, NumPy and torch. They never change, so equal ones are shared."""

    def __init__(self) -> None:
        self._take(None)

    @classmethod
    def now(cls, known: Numbers | None) -> Numbers:
        """Taken quickly, several times a step: ``known`` itself if nothing was drawn since."""
        if known is None:
            return cls()
        new = cls.__new__(cls)
        new._take(known)
        is_same = new._python is known._python and new._numpy is known._numpy and new._torch is known._torch
        return known if is_same else new

    def _take(self, known: Numbers | None) -> None:
        """What is as it was in ``known`` is taken from there."""
        self._packed: tuple[bytes, int] | None = None
        self._python: Any = random.getstate()
        self._numpy_words = _numpy_words()
        torch_state = torch.get_rng_state()
        self._torch_bytes = torch_state.numpy().tobytes()
        if known is None:
            self._numpy: Any = np.random.get_state()
            self._torch = torch_state
            return
        if known._python == self._python:
            self._python = known._python
        is_numpy = known._numpy_words == self._numpy_words != b"" and not known._numpy[3]
        self._numpy = known._numpy if is_numpy else np.random.get_state()
        self._torch = known._torch if known._torch_bytes == self._torch_bytes else torch_state

    def equals(self, other: Numbers) -> bool:
        if self is other:
            return True
        if self._python != other._python or self._torch_bytes != other._torch_bytes:
            return False
        mine, theirs = self._numpy, other._numpy
        return mine is theirs or (mine[2:] == theirs[2:] and bool((mine[1] == theirs[1]).all()))

    def restore(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)

    def packed(self) -> tuple[bytes, int]:
        """With their checksum."""
        if self._packed is None:
            version, words, gauss = self._python
            _, keys, position, has_gauss, cached = self._numpy
            head = _NUMBERS.pack(version, gauss is not None, gauss or 0.0, position, has_gauss, cached)
            data = b"".join((head, array("I", words).tobytes(), keys.tobytes(), self._torch_bytes))
            self._packed = data, zlib.crc32(data)
        return self._packed

    @classmethod
    def unpacked(cls, data: bytes) -> Numbers:
        new = cls.__new__(cls)
        new._numpy_words = b""
        new._packed = None
        version, has, gauss, position, has_gauss, cached = _NUMBERS.unpack_from(data)
        words = array("I")
        at = _NUMBERS.size
        words.frombytes(data[at : at + 4 * (_WORDS + 1)])
        at += 4 * (_WORDS + 1)
        keys = np.frombuffer(data[at : at + 4 * _WORDS], dtype=np.uint32)
        at += 4 * _WORDS
        new._python = (version, tuple(words), gauss if has else None)
        new._numpy = ("MT19937", keys, position, has_gauss, cached)
        new._torch_bytes = data[at:]
        new._torch = torch.frombuffer(bytearray(data[at:]), dtype=torch.uint8)
        return new


def _numpy_words() -> bytes:
    """The words of NumPy's usual generator and its position in them, in a microsecond; ``get_state`` takes fifty times
    that. While they stay the same nothing was drawn, unless a second normal number was kept for later."""
    generator = mtrand.get_bit_generator()
    if not isinstance(generator, np.random.MT19937):
        return b""
    return ctypes.string_at(generator.ctypes.state_address, 4 * (_WORDS + 1))


class NumbersFile:
    """The random numbers of one rank of one attempt, in a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, 4 * _PLACE)
            self._mapped = mmap.mmap(descriptor, 4 * _PLACE)
        finally:
            os.close(descriptor)

    def write(self, steps: int, numbers: Numbers, begins: bool) -> None:
        """The state of the rank after this many steps, or, if that differs, at the start of the next one."""
        data, checksum = numbers.packed()
        if _HEAD.size + len(data) > _PLACE:
            return  # another generator than NumPy's usual one
        at = _place(steps, begins)
        body = at + _HEAD.size
        self._mapped[body : body + len(data)] = data
        self._mapped[at:body] = _HEAD.pack(steps, len(data), checksum ^ zlib.crc32(b"%d" % steps))

    def read(self, steps: int) -> Numbers | None:
        return self._at(steps, True) or self._at(steps, False)

    def _at(self, steps: int, begins: bool) -> Numbers | None:
        at = _place(steps, begins)
        found, length, checksum = _HEAD.unpack_from(self._mapped, at)
        data = self._mapped[at + _HEAD.size : at + _HEAD.size + min(length, _PLACE - _HEAD.size)]
        whole = found == steps and data and zlib.crc32(data) ^ zlib.crc32(b"%d" % steps) == checksum
        return Numbers.unpacked(data) if whole else None


def _place(steps: int, begins: bool) -> int:
    return (steps % 2 * 2 + begins) * _PLACE
