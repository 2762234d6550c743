"""TensorBoard's event files, without TensorBoard: records of length and checksum, each with an ``Event`` message.

Only what curves and the table of parameters need is encoded. A record is one write, so a crash tears the last one at
most, and readers take a torn record for one that is still to come.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

Parameter = float | bool | str

_number = itertools.count()


class EventFile:
    """A new event file in ``directory``. Readers join all files of a directory, in the order of their names."""

    def __init__(self, directory: str, now: float) -> None:
        Path(directory).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(now):010}.{socket.gethostname()}.{os.getpid()}.{next(_number)}"
        self._file = Path(directory, name).open("xb")
        self._write(_field(1, now) + _field(3, b"brain.Event:2"))

    def add_scalars(self, values: Mapping[str, float], step: int, now: float) -> None:
        self._add(
            b"".join(_field(1, _field(1, tag.encode()) + _single(2, value)) for tag, value in values.items()), now, step
        )

    def add_parameters(self, parameters: Mapping[str, Parameter], now: float) -> None:
        """What a trial was started with, for TensorBoard's table of parameters."""
        entries = (_field(1, _field(1, name.encode()) + _field(2, _value(v))) for name, v in parameters.items())
        self._add(_hparams("session_start_info", _field(3, b"".join(entries) + _field(5, now))), now)

    def add_end(self, failed: bool, now: float) -> None:
        self._add(_hparams("session_end_info", _field(4, _field(1, 2 if failed else 1) + _field(2, now))), now)

    def close(self) -> None:
        self._file.close()

    def _add(self, summary: bytes, now: float, step: int = 0) -> None:
        self._write(_field(1, now) + _field(2, step) + _field(5, summary))

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(b"".join((length, _checksum(length), event, _checksum(event))))
        self._file.flush()


def _hparams(tag: str, data: bytes) -> bytes:
    """A value that carries nothing but the parameters plugin's message, which has ``data`` in it."""
    plugin = _field(1, b"hparams") + _field(2, data)
    return _field(1, _field(1, f"_hparams_/{tag}".encode()) + _field(9, _field(1, plugin)))


def _value(value: Parameter) -> bytes:
    """A ``google.protobuf.Value``: a bool is a number to Python, but not here."""
    if isinstance(value, bool):
        return _field(4, int(value))
    return _field(3, value.encode()) if isinstance(value, str) else _field(2, float(value))


def _field(number: int, value: int | float | bytes) -> bytes:
    """A field of a protobuf message: a whole number as a varint, a float as a double, bytes with their length."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _single(number: int, value: float) -> bytes:
    try:
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    except OverflowError:  # more than a single can hold
        return _single(number, float("inf") if value > 0 else float("-inf"))


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _table() -> list[int]:
    """CRC-32C of every byte."""
    table = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
        table.append(entry)
    return table


_CRC = _table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, turned and shifted as the format wants it."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
