"""Large objects: what an interrupted download left is used, what another version left is not, and memory is bounded."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError, StorageFullError, StorageUnavailableError
from holdfast.store.objects import transfer
from holdfast.store.objects.obstores import ObstoreObjects
from support.object_stores.scripted_server import KEYS, ScriptedServer, scripted_server

PART = 1 << 16
PARTS = 20
SIZE = PART * PARTS - 123
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", PART)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        server.objects["big"] = os.urandom(SIZE)
        yield server


@pytest.fixture
def store(server: ScriptedServer) -> Iterator[ObstoreObjects]:
    store = ObstoreObjects(server.store(), "s3://bucket", patience_s=20.0)
    yield store
    store.close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "big"


def interrupt(server: ScriptedServer, store: ObstoreObjects, target: Path) -> set[str]:
    """A download that fails at its last part; the ranges that were answered."""
    server.failing_range = f"bytes={PART * (PARTS - 1)}-{SIZE - 1}"
    with pytest.raises(StorageUnavailableError):
        store.with_patience(0.0).download("big", target, SIZE)
    answered = {request for request in server.requests if server.failing_range not in request}
    server.failing_range = ""
    server.requests.clear()
    assert not target.exists()
    return answered


def test_a_download_goes_on_where_it_stopped(server: ScriptedServer, store: ObstoreObjects, target: Path) -> None:
    before = interrupt(server, store, target)
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]
    assert not before & set(server.requests)
    assert len(before) + len(server.requests) == PARTS
    assert [path.name for path in target.parent.iterdir()] == ["big"]


def test_another_version_is_fetched_from_the_start(server: ScriptedServer, store: ObstoreObjects, target: Path) -> None:
    interrupt(server, store, target)
    server.objects["big"] = os.urandom(SIZE)
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]


def test_a_version_that_changes_on_the_way_is_never_mixed(
    server: ScriptedServer, store: ObstoreObjects, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, plain = server.objects["big"], os.urandom(SIZE), store._part
    asked: list[int] = []

    def part(key: str, start: int, length: int) -> transfer.Part:
        asked.append(start)
        if len(asked) == PARTS // 2:
            server.objects["big"] = new
        return plain(key, start, length)

    monkeypatch.setattr(store, "_part", part)
    store.download("big", target, SIZE)
    assert target.read_bytes() == new != old


def test_nothing_is_trusted_after_a_reboot(
    server: ScriptedServer, store: ObstoreObjects, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(server, store, target)
    monkeypatch.setattr(transfer, "boot_id", lambda: "another")
    store.download("big", target, SIZE)
    assert len(server.requests) == PARTS


@pytest.mark.parametrize("notes", ["", "not json\n0\n", "{}\n0\n", '{"size": 1}\n', "[]\n0\n"])
def test_notes_that_make_no_sense_are_ignored(
    server: ScriptedServer, store: ObstoreObjects, target: Path, notes: str
) -> None:
    target.with_name("big.part").write_bytes(bytes(SIZE))
    target.with_name("big.parts").write_text(notes)
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]


def test_a_download_outlives_its_process(server: ScriptedServer, store: ObstoreObjects, target: Path) -> None:
    notes = target.with_name("big.parts")
    server.script.extend([""] * (PARTS // 2))
    server.always = "hang"
    script = (
        "import sys; from pathlib import Path; from obstore.store import S3Store\n"
        "from holdfast.store.objects import transfer; from holdfast.store.objects.obstores import ObstoreObjects\n"
        f"transfer.PART_BYTES = {PART}\n"
        f"store = S3Store('bucket', endpoint=sys.argv[1], client_options={{'allow_http': True}}, **{KEYS!r})\n"
        f"ObstoreObjects(store, 's3://bucket').download('big', Path(sys.argv[2]), {SIZE})\n"
    )
    endpoint = f"http://127.0.0.1:{server.server_port}"
    child = subprocess.Popen([sys.executable, "-c", script, endpoint, str(target)])
    try:
        assert server.hanging.wait(WAIT_S)
        while child.poll() is None and len(notes.read_bytes().splitlines()) <= PARTS // 2:
            time.sleep(0.01)  # until all that was answered is noted
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    there = {f"GET big bytes={start}-{int(start) + PART - 1}" for start in notes.read_text().splitlines()[1:]}
    server.always = ""
    server.release.set()
    server.requests.clear()
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]
    assert len(there) == PARTS // 2
    assert not there & set(server.requests)


def test_a_server_without_ranges_is_read_in_one_stream(
    server: ScriptedServer, store: ObstoreObjects, target: Path
) -> None:
    server.ranges = False
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]
    server.requests.clear()
    store.download("big", target, SIZE)
    assert server.requests == ["GET big"], "it is remembered"
    assert [path.name for path in target.parent.iterdir()] == ["big"]


@pytest.mark.parametrize("ranges", [True, False])
def test_cut_answers_are_fetched_again(
    server: ScriptedServer, store: ObstoreObjects, target: Path, ranges: bool
) -> None:
    server.ranges = ranges
    server.script.extend(["truncate"] * 3)
    store.download("big", target, SIZE)
    assert target.read_bytes() == server.objects["big"]


def test_a_full_disk_is_told_before_anything_is_fetched(
    server: ScriptedServer, store: ObstoreObjects, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageFullError, match=r"big\.part: No space left"):
        store.download("big", target, SIZE)
    assert server.requests == []


def test_an_upload_of_no_file_is_an_error_of_the_disk(store: ObstoreObjects, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="none: No such file"):
        store.upload(tmp_path / "none", "key")


def test_a_closed_store_reads_no_more_of_the_file(tmp_path: Path, store: ObstoreObjects) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with transfer.Reader(tmp_path / "file", store._patience.check_open) as file:
        assert file.read(3) == b"con"
        store.close()
        with pytest.raises(StorageUnavailableError, match="closed"):
            file.read(3)


@pytest.mark.parametrize("size", [0, 1, 80 << 30, (80 << 30) + 1, 1 << 40, 5 << 40])
def test_parts_are_few_enough_and_no_larger_than_needed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PART_BYTES", 8 << 20)
    part = transfer.part_bytes(size)
    assert -(-size // part) <= transfer.MOST_PARTS
    assert part == 8 << 20 or -(-size // (part - (1 << 20))) > transfer.MOST_PARTS
