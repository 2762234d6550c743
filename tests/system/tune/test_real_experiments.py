"""Real experiments, in a process of their own, as a person at a terminal or behind a pipe sees them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ui.screen import Screen

SCRIPT = """
import sys, time
from holdfast import tune

def train(config):
    print("hello from", config["x"])
    if config["x"] == 3:
        raise ValueError("three is too many")
    for epoch in range(config.get("epochs", 2)):
        time.sleep(config.get("pause_s", 0))
        tune.report({"loss": config["x"] * 10 + epoch})

if __name__ == "__main__":
    more = eval(sys.argv[2])
    grid = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1, 2, 3]), **more},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="seen", verbose=more.get("verbose")),
    ).fit()
    print("the best is", grid.get_best_result().config["x"])
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, str(script), str(tmp_path / "storage")]


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    yield master, slave
    os.close(master)


def environment() -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}


def read_until(master: int, text: str | None) -> Screen:
    """All that is on the screen when ``text`` has come, or when the program has ended."""
    screen, rest = Screen(columns=100, rows=40), b""
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # the program's end of the terminal is closed
            piece = b""
        if not piece:
            assert text is None, f"the program ended without {text!r}: {screen.lines}"
            return screen
        *whole, rest = (rest + piece).split(b"\n")
        screen.feed(b"".join(line + b"\n" for line in whole).decode(errors="replace"))
        if text is not None and any(text in line for line in screen.lines):
            return screen


def test_on_a_terminal_trials_are_shown_and_what_they_print_is_above(
    command: list[str], terminal: tuple[int, int]
) -> None:
    master, slave = terminal
    process = subprocess.Popen([*command, "{}"], stdin=slave, stdout=slave, stderr=slave, env=environment())
    os.close(slave)
    lines = read_until(master, None).lines
    assert process.wait(30) == 0
    panel = next(number for number, line in enumerate(lines) if line.startswith("╭─ seen ─"))
    above = "\n".join(lines[:panel])
    assert all(f"hello from {x}" in above for x in (1, 2, 3))
    text = "\n".join(lines[panel:])
    assert "trials      3 of 3: 1 failed, 2 done" in text
    assert "best        loss=10 at iteration 1" in text  # the first result of the first trial, which was not its last
    unwrapped = " ".join(text.replace("│", " ").split())
    panel_ends = r"1 failed just now: train_\w+: rank 0 raised ValueError: three is too many \[user error\] ╰"
    assert re.search(panel_ends, unwrapped), unwrapped
    assert lines[-1] == "the best is 1"


def test_ctrl_c_says_what_is_done_and_how_to_go_on(command: list[str], terminal: tuple[int, int]) -> None:
    master, slave = terminal
    process = subprocess.Popen(
        [*command, "{'epochs': 1000, 'pause_s': 0.05}"], stdin=slave, stdout=slave, stderr=slave, env=environment()
    )
    os.close(slave)
    read_until(master, "best so far")
    process.send_signal(signal.SIGINT)
    text = "\n".join(read_until(master, None).lines)
    assert process.wait(60) == -signal.SIGINT
    assert "it was asked to stop: the trial that runs is stopped" in text
    assert "state       stopped" in text
    assert "To resume, run the same command again" in text


def test_a_reader_that_goes_away_disturbs_nothing(command: list[str]) -> None:
    piped = ["sh", "-c", '"$@" | head -n 1', "sh", *command, "{}"]
    done = subprocess.run(piped, capture_output=True, env=environment(), text=True, timeout=90)
    assert "hello from" in done.stdout
    assert "trials: 3 of 3: 1 failed, 2 done" in done.stderr
    assert "finished" in done.stderr


def test_silence_is_silence(command: list[str]) -> None:
    done = subprocess.run([*command, "{'verbose': 0}"], capture_output=True, env=environment(), text=True, timeout=90)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the best is 1\n", "")
