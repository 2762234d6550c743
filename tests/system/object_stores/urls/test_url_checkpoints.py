"""``Checkpoint`` on URLs: fetched once, shared, checked, and nothing left behind."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from holdfast.errors import CheckpointDamagedError, StorageError, StorageUnavailableError
from holdfast.private_dirs import is_private
from holdfast.store import download
from holdfast.store.location import Location
from holdfast.store.objects.obstores import ObstoreObjects
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.train import Checkpoint
from support.object_stores.proxy import FaultProxy
from support.object_stores.remote_runs import FILES, LARGE, commit, flip, open_at, put_files, tree
from support.object_stores.servers import S3Server

PATIENCE_S = 120.0


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this process fetched."""
    fetched: list[str] = []
    plain = ObstoreObjects.download

    def note(self: ObstoreObjects, key: str, path: Path, size: int) -> None:
        fetched.append(key)
        plain(self, key, path, size)

    monkeypatch.setattr(ObstoreObjects, "download", note)
    return fetched


def left(temporary: Path) -> list[str]:
    """Beside the user's private directory, which stays."""
    own = {"scratch", f"holdfast-{os.geteuid()}"}
    return sorted(path.name for path in temporary.rglob("*") if path.name not in own)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_as_directory_has_the_files_as_long_as_it_is_used(place: str, temporary: Path, has_manifest: bool) -> None:
    url = f"{place}/run/checkpoints/one"
    if has_manifest:
        commit(f"{place}/run", "one")
    else:
        put_files(url)
    checkpoint = Checkpoint(url)
    assert (checkpoint.path, str(checkpoint.location)) == (url, url)
    assert checkpoint.exists()
    with checkpoint.as_directory() as directory:
        assert tree(directory) == FILES
    assert left(temporary) == []


def test_users_at_once_share_one_download_and_the_last_removes_it(
    place: str, temporary: Path, downloads: list[str]
) -> None:
    url = commit(place, "one")
    with ExitStack() as stack:
        first = stack.enter_context(Checkpoint(url).as_directory())
        with Checkpoint(url).as_directory() as second:
            assert second == first
        assert tree(first) == FILES
    assert sorted(downloads) == sorted(FILES)
    assert left(temporary) == []


def test_threads_that_come_while_it_is_fetched_wait_for_it(place: str, temporary: Path, downloads: list[str]) -> None:
    url = commit(place, "one")
    found: list[dict[str, bytes]] = []
    together = threading.Barrier(4)

    def use() -> None:
        together.wait(PATIENCE_S)
        with Checkpoint(url).as_directory() as directory:
            found.append(tree(directory))
            together.wait(PATIENCE_S)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == [FILES] * 4
    assert sorted(downloads) == sorted(FILES)
    assert left(temporary) == []


def test_what_has_no_manifest_is_shared_only_by_copies_of_one_checkpoint(bucket: str, downloads: list[str]) -> None:
    put_files(f"{bucket}/latest", {"model.pt": b"old"})
    checkpoint = Checkpoint(f"{bucket}/latest")
    with checkpoint.as_directory() as old, pickle.loads(pickle.dumps(checkpoint)).as_directory() as same:
        assert same == old
        put_files(f"{bucket}/latest", {"model.pt": b"new"})
        with Checkpoint(f"{bucket}/latest").as_directory() as new:
            assert (tree(old), tree(new)) == ({"model.pt": b"old"}, {"model.pt": b"new"})
    assert len(downloads) == 2


USE = """
import pickle, sys
checkpoint = pickle.loads(bytes.fromhex(sys.argv[1]))
with checkpoint.as_directory() as directory:
    print(directory, flush=True)
    sys.stdin.read(1)
"""


def start_user(checkpoint: Checkpoint) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USE, pickle.dumps(checkpoint).hex()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_of_a_machine_share_one_download(
    bucket: str, s3: S3Server, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = commit(bucket, "one")
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        users = [start_user(Checkpoint(url)) for _ in range(3)]
        directories = {user.stdout.readline().strip() for user in users if user.stdout}
        assert len(directories) == 1
        assert tree(directories.pop()) == FILES
        for user in users:
            user.communicate("x", timeout=PATIENCE_S)
        assert [user.returncode for user in users] == [0, 0, 0]
        assert proxy.requests["download"] == len(FILES)
    assert left(temporary) == []


def test_what_a_killed_user_left_is_used_as_far_as_it_is_intact(
    bucket: str, temporary: Path, downloads: list[str]
) -> None:
    checkpoint = Checkpoint(commit(bucket, "one"))
    user = start_user(checkpoint)
    with user:
        assert user.stdout is not None
        directory = Path(user.stdout.readline().strip())
        user.send_signal(signal.SIGKILL)
    (directory / "model.pt").write_bytes(b"changed")
    with checkpoint.as_directory() as again:
        assert (again, tree(again)) == (str(directory), FILES)
    assert downloads == ["model.pt"]
    assert left(temporary) == []


def test_an_interrupted_download_goes_on(
    bucket: str, temporary: Path, downloads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"small": b"1", "large-1": os.urandom(LARGE), "large-2": os.urandom(LARGE)}
    checkpoint = Checkpoint(commit(bucket, "one", files))
    noted = ObstoreObjects.download

    def fail(self: ObstoreObjects, key: str, path: Path, size: int) -> None:
        if key == "large-2":
            raise StorageUnavailableError("planned")
        noted(self, key, path, size)

    with monkeypatch.context() as context:
        context.setattr(ObstoreObjects, "download", fail)
        with pytest.raises(StorageUnavailableError, match="planned"), checkpoint.as_directory():
            pass
    with checkpoint.as_directory() as directory:
        assert tree(directory) == files
    assert sorted(downloads) == ["large-1", "large-2", "small"]
    assert left(temporary) == []


DAMAGE: dict[str, Any] = {
    "model.pt has other content": lambda url: flip(url, "model.pt"),
    "shards/0.bin is missing": lambda url: open_at(url).delete(["shards/0.bin"]),
    "empty has": lambda url: put_files(url, {"empty": b"?"}),
    "extra does not belong": lambda url: put_files(url, {"extra": b""}),
    "one.json is damaged": lambda url: flip(url.removesuffix("/one"), "one.json"),
}


@pytest.mark.parametrize("named", DAMAGE)
def test_damage_is_named_and_nothing_of_it_is_handed_out(
    place: str, temporary: Path, tmp_path: Path, named: str
) -> None:
    url = commit(place, "one")
    DAMAGE[named](url)
    with pytest.raises(CheckpointDamagedError, match=named), Checkpoint(url).as_directory():
        raise AssertionError("damaged files were handed out")
    with pytest.raises(CheckpointDamagedError, match=named):
        Checkpoint(url).to_directory()
    with pytest.raises(CheckpointDamagedError, match=named):
        Checkpoint(url).to_directory(tmp_path / "copy")
    assert FILES.items() >= tree(tmp_path / "copy").items()
    assert left(temporary) == []


def test_what_was_set_aside_is_refused_with_the_reason(place: str) -> None:
    url = commit(place, "one")
    RemoteCheckpoints(open_at(place)).quarantine("one", "a disk lied")
    with pytest.raises(CheckpointDamagedError, match="was set aside: a disk lied"), Checkpoint(url).as_directory():
        pass


def test_a_name_that_leaves_the_directory_is_refused(tmp_path: Path) -> None:
    class Hostile:
        def list(self) -> list[Any]:
            return [download.ObjectInfo("../outside", 1)]

    with pytest.raises(CheckpointDamagedError, match="is not the name of a file"):
        download._files(Location.parse("path", tmp_path), Hostile())  # type: ignore[arg-type]


def test_the_marks_that_consoles_make_of_directories_are_no_files(place: str) -> None:
    put_files(f"{place}/one", {"shards": b"", "shards/0.bin": b"0", "empty": b""})
    with Checkpoint(f"{place}/one").as_directory() as directory:
        assert tree(directory) == {"shards/0.bin": b"0", "empty": b""}


def test_files_that_their_user_has_put_elsewhere_in_the_run(place: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(commit(f"{place}/run", "one", elsewhere="mine/first"))
    assert checkpoint.exists()
    with checkpoint.as_directory() as directory:
        assert tree(directory) == FILES
    flip(f"{place}/run/mine/first", "model.pt")
    with pytest.raises(CheckpointDamagedError, match=r"model\.pt has other content"):
        checkpoint.to_directory(tmp_path / "copy")


def test_to_directory(place: str, tmp_path: Path, temporary: Path) -> None:
    checkpoint = Checkpoint(commit(place, "one"))
    target = tmp_path / "copy"
    target.mkdir()
    (target / "mine.txt").write_text("stays")
    assert checkpoint.to_directory(target) == str(target)
    assert tree(target) == {**FILES, "mine.txt": b"stays"}
    directory = checkpoint.to_directory()
    assert temporary in Path(directory).parents
    assert checkpoint.to_directory() == directory
    assert tree(directory) == FILES


def test_only_what_its_user_names_is_open_to_others(bucket: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint(commit(bucket, "one"))
    before = os.umask(0o022)
    try:
        copy = Path(checkpoint.to_directory(tmp_path / "copy"))
        own = [Path(checkpoint.to_directory()), Path(Checkpoint(copy).to_directory())]
        with checkpoint.as_directory() as directory:
            assert all(is_private(path.parent) for path in (Path(directory), *own))
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (copy, copy / "shards", copy / "model.pt")] == [0o755, 0o755, 0o644]


@pytest.mark.parametrize("call", ["as_directory", "to_directory"])
def test_what_another_user_has_planted_is_not_handed_out(bucket: str, call: str) -> None:
    checkpoint = Checkpoint(commit(bucket, "one"))
    directory, content = handed_out(checkpoint, call)
    assert content == FILES
    with plant(Path(directory)), pytest.raises(StorageError, match="Set HOLDFAST_SCRATCH_DIR to a directory of your"):
        handed_out(checkpoint, call)


def handed_out(checkpoint: Checkpoint, call: str) -> tuple[str, dict[str, bytes]]:
    if call == "to_directory":
        directory = checkpoint.to_directory()
        return directory, tree(directory)
    with checkpoint.as_directory() as directory:
        return directory, tree(directory)


@contextmanager
def plant(directory: Path) -> Iterator[None]:
    """What somebody could do who has that place first: he has the directory above it, and poses as a user of it."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in FILES:
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(b"planted")
    with open(f"{directory}.users", "w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        for path in (directory.parent, *directory.parent.rglob("*")):
            path.chmod(0o777)
            if os.geteuid() == 0:
                os.chown(path, 65534, 65534)
        yield
    shutil.rmtree(directory.parent)


def test_metadata(place: str) -> None:
    checkpoint = Checkpoint(commit(place, "one"))
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"step": 1, "note": "ö"})
    checkpoint.update_metadata({"step": 2})
    assert Checkpoint(checkpoint.path).get_metadata() == {"step": 2, "note": "ö"}
    with checkpoint.as_directory() as directory:  # it is no file of the checkpoint's, and no damage
        assert Checkpoint(directory).get_metadata() == {"step": 2, "note": "ö"}
    put_files(checkpoint.path, {".metadata.json": b"{"})
    with pytest.raises(ValueError, match=rf"{checkpoint.path}/\.metadata\.json is damaged"):
        checkpoint.get_metadata()


def test_what_is_not_there_is_said(place: str) -> None:
    gone = Checkpoint(f"{place}/gone")
    assert not gone.exists()
    with pytest.raises(FileNotFoundError, match=f"{place}/gone does not exist"), gone.as_directory():
        pass
    for use in (gone.to_directory, gone.get_metadata, lambda: gone.set_metadata({})):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            use()


def test_storage_that_does_not_answer_is_not_an_absence(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(f"{bucket}/one")
    monkeypatch.setattr(download, "PATIENCE_S", 0.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for use in (checkpoint.exists, checkpoint.to_directory, checkpoint.get_metadata):
        with pytest.raises(StorageUnavailableError):
            use()


def test_identity_is_the_url(bucket: str) -> None:
    one = Checkpoint(f"{bucket}/one")
    assert one == Checkpoint(f"{bucket}/one/") == Checkpoint(Location.parse("path", f"{bucket}/one"))
    assert one == pickle.loads(pickle.dumps(one))
    assert len({one, Checkpoint(f"{bucket}/one"), Checkpoint(f"{bucket}/two"), Checkpoint("/one")}) == 3
    assert repr(one) == f"Checkpoint(filesystem=s3, path={bucket}/one)"


def test_options_are_used_and_never_shown(bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    put_files(f"{bucket}/one")
    for name in s3.environment:
        monkeypatch.delenv(name)
    options = f"endpoint={s3.url}&region=us-east-1&access_key_id=AKIDTEST&secret_access_key=hidden"
    checkpoint = Checkpoint(f"{bucket}/one?{options}")
    with checkpoint.as_directory() as directory:
        assert tree(directory) == FILES
    assert "hidden" not in f"{checkpoint!r} {checkpoint} {checkpoint.path} {checkpoint.location!r}"


def test_a_configured_store_is_used(temporary: Path) -> None:
    store = MemoryStore()
    checkpoint = Checkpoint("runs/one", filesystem=store)
    assert checkpoint.filesystem is store
    assert not checkpoint.exists()
    checkpoint.location.open(1.0).put("model.pt", b"weights")
    with checkpoint.as_directory() as directory:
        assert tree(directory) == {"model.pt": b"weights"}
    assert left(temporary) == []


def test_what_the_node_holds_is_used_without_a_request(bucket: str, tmp_path: Path, monkeypatch: Any) -> None:
    location = Location.parse("path", commit(bucket, "one"))
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "model.pt").write_bytes(b"weights")
    checkpoint = Checkpoint.held(location, str(tmp_path / "held"))
    assert checkpoint == Checkpoint(location)
    with monkeypatch.context() as context:
        context.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with checkpoint.as_directory() as directory:
            assert directory == str(tmp_path / "held")
        assert tree(checkpoint.to_directory(tmp_path / "copy")) == {"model.pt": b"weights"}
    with pickle.loads(pickle.dumps(checkpoint)).as_directory() as elsewhere:
        assert tree(elsewhere) == FILES
    (tmp_path / "held").rename(tmp_path / "gone")
    for unknown in (checkpoint, Checkpoint.held(location, "")):
        with unknown.as_directory() as fetched:
            assert tree(fetched) == FILES
