"""The live display: drawn into a string under a clock of the test's own, and for real in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.ui import run_display
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture, ShownFailure
from holdfast.ui.display_streams import Sink
from holdfast.ui.live_painter import LivePainter
from support.ui.screen import Screen


class Told:
    """A live painter under a clock of the test's own, on a terminal of 80 by 24."""

    def __init__(self, stream: io.StringIO | None = None) -> None:
        self.stream = stream or io.StringIO()
        self.painter = LivePainter(Sink(self.stream))
        self.picture = Picture(name="demo", path="/runs/demo", state="running")

    def at(self, now: float, *news: OutputLine | DisplayNotice, final: bool = False) -> list[str]:
        """Everything on the screen after a paint."""
        self.painter.paint(self.picture, list(news), now, final)
        return Screen().feed(self.stream.getvalue()).lines


@pytest.fixture(autouse=True)
def a_terminal_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


def test_the_panel_says_how_the_run_is() -> None:
    told = Told()
    picture = told.picture
    picture.attempt_number, picture.world_size, picture.workers = 2, 3, {0: "running", 1: "dead", 2: "running"}
    picture.state_since = 60.0
    picture.metrics = {"loss": 0.123456, "epoch": 7}
    picture.failures, picture.failure_count = (ShownFailure(55.0, "rank 1 was killed", "retry 1 of 3"),), 1
    picture.checkpoint, picture.pending = ("checkpoint_000004", 90, 62.0), 1
    picture.reports = 100
    told.at(63.0)
    picture.reports = 120
    assert told.at(65.0) == [
        "╭─ demo ──────────────────────────────────────────────────────────────────────╮",
        "│ run        /runs/demo                                                       │",
        "│ state      running for 5 s                                                  │",
        "│ workers    1 dead (rank 1), 2 running, attempt 2                            │",
        "│ reports    120, 10/s                                                        │",
        "│ metrics    loss    0.1235  epoch         7                                  │",
        "│ saved      checkpoint_000004 of report 90, 3 s ago, 1 more being saved      │",
        "│ 1 failure  10 s ago: rank 1 was killed (retry 1 of 3)                       │",
        "╰────────────────────────────────────────────────────────────────── 1 m 05 s ─╯",
    ]


def test_lines_stay_above_one_panel() -> None:
    told = Told()
    for tick in range(40):
        lines = told.at(tick / 8, OutputLine(tick % 2, f"line {tick}"))
    lines = told.at(
        6.0, OutputLine(None, "printed by the script"), DisplayNotice(6.0, "warning", "warning: rank 1 is late")
    )
    assert lines[:40] == [f"(rank {tick % 2}) line {tick}" for tick in range(40)]
    assert lines[40:42] == ["printed by the script", "warning: rank 1 is late"]
    assert lines[42].startswith("╭─ demo ─")
    assert [line[0] for line in lines[43:]] == ["│", "│", "╰"]


def test_lines_longer_than_the_terminal_wrap_and_stay_whole() -> None:
    told = Told()
    for tick, length in enumerate((71, 72, 200, 3)):
        lines = told.at(float(tick), OutputLine(0, "x" * length))
    wrapped = [f"(rank 0) {'x' * 71}", f"(rank 0) {'x' * 71}", "x", f"(rank 0) {'x' * 71}", "x" * 80, "x" * 49]
    assert lines[:7] == [*wrapped, "(rank 0) xxx"]
    assert lines[7].startswith("╭")


def test_a_panel_higher_than_the_terminal_is_cut() -> None:
    told = Told()
    long = "very " * 200
    told.picture.failures, told.picture.failure_count = (ShownFailure(0.0, long, long),) * 3, 12
    for tick in range(10):
        lines = told.at(float(tick), OutputLine(0, f"line {tick}"))
    assert [line for line in lines if line.startswith("(rank")] == [f"(rank 0) line {tick}" for tick in range(10)]
    assert sum(line.startswith("╭") for line in lines) == 1
    assert any("12 failures" in line for line in lines)


def test_weird_metrics_keep_the_panel_in_shape() -> None:
    told = Told()
    told.picture.reports = 1
    told.picture.metrics = {
        "deep": {"a": {"b": 1}},
        "\x1b[2Jname\n" * 9: "\x1b[1Along\n" * 40,
        "loss": float("nan"),
        "漢字漢字漢字漢字漢字漢字": float("inf"),
        "[bold]": 10**400,
    } | {f"metric_{number}": number * 1e9 for number in range(50)}
    for tick in range(3):
        told.painter.paint(told.picture, [], float(tick), False)
    text = told.stream.getvalue()
    assert "\x1b[1;31m     nan" in text  # what should worry a person stands out
    lines = [line for line in Screen(columns=200).feed(text).lines if "漢" not in line]
    assert {line[0] + line[-1] for line in lines} == {"╭╮", "││", "╰╯"}
    assert {len(line) for line in lines} == {79}
    assert any("+51 more" in line for line in lines)


def test_nothing_is_written_while_nothing_changes() -> None:
    told = Told()
    told.at(0.0)
    size = len(told.stream.getvalue())
    told.at(0.5)
    assert len(told.stream.getvalue()) == size


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    told = Told()
    told.at(0.0, OutputLine(0, "\x1b[31mred\x1b[0m"), DisplayNotice(0.0, "warning", "warning: late"))
    told.at(1.0, final=True)
    assert "\x1b[3" not in told.stream.getvalue()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    told = Told()
    told.at(1.0, OutputLine(0, "hello"), DisplayNotice(1.0, "state", "running"))
    assert told.stream.getvalue() == "(rank 0) hello\n[holdfast 1.0s] running\n"


def test_an_ascii_terminal_gets_an_ascii_panel() -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    told = Told(Ascii())
    assert told.at(0.0, OutputLine(0, "caf\u00e9"))[0] == "(rank 0) caf?"
    assert told.stream.getvalue().isascii()


class Terminal:
    """A pseudo-terminal with a script on it."""

    def __init__(self, script: str, columns: int = 80, rows: int = 24) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(slave)
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": ""}
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=slave, stdout=slave, stderr=slave, env=environment
        )
        self._slave = slave  # kept open, so that what a dead process wrote can still be read
        self._bytes = b""
        self._size = (columns, rows)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._master)
        os.close(self._slave)

    @property
    def screen(self) -> Screen:
        return Screen(*self._size).feed(self._bytes.decode(errors="ignore"))

    def read_until(self, text: str | None) -> str:
        """Read until ``text`` is on the screen, or with None until the process has ended and all is read."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            readable, _, _ = select.select([self._master], [], [], 0 if ended else 0.05)
            if readable:
                self._bytes += os.read(self._master, 65536)
            if text is not None and text in "\n".join(self.screen.lines):
                return self._bytes.decode(errors="ignore")
            if ended and not readable:
                assert text is None, f"the script ended without {text!r}: {self._bytes!r}"
                return self._bytes.decode(errors="ignore")
        raise AssertionError(f"no {text!r} in {self._bytes!r}")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def assert_given_back(self) -> None:
        assert self.screen.cursor_shown
        assert termios.tcgetattr(self._slave) == self.modes


@pytest.fixture
def run() -> Iterator[list[Terminal]]:
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


SCRIPT = """
import logging, os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads, which is on purpose
logging.basicConfig(level="INFO", format="%(message)s")
from holdfast.ui import run_display
stdout, stderr = sys.stdout, sys.stderr
shower = run_display.make()
shower.start("demo", "/runs/demo", "checkpoint_000003")
shower.attempt(1, 2)
shower.workers({0: "running", 1: "running"})
shower.state("running")
"""


def test_on_a_terminal_the_panel_appears_and_all_lines_are_above_it(run: list[Terminal]) -> None:
    terminal = Terminal(
        SCRIPT
        + """
shower.output(0, "from rank 0")
sys.stdin.readline()
shower.output(1, "\\r 10%|#\\r100%|##| 3/3")
shower.output(1, "y" * 100)
print("from the script")
print("a", "b", end="")
print("c")
sys.stderr.write("\\r 10%|#")
sys.stderr.flush()
sys.stderr.write("\\r100%|####\\n")
logging.info("from a logger")
if os.fork() == 0:
    print("from a fork")
    os._exit(0)
os.wait()
print("no end of line", end="")
shower.finish("finished", "went well")
assert (sys.stdout, sys.stderr, logging.getLogger().handlers[0].stream) == (stdout, stderr, stderr)
assert threading.active_count() == 1
assert shower.error is None, shower.error
print("after the run")
"""
    )
    run.append(terminal)
    terminal.read_until("resumes from checkpoint_000003")
    assert terminal.screen.lines[0] == "(rank 0) from rank 0"
    assert terminal.screen.lines[1].startswith("╭─ demo ─")
    terminal.type("\n")
    everything = terminal.read_until(None)
    assert terminal.process.returncode == 0
    assert "from a fork" in everything
    lines = terminal.screen.lines
    panel = max(index for index, line in enumerate(lines) if line.startswith("╭─ demo ─"))
    above = [line for line in lines[:panel] if line and line[0] not in "╭│╰"]
    assert above == [
        "(rank 0) from rank 0",
        "(rank 1) 100%|##| 3/3",
        f"(rank 1) {'y' * 71}",
        "y" * 29,
        "from the script",
        "a bc",
        "100%|####",
        "from a logger",
        "no end of line",
    ]
    assert [line[0] for line in lines[panel:-2]] == ["╭", "│", "│", "│", "│", "╰"]
    assert lines[panel + 3].split()[1:3] == ["state", "finished"]
    assert lines[-2:] == ["went well", "after the run"]
    terminal.assert_given_back()


def test_the_terminal_is_left_in_order_when_the_script_dies(run: list[Terminal]) -> None:
    terminal = Terminal(SCRIPT + "sys.stdin.readline()\nraise SystemExit('gave up')\n")
    run.append(terminal)
    terminal.read_until("running for")
    terminal.type("\n")
    terminal.read_until(None)
    assert terminal.process.returncode == 1
    assert "gave up" in terminal.screen.lines
    terminal.assert_given_back()


def test_the_terminal_is_left_in_order_when_the_driver_is_killed(run: list[Terminal]) -> None:
    terminal = Terminal(SCRIPT + "sys.stdin.readline()\n")
    run.append(terminal)
    terminal.read_until("running for")
    terminal.process.send_signal(signal.SIGKILL)
    terminal.read_until(None)
    assert terminal.screen.lines[-1].startswith("╰")
    terminal.assert_given_back()


def test_a_terminal_that_takes_no_output_holds_up_nobody(run: list[Terminal]) -> None:
    """Once the panel is there nothing reads the pseudo-terminal any more, as after Ctrl+S, so it is full at once."""
    terminal = Terminal(
        SCRIPT
        + """
run_display.FINISH_TIMEOUT_S = 1.0
sys.stdin.readline()
for number in range(100_000):
    shower.output(0, "x" * 100)
shower.finish("finished", "")
"""
    )
    run.append(terminal)
    terminal.read_until("running for")
    terminal.type("\n")
    assert terminal.process.wait(30) == 0


def test_a_background_job_does_not_draw_over_the_shell(run: list[Terminal]) -> None:
    terminal = Terminal(
        """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
from holdfast.ui import run_display
if child:
    assert os.waitpid(child, 0)[1] == 0
shower = run_display.make()
shower.start("background" if child == 0 else "foreground", "/runs/demo", None)
shower.finish("finished", "")
"""
    )
    run.append(terminal)
    terminal.read_until(None)
    lines = terminal.screen.lines
    assert lines[0].endswith("run background in /runs/demo")
    assert lines[1].endswith("finished")
    assert lines[2].startswith("╭─ foreground ─")


def test_finish_ends_the_thread_and_may_come_twice() -> None:
    stream = io.StringIO()
    shower = run_display.make("live", stream)
    shower.start("demo", "/runs/demo", None)
    shower.finish("stopped", "continue with: python train.py")
    written = stream.getvalue()
    shower.finish("failed", "")
    shower.output(0, "too late")
    assert "holdfast-display" not in [thread.name for thread in threading.enumerate()]
    assert stream.getvalue() == written
    assert Screen().feed(written).lines[-1] == "continue with: python train.py"


def test_what_was_stored_is_shown_and_never_obeyed() -> None:
    """Neither by the terminal nor by rich, which has a markup of its own."""
    told = Told()
    evil = "[bold red]x[/] \x1b]0;owned\x07\x1b[2J\x9b\u202e"
    picture = told.picture
    picture.name = picture.path = picture.resumed = evil
    picture.metrics, picture.reports = {evil: evil}, 3
    picture.detail = evil
    picture.world_size, picture.workers = 1, {0: evil}
    picture.checkpoint = (evil, 3, 0.0)
    picture.failures, picture.failure_count = (ShownFailure(0.0, evil, evil),), 1
    lines = told.at(1.0, DisplayNotice(0.0, "warning", evil), final=True)
    written = told.stream.getvalue()
    assert not [harmful for harmful in ("\x07", "\x1b]", "\x1b[2J", "\x9b", "\u202e") if harmful in written]
    assert any(r"[bold red]x[/] \x1b]0;owned" in line for line in lines)


def test_a_long_name_of_a_metric_keeps_its_end() -> None:
    told = Told()
    told.picture.metrics = {"validation/accuracy_top1": 0.5, "validation/accuracy_top5": 0.9}
    lines = told.at(1.0)
    assert any("validati…racy_top1       0.5  validati…racy_top5       0.9" in line for line in lines)
