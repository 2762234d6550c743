from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.train import Checkpoint


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    directory = tmp_path / "saved"
    (directory / "shards").mkdir(parents=True)
    (directory / "model.bin").write_bytes(b"weights" * 1000)
    (directory / "shards" / "0.bin").write_bytes(b"zero")
    return directory


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own for temporary files, so that what is left there is seen."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def own_directory(temporary: Path) -> Path:
    """Where Holdfast keeps its own files there. It stays."""
    return temporary / f"holdfast-{os.geteuid()}"


def tree(directory: str | Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in Path(directory).rglob("*") if p.is_file()}


def test_as_directory_gives_the_directory_itself_and_cleans_nothing(saved: Path) -> None:
    with Checkpoint.from_directory(saved).as_directory() as directory:
        assert directory == str(saved)
    assert (saved / "model.bin").exists()


def test_to_directory_copies_to_a_given_place(saved: Path, tmp_path: Path, temporary: Path) -> None:
    target = tmp_path / "copy"
    target.mkdir()
    (target / "mine.txt").write_text("stays")
    assert Checkpoint(saved).to_directory(target) == str(target)
    assert tree(target) == {**tree(saved), "mine.txt": b"stays"}
    assert list(own_directory(temporary).iterdir()) == []


def test_to_directory_without_a_place_makes_one(saved: Path, temporary: Path) -> None:
    checkpoint = Checkpoint(saved)
    directory = checkpoint.to_directory()
    assert Path(directory).parent == own_directory(temporary)
    assert tree(directory) == tree(saved)
    assert pickle.loads(pickle.dumps(checkpoint)).to_directory() == directory
    assert Checkpoint(saved).to_directory() != directory
    assert sorted(p.is_dir() for p in own_directory(temporary).iterdir()) == [True, True]


def test_a_copy_that_fails_leaves_nothing(saved: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str, target: str, **__: Any) -> None:
        os.makedirs(target)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", fail)
    with pytest.raises(OSError, match="No space left"):
        Checkpoint(saved).to_directory()
    assert list(own_directory(temporary).iterdir()) == []


@pytest.mark.parametrize("given", [True, False])
def test_of_several_at_once_one_copies_and_the_others_wait(
    saved: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    checkpoint = Checkpoint(saved)
    copies: list[str] = []
    first_is_copying, may_finish = threading.Event(), threading.Event()
    copytree = shutil.copytree

    def slow(source: str, target: str, *rest: Any, **options: Any) -> Any:
        if source != str(saved):  # copytree calls itself for the directories in it
            return copytree(source, target, *rest, **options)
        copies.append(target)
        first_is_copying.set()
        assert may_finish.wait(30)
        return copytree(source, target, *rest, **options)

    monkeypatch.setattr(shutil, "copytree", slow)
    place = tmp_path / "given" if given else None
    results: list[dict[str, bytes]] = []
    threads = [threading.Thread(target=lambda: results.append(tree(checkpoint.to_directory(place)))) for _ in range(4)]
    threads[0].start()
    assert first_is_copying.wait(30)
    for thread in threads[1:]:
        thread.start()
    may_finish.set()
    for thread in threads:
        thread.join(30)
    assert results == [tree(saved)] * 4
    if not given:
        assert len(copies) == 1
    assert not list(own_directory(temporary).glob("*.lock"))


def test_several_processes_get_one_whole_copy(saved: Path, temporary: Path) -> None:
    program = (
        "import pickle, sys; c = pickle.loads(bytes.fromhex(sys.argv[1])); sys.stdin.read(1); print(c.to_directory())"
    )
    payload = pickle.dumps(Checkpoint(saved)).hex()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, payload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary)},
            text=True,
        )
        for _ in range(3)
    ]
    directories = {worker.communicate("g", timeout=60)[0].strip() for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert len(directories) == 1
    assert tree(directories.pop()) == tree(saved)
    assert len(list(temporary.iterdir())) == 1


def test_metadata_round_trip(saved: Path) -> None:
    checkpoint = Checkpoint(saved)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"step": 1, "note": "ö"})
    checkpoint.update_metadata({"step": 2})
    assert Checkpoint(saved).get_metadata() == {"step": 2, "note": "ö"}
    assert (saved / ".metadata.json").exists()
    checkpoint.set_metadata({})
    assert checkpoint.get_metadata() == {}
    assert sorted(p.name for p in saved.iterdir()) == [".metadata.json", "model.bin", "shards"]


def test_metadata_refuses_what_is_no_json_and_keeps_what_was(saved: Path) -> None:
    checkpoint = Checkpoint(saved)
    checkpoint.set_metadata({"step": 1})
    with pytest.raises(TypeError, match="pass JSON values"):
        checkpoint.set_metadata({"model": object()})
    with pytest.raises(TypeError, match="pass a dict"):
        checkpoint.set_metadata([1])  # type: ignore[arg-type]
    assert checkpoint.get_metadata() == {"step": 1}


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_damaged_metadata_is_named(saved: Path, content: str) -> None:
    (saved / ".metadata.json").write_text(content)
    with pytest.raises(ValueError, match=r"\.metadata\.json .*set_metadata"):
        Checkpoint(saved).get_metadata()


def test_identity_is_the_path(saved: Path, tmp_path: Path) -> None:
    assert Checkpoint(saved) == Checkpoint(str(saved) + "/") == Checkpoint(saved.as_uri())
    assert len({Checkpoint(saved), Checkpoint(saved)}) == 1
    assert Checkpoint(saved) != Checkpoint(tmp_path)
    assert Checkpoint(saved) != str(saved)
    assert pickle.loads(pickle.dumps(Checkpoint(saved))) == Checkpoint(saved)
    assert str(saved) in repr(Checkpoint(saved))


def test_a_relative_path_is_fixed_when_it_is_given(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    checkpoint = Checkpoint.from_directory("saved")
    monkeypatch.chdir("/")
    assert checkpoint.path == str(saved)


def test_it_is_no_path(saved: Path) -> None:
    with pytest.raises(TypeError, match="as_directory"):
        os.fspath(Checkpoint(saved))
    with pytest.raises(TypeError, match="as_directory"):
        Path(Checkpoint(saved))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    gone = Checkpoint(tmp_path / "gone")
    with pytest.raises(FileNotFoundError, match="does not exist"), gone.as_directory():
        pass
    for use in (gone.to_directory, gone.get_metadata, lambda: gone.set_metadata({})):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            use()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="is not a directory"):
        Checkpoint(tmp_path / "file").to_directory()


def test_other_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Checkpoint\(path='ftp://host/checkpoint'\).*s3://"):
        Checkpoint("ftp://host/checkpoint")
    with pytest.raises(TypeError, match="obstore"):
        Checkpoint(tmp_path, filesystem=object())

    class Local:
        type_name = "local"

        def get_file_info(self) -> None: ...

    assert Checkpoint(tmp_path, filesystem=Local()).path == str(tmp_path)
