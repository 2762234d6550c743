"""The order of an epoch: a function of (size, seed, epoch, position), so that any position can be looked up.

Nothing here depends on the world size, on earlier lookups, or on the version of torch or NumPy: the random numbers are
ours. Large epochs are permuted by a Feistel network, without memory and without iterating to the position; small ones,
for which such a network mixes poorly and a table is cheap, by sorting keyed hashes.
"""

from __future__ import annotations

import hashlib
import operator
from functools import cached_property
from typing import Any

import numpy as np

TABLE_MOST = 1 << 14
_ROUNDS = 8
_HALF_WORD = np.uint64(32)
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def derive(*key: int | str) -> int:
    """64 bits that belong to the key, the same on every machine; keys that differ in anything have others."""
    return int.from_bytes(_digest(key, 8), "little")


def _digest(key: tuple[int | str, ...], size: int) -> bytes:
    plain = tuple(part if isinstance(part, str) else operator.index(part) for part in key)
    return hashlib.blake2b(repr(plain).encode(), digest_size=size).digest()


class Order:
    """Which sample is at which position of an epoch. Without ``shuffle``, the sample of the same number."""

    def __init__(self, size: int, seed: int, epoch: int, shuffle: bool = True) -> None:
        self.size = size
        self.shuffle = shuffle
        self._keys = np.frombuffer(_digest(("order", seed, epoch), 8 * _ROUNDS), dtype="<u8").astype(np.uint64)
        bits = max(2, (size - 1).bit_length())
        low, high = bits // 2, bits - bits // 2
        self._low_bits, self._low_mask = np.uint64(low), np.uint64((1 << low) - 1)
        self._to_low, self._to_high = np.uint64(64 - low), np.uint64(64 - high)

    def at(self, positions: Any) -> Any:
        """The samples at these positions, as an int64 array of the same length."""
        positions = np.asarray(positions, dtype=np.int64)
        if not self.shuffle:
            return positions
        if self.size <= TABLE_MOST:
            return self._table[positions]
        found = self._permuted(positions.astype(np.uint64))
        while True:
            # The network permutes a power of two; positions beyond the size are permuted again until they fit.
            beyond = np.flatnonzero(found >= np.uint64(self.size))
            if not len(beyond):
                return found.astype(np.int64)
            found[beyond] = self._permuted(found[beyond])

    @cached_property
    def _table(self) -> Any:
        hashes = _mixed(_mixed(np.arange(self.size, dtype=np.uint64), self._keys[0]), self._keys[1])
        return np.argsort(hashes, kind="stable").astype(np.int64)

    def _permuted(self, numbers: Any) -> Any:
        low, high = numbers & self._low_mask, numbers >> self._low_bits
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            low = low ^ (_mixed(high, first) >> self._to_low)
            high = high ^ (_mixed(low, second) >> self._to_high)
        return (high << self._low_bits) | low


def _mixed(numbers: Any, key: Any) -> Any:
    mixed = (numbers + key) * _FIRST
    mixed ^= mixed >> _HALF_WORD
    mixed *= _SECOND
    mixed ^= mixed >> _HALF_WORD
    return mixed
