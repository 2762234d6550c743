"""Defects that a review found: each test failed before its mending."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import multiprocessing
import os
import queue
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_driver_faults import children, name

import holdfast.train as train
from holdfast.engine.agent_link import Link
from holdfast.engine.local.agent_process import AgentProcess
from holdfast.engine.local.local_engine import LocalEngine
from holdfast.node import fork_safety, seed
from holdfast.platform import process_control
from holdfast.wire import messages as wire
from holdfast.wire.channel import pack

PATIENCE_S = 120.0


def fit(storage: Path, fn: Callable[..., Any], workers: int = 1, **options: Any) -> train.Result:
    failure = options.pop("failure_config", train.FailureConfig(max_failures=options.pop("max_failures", 0)))
    ours = {key: options.pop(key) for key in ("train_loop_config", "validation_config") if key in options}
    return train.DataParallelTrainer(
        fn,
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            name=options.pop("name", "run"), storage_path=str(storage), failure_config=failure, verbose=0, **options
        ),
        **ours,
    ).fit()


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def the_agent() -> int:
    """The living one: those that a killed driver left become our children, and nobody reaps them."""
    return next(pid for pid in children(os.getpid()) if name(pid) == "hf-agent" and not process_control.is_ending(pid))


class KillsTheAgent(train.UserCallback):
    """After the first report."""

    def __init__(self) -> None:
        self.done = False

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        if not self.done:
            self.done = True
            os.kill(the_agent(), signal.SIGKILL)


def after_open(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Have something happen when the agent is started and not yet ready."""
    real = LocalEngine.open

    def opened(self: LocalEngine, *args: Any) -> Any:
        session = real(self, *args)
        then()
        return session

    monkeypatch.setattr(LocalEngine, "open", opened)


def test_a_stop_before_the_node_is_ready_starts_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_open(monkeypatch, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, lambda: (tmp_path / "trained").touch())
    assert not (tmp_path / "trained").exists()


def test_an_agent_that_dies_before_it_is_ready_costs_nothing_but_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def start(self: AgentProcess, *args: Any) -> None:
        real(self, *args)
        if not killed:
            killed.append(self.pid)
            os.kill(self.pid, signal.SIGKILL)

    real = AgentProcess.__init__
    monkeypatch.setattr(AgentProcess, "__init__", start)
    assert fit(tmp_path, lambda: train.report({"step": 1}), max_failures=0).metrics == {"step": 1}
    assert killed


def test_a_new_agent_outlives_the_thread_that_heard_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payload is larger than a socket's buffer, and the script has many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(os, "pidfd_open", _numbered_high(os.pidfd_open))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))

    def fn(config: dict[str, Any]) -> None:
        first = not (tmp_path / "mark").exists()
        (tmp_path / "mark").touch()
        train.report({"size": len(config["data"])})
        if first:
            signal.pause()

    try:
        config = {"data": bytes(4 << 20)}
        result = fit(tmp_path, fn, max_failures=1, train_loop_config=config, callbacks=[KillsTheAgent()])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.metrics == {"size": 4 << 20}


def _numbered_high(opened: Callable[[int], int]) -> Callable[[int], int]:
    def open_high(pid: int) -> int:
        fd = opened(pid)
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 1100)
        finally:
            os.close(fd)

    return open_high


SCRIPT = """
import atexit, json, os, subprocess, sys, tempfile, threading
scratch = tempfile.TemporaryDirectory()
atexit.register(os.write, 2, b"the exit of the script;")
import half_imported
import holdfast.train as train
os.chdir(sys.argv[1])

def fn():
    found = []
    def look():
        import half_imported
        found.append(half_imported.VALUE)
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    read = subprocess.run(["cat"], capture_output=True, text=True).stdout
    train.report({"cwd": os.getcwd(), "argv": sys.argv[1:], "read": read, "found": found})

config = train.RunConfig(name="run", storage_path=scratch.name, verbose=0)
print(json.dumps(train.DataParallelTrainer(fn, run_config=config).fit().metrics))
print(json.dumps([os.path.isdir(scratch.name), sys.stdin.read()]))
"""


def test_a_worker_of_the_seed_is_like_a_fresh_process_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "half_imported.py").write_text("import holdfast.train.torch\nVALUE = 42\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "elsewhere").mkdir()
    where = os.path.realpath(tmp_path / "elsewhere")
    command = [sys.executable, str(tmp_path / "script.py"), where]
    done = subprocess.run(command, input="for the script", capture_output=True, text=True, timeout=PATIENCE_S)
    worker, script = (json.loads(line) for line in done.stdout.splitlines())
    assert worker == {"cwd": where, "argv": [where], "read": "", "found": [42]}
    assert script == [True, "for the script"]
    assert done.stderr == "the exit of the script;"


def test_a_module_in_the_working_directory_does_not_stand_in_for_pythons_own(tmp_path: Path) -> None:
    """The script lies elsewhere, so for it there is no such module."""
    (tmp_path / "queue.py").write_text("raise RuntimeError('not this one')")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "script.py").write_text(
        SCRIPT.replace("import half_imported\nimport holdfast", "import holdfast")
    )
    (tmp_path / "scripts" / "half_imported.py").write_text("VALUE = 42\n")
    command = [sys.executable, "scripts/script.py", "."]
    done = subprocess.run(command, cwd=tmp_path, input="", capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def test_a_variable_that_is_no_text_reaches_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"\xff")
    assert fit(tmp_path, lambda: train.report({"odd": os.environb[b"ODD"].hex()})).metrics == {"odd": "ff"}


def test_a_library_in_a_path_with_a_space_does_not_break_the_import(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    library = tmp_path / "a b" / "libopenblas.so"
    library.write_bytes(bytes(mmap.PAGESIZE))
    before = fork_safety._fork_safe_threads()
    with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert fork_safety._fork_safe_threads() == before


def test_zygotes_grown_at_once_in_two_threads_are_not_mixed_up() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    planted = seed.Seed(0, ours)
    wrong: list[int] = []

    def answer() -> None:
        for pid in range(1, 401):
            _, fds, _, _ = socket.recv_fds(theirs, 64, 1)
            with socket.socket(fileno=fds[0]) as control:
                control.send(str(pid).encode())
            theirs.send(str(pid).encode())

    def grow() -> None:
        for _ in range(200):
            grown = planted.grow()
            assert grown is not None
            pid, control = grown
            with control:
                if int(control.recv(64)) != pid:
                    wrong.append(pid)

    threads = [threading.Thread(target=work) for work in (answer, grow, grow)]
    with ours, theirs:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not wrong


LOUD = """
import sys, holdfast.train as train
def fn():
    while True:
        print("x" * 1000)
train.DataParallelTrainer(fn, run_config=train.RunConfig(name="run", storage_path=sys.argv[1], verbose=0)).fit()
"""


def test_an_agent_whose_driver_is_stopped_does_not_grow(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", LOUD, str(tmp_path)])
    log = tmp_path / "run" / "logs" / "attempt-0001" / "rank-0.log"
    try:
        wait_until(lambda: log.exists() and log.stat().st_size)
        driver.send_signal(signal.SIGSTOP)
        agent = next(pid for pid in children(driver.pid) if name(pid) == "hf-agent")
        wait_until(lambda: log.stat().st_size > 150 << 20)
        pages = int(Path(f"/proc/{agent}/statm").read_text().split()[1])
    finally:
        driver.kill()
        driver.wait(PATIENCE_S)
    assert pages * mmap.PAGESIZE < 100 << 20


def test_what_workers_print_does_not_fill_the_inbox_of_a_busy_driver() -> None:
    ours, theirs = socket.socketpair()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(ours, 10.0)
    thread = threading.Thread(target=link.converse, args=(inbox, inbox.put))
    thread.start()
    with theirs:
        for number in range(5000):
            theirs.sendall(pack(wire.Output(0, [str(number)])))
        theirs.sendall(pack(wire.NodeReady("n", 1, 1.0)))
        while not isinstance(inbox.get(timeout=PATIENCE_S), wire.NodeReady):
            assert inbox.qsize() < 2000
    thread.join(PATIENCE_S)
    link.close()


def test_a_process_forked_in_a_thread_outlives_that_thread(tmp_path: Path) -> None:
    def child(go_on: int, started: int) -> None:
        os.write(started, b"x")
        os.read(go_on, 1)

    def fn() -> None:
        go_on, say_so = os.pipe()
        has_started, started = os.pipe()
        process = multiprocessing.get_context("fork").Process(target=child, args=(go_on, started))
        ids: list[int] = []

        def fork() -> None:
            ids.append(threading.get_native_id())
            process.start()
            os.read(has_started, 1)

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        wait_until(lambda: not os.path.exists(f"/proc/self/task/{ids[0]}"))
        os.write(say_so, b"x")
        process.join()
        train.report({"exit": process.exitcode})

    assert fit(tmp_path, fn).metrics == {"exit": 0}


@pytest.mark.parametrize("end", ["return", "agent killed"])
def test_a_process_in_a_session_of_its_own_does_not_outlive_the_run(end: str, tmp_path: Path) -> None:
    def fn() -> None:
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        train.report({"pid": process.pid})
        if end == "agent killed":
            signal.pause()

    if end == "return":
        fit(tmp_path, fn)
    else:
        with pytest.raises(train.TrainingFailedError, match="lost with its node"):
            fit(tmp_path, fn, callbacks=[KillsTheAgent()])
    metrics = train.Result.from_path(tmp_path / "run").metrics
    assert metrics is not None
    try:
        wait_until(lambda: not os.path.exists(f"/proc/{metrics['pid']}"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(metrics["pid"], signal.SIGKILL)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_spawned_workers_are_watched_as_forked_ones_are(
    fault: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_START_METHOD", "spawn")
    monkeypatch.setenv("HOLDFAST_STOPPED_GRACE_S", "0.2")

    def fn() -> None:
        if not (tmp_path / "mark").exists():
            (tmp_path / "mark").touch()
            subprocess.Popen(["sleep", "1000"])  # found by the check after each test, if it is left behind
            signal.raise_signal(fault)
        train.report({"step": 1})

    assert fit(tmp_path, fn, max_failures=1).metrics == {"step": 1}


def test_a_killed_drivers_agent_does_not_finish_hashing_first(tmp_path: Path) -> None:
    """A large sparse file takes minutes to hash; nothing may be left long before that."""
    script = (
        "import sys, signal, holdfast.train as train\n"
        "def fn():\n"
        "    with open(sys.argv[1] + '/large/file', 'wb') as file:\n"
        "        file.truncate(200 << 30)\n"
        "    checkpoint = train.Checkpoint(sys.argv[1] + '/large')\n"
        "    train.report({}, checkpoint=checkpoint, delete_local_checkpoint_after_upload=True)\n"
        "    signal.pause()\n"
        "config = train.RunConfig(name='run', storage_path=sys.argv[1], verbose=0)\n"
        "train.DataParallelTrainer(fn, run_config=config).fit()\n"
    )
    (tmp_path / "large").mkdir()
    driver = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        wait_until(lambda: list((tmp_path / "run").glob(".staging/**/file")))
        agent = next(pid for pid in children(driver.pid) if name(pid) == "hf-agent")
        ended = os.pidfd_open(agent)
    finally:
        driver.kill()
        driver.wait(PATIENCE_S)
    assert select.select([ended], [], [], 5.0)[0], "the agent went on"
    os.close(ended)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_log_that_cannot_be_written_does_not_hurt_the_run(
    workers: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").write_text("in the way")
    assert fit(tmp_path, lambda: train.report({"step": 1}), workers=workers).metrics == {"step": 1}
    assert "cannot write the log" in capfd.readouterr().err


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_is_told_whatever_the_function_did_to_its_streams(tmp_path: Path) -> None:
    def fn() -> None:
        sys.stdout = None  # type: ignore[assignment]
        sys.stderr.close()
        raise ValueError("the cause")

    with pytest.raises(train.TrainingFailedError, match="rank 0 raised ValueError: the cause"):
        fit(tmp_path, fn)


@pytest.mark.parametrize(
    ("error", "told"), [(Wordless(), "Wordless: .its message cannot be shown"), (ValueError("\udcff"), r"\\udcff")]
)
def test_an_exception_is_told_whatever_its_words_are(error: Exception, told: str, tmp_path: Path) -> None:
    def fn(config: dict[str, Any]) -> None:
        raise config["error"]

    with pytest.raises(train.TrainingFailedError, match=f"rank 0 raised .*{told}"):
        fit(tmp_path, fn, train_loop_config={"error": error})


def test_a_module_that_cannot_be_preloaded_does_not_hurt_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ends_it_all.py").write_text(f"import os\nopen({str(tmp_path / 'mark')!r}, 'w').close()\nos._exit(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(seed, "planted", lambda: None)  # the path of the seed is older

    def fn() -> None:
        train.report({"step": 1})
        wait_until((tmp_path / "mark").exists)
        for step in range(2, 30):
            train.report({"step": step}, checkpoint=None)
            train.get_all_reported_checkpoints()  # the way to the driver and back
            time.sleep(0.01)

    result = fit(tmp_path, fn, preload=["ends_it_all"])
    assert result.metrics == {"step": 29}
