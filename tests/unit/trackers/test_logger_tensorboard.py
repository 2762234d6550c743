"""TensorBoard's event files, read back by a few lines of our own, and by the messages' own definitions if installed."""

from __future__ import annotations

import math
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trackers.event_file import EventFile, _varint
from holdfast.trackers.tensorboard_logger import curves, parameters
from holdfast.tune.logger import TBXLoggerCallback
from support.tune.logged_trial import LoggedTrial, result


def checksum(data: bytes) -> bytes:
    """CRC-32C bit by bit, masked as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(directory: Path) -> list[bytes]:
    """The records of all event files; their checksums are checked."""
    found = []
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack_from("<Q", data)
            body = data[12 : 12 + size]
            assert data[8:12] == checksum(data[:8])
            assert data[12 + size : 16 + size] == checksum(body)
            found.append(body)
            data = data[16 + size :]
    return found


def logged(directory: Path, *results: dict[str, Any], failed: bool = False) -> None:
    trial = LoggedTrial(local_path=str(directory), evaluated_params={"lr": 0.5, "kind": "a", "on": True, "no": None})
    logger = TBXLoggerCallback(clock=lambda: 1000.5)
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)
    logger.on_trial_start(iteration=0, trials=[trial], trial=trial)  # tried again: the same file
    for step, value in enumerate(results):
        logger.on_trial_result(iteration=step, trials=[trial], trial=trial, result=value)
    logger.log_trial_end(trial, failed)
    logger.log_trial_end(trial, failed)


def test_the_checksum_is_crc_32c_masked() -> None:
    crc = 0xE3069283  # the standard's check value, of "123456789"
    assert checksum(b"123456789") == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@given(st.integers(0, 2**64 - 1))
def test_varints_hold_seven_bits_a_byte_the_lowest_first(value: int) -> None:
    data = _varint(value)
    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data)) == value
    assert [byte >= 0x80 for byte in data] == [True] * (len(data) - 1) + [False]


@given(st.lists(st.dictionaries(st.text(max_size=90), st.floats(), max_size=5), max_size=4), st.integers(0, 2**40))
def test_whatever_is_drawn_has_its_checksum(rows: list[dict[str, float]], step: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = EventFile(directory, 2.0)
        for row in rows:
            file.add_scalars(row, step, 2.5)
        file.close()
        assert len(records(Path(directory))) == 1 + len(rows)


def test_a_scalar_byte_by_byte(tmp_path: Path) -> None:
    file = EventFile(str(tmp_path), 2.0)
    file.add_scalars({"a": 1.5}, step=3, now=2.0)
    file.close()
    first, second = records(tmp_path)
    at = b"\x09" + struct.pack("<d", 2.0)
    assert first == at + b"\x1a\x0dbrain.Event:2"
    assert second == at + b"\x10\x03" + b"\x2a\x0a" + b"\x0a\x08" + b"\x0a\x01a" + b"\x15" + struct.pack("<f", 1.5)


def test_every_result_is_a_record_and_every_start_of_a_driver_a_file(tmp_path: Path) -> None:
    logged(tmp_path, result(1, loss=1.0), result(2, loss=0.5))
    assert len(records(tmp_path)) == 5  # version, parameters, two results, end
    logged(tmp_path, result(3, loss=0.1))
    assert len(list(tmp_path.iterdir())) == 2


def test_tensorboards_own_definitions_read_what_was_written(tmp_path: Path) -> None:
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    logged(tmp_path, result(7, eval={"loss": 0.5, "ü": 1e300}, note="x", bad=math.nan), failed=True)
    version, start, scalars, end = (event_pb2.Event.FromString(record) for record in records(tmp_path))
    assert (version.wall_time, version.file_version) == (1000.5, "brain.Event:2")
    assert (scalars.step, scalars.wall_time) == (7, 1000.5)
    values = {value.tag: value.simple_value for value in scalars.summary.value}
    assert values == {"holdfast/tune/eval/loss": 0.5, "holdfast/tune/eval/ü": math.inf}
    assert [event.summary.value[0].tag for event in (start, end)] == [
        "_hparams_/session_start_info",
        "_hparams_/session_end_info",
    ]


def test_the_parameters_are_read_by_their_own_definitions(tmp_path: Path) -> None:
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    logged(tmp_path, failed=True)
    _, *events = (event_pb2.Event.FromString(record) for record in records(tmp_path))
    plugins = [event.summary.value[0].metadata.plugin_data for event in events]
    assert [plugin.plugin_name for plugin in plugins] == ["hparams", "hparams"]
    start, end = (HParamsPluginData.FromString(plugin.content) for plugin in plugins)
    found = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.session_start_info.hparams.items()}
    assert found == {"lr": 0.5, "kind": "a", "on": True, "no": "None"}
    assert (end.session_end_info.status, end.session_end_info.end_time_secs) == (2, 1000.5)


def test_what_is_drawn_and_what_is_a_parameter() -> None:
    assert curves({"config": {"a": 1}, "pid": 1, "a": {"b": 2, "c": math.nan}, "ok": True}) == {"holdfast/tune/a/b": 2}
    assert parameters({"lr": 1, "layers": [1, 2], "net": {"on": True}}) == {
        "lr": 1.0,
        "layers": "[1, 2]",
        "net/on": True,
    }
