"""Orders that are a function of numbers alone: the same in every process, with every version of numpy.

A permutation sorts hashed positions (the finalizer of SplitMix64), so nothing but integer arithmetic is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def key_of(*numbers: int) -> int:
    """One 64-bit number of several."""
    key = 0
    for number in numbers:
        key = _mixed((key + _GOLDEN + (number & _MASK)) & _MASK)
    return key


def permutation(length: int, *key: int) -> Any:
    """The numbers below ``length`` in an order that ``key`` decides."""
    with np.errstate(over="ignore"):
        values = np.arange(1, length + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(key_of(*key))
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        values = values ^ (values >> np.uint64(31))
    return np.argsort(values, kind="stable")


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
