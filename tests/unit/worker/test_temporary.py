"""What is in a directory for temporary files when a worker is killed at any moment bears its mark, and no other's."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.worker.temporary import new_token, remove_temporary_files

SCRIPT = """
import os, sys, tempfile
from holdfast.worker.temporary import mark_temporary_files

sys.addaudithook(lambda event, args: print(args[0]) if event in ("open", "os.mkdir") else None)
mark_temporary_files(7, "token")
tempfile.mkdtemp()
tempfile.mkstemp()
"""
TRAINING = """
import json, os, sys, tempfile, time
from pathlib import Path
from holdfast import train

def work(config):
    rank, notes = train.get_context().get_world_rank(), Path(config["notes"])
    _, path = tempfile.mkstemp()
    note = notes / f"{rank}.part"
    note.write_text(json.dumps([os.getpid(), path]))
    note.rename(notes / f"{rank}.json")
    while not (notes / "end").exists():
        time.sleep(0.02)
    os._exit(1)

run = train.RunConfig(name="run", storage_path=sys.argv[1])
workers = train.ScalingConfig(num_workers=6)
train.DataParallelTrainer(work, train_loop_config={"notes": sys.argv[1]}, scaling_config=workers, run_config=run).fit()
"""
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
WITHIN_S = 120.0


def made(env: dict[str, str]) -> list[Path]:
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return [Path(line) for line in out.stdout.splitlines()]


def test_no_file_of_a_worker_is_without_its_mark(tmp_path: Path) -> None:
    paths = [path for path in made({"TMPDIR": str(tmp_path)}) if path.parent == tmp_path]
    assert len(paths) == 2
    assert all(path.name.startswith("holdfast-7-token-") for path in paths)


def test_a_directory_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    paths = made({"TMPDIR": str(tmp_path / "gone"), "TEMP": str(tmp_path)})
    assert len([path for path in paths if path.parent == tmp_path]) == 2


def test_another_worker_with_the_same_pid_keeps_its_files(tmp_path: Path) -> None:
    ours, theirs = new_token(), new_token()
    (tmp_path / f"holdfast-7-{ours}-file").touch()
    (tmp_path / f"holdfast-7-{theirs}-file").touch()
    remove_temporary_files(7, ours, {b"TMPDIR": os.fsencode(tmp_path)})
    assert [path.name for path in tmp_path.iterdir()] == [f"holdfast-7-{theirs}-file"]


def own_pids() -> tuple[str, ...]:
    """Where namespaces are not permitted, the two runs have different pids, and still must leave each other's files."""
    permitted = subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=WITHIN_S).returncode == 0
    return NAMESPACE if permitted else ()


@contextlib.contextmanager
def container(prefix: tuple[str, ...], notes: Path, temporary: Path) -> Iterator[dict[int, Path]]:
    """A run of several workers, and the temporary file of each by its pid; the workers fail at the end."""
    notes.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "HOLDFAST_DISPLAY": "off"}
    command = [*prefix, sys.executable, "-c", TRAINING, str(notes)]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            deadline = time.monotonic() + WITHIN_S
            while len(list(notes.glob("*.json"))) < 6:
                assert process.poll() is None
                assert time.monotonic() < deadline, "the workers did not start"
                time.sleep(0.02)
            yield {pid: Path(path) for pid, path in (json.loads(note.read_text()) for note in notes.glob("*.json"))}
            (notes / "end").touch()
            assert process.wait(WITHIN_S) == 1
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.timeout(5 * WITHIN_S)
def test_containers_that_share_a_directory_remove_only_their_own_files(tmp_path: Path) -> None:
    prefix, temporary = own_pids(), tmp_path / "tmp"
    temporary.mkdir()
    with container(prefix, tmp_path / "a", temporary) as theirs:
        with container(prefix, tmp_path / "b", temporary) as ours:
            assert bool(theirs.keys() & ours.keys()) == bool(prefix), "pids repeat across containers"
        assert not [path for path in ours.values() if path.exists()]
        assert all(path.exists() for path in theirs.values())
    assert not [path for path in theirs.values() if path.exists()]
