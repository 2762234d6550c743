"""Ctrl+C at any moment of the start of ``fit()`` ends it and leaves nothing behind: no thread, process or file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast.platform import interrupt
from support.repository import SUPPORT

LIMIT_S = 200.0


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("kind", ["training", "tuning", "in_process"])
def test_an_interrupt_at_any_line_of_the_start_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "HOLDFAST_DISPLAY": "off"}
    command = [sys.executable, str(SUPPORT / "driver" / "interrupted_start.py"), kind, str(tmp_path / "runs")]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as script:
        try:
            output, _ = script.communicate(timeout=LIMIT_S)
        except BaseException:
            os.killpg(script.pid, signal.SIGKILL)
            raise
    assert script.returncode == 0, output
    assert output.splitlines()[-1].startswith("nothing was left after"), output
    assert list(temporary.iterdir()) == []


BACKGROUND = """
import sys, time
from pathlib import Path
from holdfast import train

Path(sys.argv[1], "begun").touch()

def work(config):
    Path(config["started"]).touch()
    while not Path(config["told"]).exists():
        time.sleep(0.01)

train.DataParallelTrainer(
    work,
    train_loop_config={"started": sys.argv[1] + "/started", "told": sys.argv[1] + "/told"},
    scaling_config=train.ScalingConfig(num_workers=int(sys.argv[2])),
    run_config=train.RunConfig(name="run", storage_path=sys.argv[1]),
).fit()
"""


def await_file(path: Path, script: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert script.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_background_job_is_not_interrupted(workers: int, tmp_path: Path) -> None:
    """SIGINT and SIGHUP are ignored, as by a shell's ``nohup ... &``, and reach all of its processes."""
    ignoring = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"]
    command = [*ignoring, sys.executable, "-c", BACKGROUND, str(tmp_path), str(workers)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as script:
        try:
            await_file(tmp_path / "begun", script)
            os.killpg(script.pid, signal.SIGINT)
            await_file(tmp_path / "started", script)
            os.killpg(script.pid, signal.SIGINT)
            os.killpg(script.pid, signal.SIGHUP)
            (tmp_path / "told").touch()
            assert script.wait(LIMIT_S) == 0
        except BaseException:
            os.killpg(script.pid, signal.SIGKILL)
            raise


def test_a_signal_raises_nothing_while_it_is_held() -> None:
    asked: list[tuple[int, bool]] = []
    with interrupt.held():
        signal.raise_signal(signal.SIGINT)
        with interrupt.handled(lambda number, at_once: asked.append((number, at_once))):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert asked == [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, True)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fit_inside_of_another_has_the_signals_for_its_time() -> None:
    asked: list[str] = []
    with interrupt.held(), interrupt.handled(lambda *_: asked.append("outer")):
        with interrupt.held(), interrupt.handled(lambda *_: asked.append("inner")):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert asked == ["inner", "outer"]


def test_a_second_signal_before_there_is_a_loop_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupt.held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)


def test_a_held_signal_ends_a_wait() -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupt.held():
            signal.raise_signal(signal.SIGINT)
            interrupt.wait(time.sleep, 600.0)
    with pytest.raises(SystemExit), interrupt.held():
        interrupt.wait(lambda _: signal.raise_signal(signal.SIGTERM), 600.0)


def test_waits_of_other_threads_go_on() -> None:
    with interrupt.held():
        signal.raise_signal(signal.SIGINT)
        waited: list[float] = []
        thread = threading.Thread(target=interrupt.wait, args=(waited.append, 1.0))
        thread.start()
        thread.join(10.0)
    assert waited == [1.0]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt.held():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
