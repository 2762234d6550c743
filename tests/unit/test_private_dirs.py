"""What others on the machine could have planted is refused, and what Holdfast keeps there is closed to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.private_dirs import is_private, make_private
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import FORMAT, Manifest, Shard
from holdfast.store.scratch import make_scratch_root

STRANGER = 65534
REMEDY = "Use another one."


def as_stranger(directory: Path, work: Callable[[], object]) -> None:
    """Do it in a directory, as another user. Without the right to become one, it is done as this user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(directory)  # which the other user need not reach by its path
            if os.geteuid() == 0:
                os.setgid(STRANGER)
                os.setuid(STRANGER)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A place where everybody may create files, as /tmp is."""
    tmp_path.chmod(0o1777)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_one_is_private_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0)
    try:
        assert make_private(shared / "above" / "own", REMEDY) == shared / "above" / "own"
    finally:
        os.umask(before)
    assert mode(shared / "above" / "own") == 0o700
    assert is_private(shared / "above" / "own")


def test_one_that_another_user_created_first_is_refused(shared: Path) -> None:
    def plant() -> None:
        os.mkdir("own")
        os.chmod("own", 0o777)

    as_stranger(shared, plant)
    planted = shared / "own"
    whose = r"it belongs to another user \(uid 65534\)" if os.geteuid() == 0 else "other users can write to it"
    with pytest.raises(StorageError, match=rf"own cannot be used for private files: {whose}\. Use another one\."):
        make_private(planted, REMEDY)
    assert not is_private(planted)
    assert mode(planted) == 0o777, "it is left as it was"


def test_one_to_which_others_can_write_is_refused(shared: Path) -> None:
    for bits in (0o770, 0o707, 0o702, 0o1777):
        (shared / "own").mkdir(exist_ok=True)
        (shared / "own").chmod(bits)
        with pytest.raises(StorageError, match="other users can write to it"):
            make_private(shared / "own", REMEDY)


def test_a_link_to_a_private_directory_is_refused(shared: Path) -> None:
    make_private(shared / "real", REMEDY)
    (shared / "own").symlink_to(shared / "real")
    with pytest.raises(StorageError, match="it is a symbolic link"):
        make_private(shared / "own", REMEDY)
    assert not is_private(shared / "own")


def test_a_file_in_its_place_is_refused(shared: Path) -> None:
    (shared / "own").touch()
    with pytest.raises(StorageError, match="it is not a directory"):
        make_private(shared / "own", REMEDY)


def test_one_of_an_older_version_that_others_can_only_read_is_closed_to_them(shared: Path) -> None:
    (shared / "own").mkdir()
    (shared / "own").chmod(0o755)
    (shared / "own" / "file").write_text("mine")
    assert make_private(shared / "own", REMEDY).joinpath("file").read_text() == "mine"
    assert mode(shared / "own") == 0o700


def test_the_scratch_directory_names_the_setting_as_the_remedy(shared: Path) -> None:
    root = make_scratch_root(str(shared))
    assert (root, mode(root)) == (shared / f"holdfast-{os.geteuid()}", 0o700)
    root.rmdir()
    root.symlink_to(shared)
    with pytest.raises(StorageError, match="Set HOLDFAST_SCRATCH_DIR to a directory of your own"):
        make_scratch_root(str(shared))


@pytest.mark.parametrize("left_open", [False, True])
def test_staging_is_private_and_a_committed_checkpoint_has_the_umask_of_its_user(
    tmp_path: Path, left_open: bool
) -> None:
    layout = RunLayout(tmp_path / "run")
    store = CheckpointStore(layout)
    source = tmp_path / "source"
    before = os.umask(0o022)
    try:
        layout.root.mkdir()
        if left_open:  # by an older version
            layout.staging_dir.mkdir()
        (source / "below").mkdir(parents=True)
        (source / "below" / "weights").write_text("1")
        shard = layout.shard_dir(1, 0, 0)
        store.stage(source, shard, move=False)
        assert mode(layout.staging_dir) == 0o700
        manifest = Manifest(FORMAT, "one", 1, 0, 1, 1, 0.0, {}, [])
        store.commit(manifest, [Shard(0, str(shard), store.seal(shard))])
    finally:
        os.umask(before)
    committed = layout.checkpoint_dir("one")
    modes = [mode(path) for path in (committed, committed / "below", layout.checkpoints_dir, layout.root)]
    assert modes == [0o755] * 4
    assert mode(committed / "below" / "weights") == mode(layout.manifest_file("one")) == 0o644


def test_an_empty_staging_directory_of_a_colleague_does_not_stop_a_run(shared: Path) -> None:
    layout = RunLayout(shared / "run")
    layout.staging_dir.mkdir(parents=True)
    layout.staging_dir.chmod(0o700)
    layout.root.chmod(0o777)
    as_stranger(shared, CheckpointStore(RunLayout(Path("run"))).collect)
    assert not layout.staging_dir.exists()
