"""The plain display: what it writes, what it keeps to itself, and what it survives."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from holdfast.driver.display import OffDisplay
from holdfast.ui import run_display
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture, clean
from holdfast.ui.display_streams import Sink
from holdfast.ui.plain_painter import PlainPainter


@pytest.fixture(autouse=True)
def no_thread_is_left() -> object:
    yield
    assert "holdfast-display" not in [thread.name for thread in threading.enumerate()]


def shown(tell: Callable[[run_display.Display], None]) -> str:
    stream = io.StringIO()
    shower = run_display.make("plain", stream)
    shower.start("demo", "/runs/demo", None)
    tell(shower)
    shower.finish("finished", "all is well")
    assert shower.error is None  # type: ignore[attr-defined]
    return re.sub(r"holdfast \d+\.\ds", "holdfast 0.0s", stream.getvalue())


def test_one_line_an_event_in_their_order() -> None:
    def tell(shower: run_display.Display) -> None:
        shower.state("starting")
        shower.attempt(1, 2)
        shower.state("running")
        shower.state("running")  # of the core's phases, two may be one for a person
        shower.output(1, "hello")
        shower.progress(3, {"loss": 0.123456, "epoch": 2})
        shower.checkpoint("checkpoint_000001", 2)
        shower.pending(1)
        shower.failure("rank 1 was killed by SIGKILL (signal 9)", "retry 1 of 3 from checkpoint_000001")
        shower.state("waiting", "2.0 s before the next attempt")
        shower.warning("rank 0 is late")

    assert shown(tell).splitlines() == [
        "[holdfast 0.0s] run demo in /runs/demo",
        "[holdfast 0.0s] starting",
        "[holdfast 0.0s] attempt 1 with 2 workers",
        "[holdfast 0.0s] running",
        "(rank 1) hello",
        "[holdfast 0.0s] saved checkpoint_000001 (report 2)",
        "[holdfast 0.0s] FAILURE: rank 1 was killed by SIGKILL (signal 9)",
        "  retry 1 of 3 from checkpoint_000001",
        "[holdfast 0.0s] waiting: 2.0 s before the next attempt",
        "[holdfast 0.0s] warning: rank 0 is late",
        "[holdfast 0.0s] report 3, 1 checkpoint not saved yet, loss 0.1235, epoch 2",
        "[holdfast 0.0s] finished: all is well",
    ]


def test_the_traceback_of_the_named_rank_is_whole_and_above_its_failure() -> None:
    head = "Traceback (most recent call last):"

    def tell(shower: run_display.Display) -> None:
        shower.attempt(1, 2)
        for rank, text in ((0, head), (0, "RuntimeError: peer"), (1, head), (1, "ValueError: bad")):
            shower.output(rank, text)
        shower.failure("rank 1 raised ValueError: bad", "retry 1 of 3", 1)
        shower.output(0, head)  # nobody names a failure any more: it is shown at the end
        shower.attempt(2, 2)
        shower.output(1, head)

    assert [line for line in shown(tell).splitlines() if line[0] == "(" or "FAILURE" in line] == [
        f"(rank 1) {head}",
        "(rank 1) ValueError: bad",
        "(rank 0) RuntimeError after rank 1's failure. Traceback: holdfast logs /runs/demo --rank 0",
        "[holdfast 0.0s] FAILURE: rank 1 raised ValueError: bad",
        f"(rank 1) {head}",
    ]


def test_a_run_that_goes_on_says_from_where() -> None:
    stream = io.StringIO()
    shower = run_display.make("plain", stream)
    shower.start("demo", "/runs/demo", "checkpoint_000007")
    shower.finish("stopped", "continue with:\n  python train.py")
    assert ", resumes from checkpoint_000007\n" in stream.getvalue()
    assert stream.getvalue().endswith("stopped: continue with:\n  python train.py\n")


def test_workers_go_to_stdout_and_the_run_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    shower = run_display.make("plain")
    shower.start("demo", "/runs/demo", None)
    shower.output(0, "hello")
    shower.finish("finished", "")
    seen = capsys.readouterr()
    assert seen.out == "(rank 0) hello\n"
    assert seen.err.endswith("] finished\n")


def test_auto_is_plain_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    shower = run_display.make("auto", stream)
    shower.start("demo", "/runs/demo", None)
    shower.finish("finished", "")
    assert stream.getvalue().startswith("[holdfast ")
    assert "\x1b" not in stream.getvalue()


def test_off_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_display.make("off") is None
    shower = OffDisplay()
    shower.start("demo", "/runs/demo", None)
    shower.output(0, "hello")
    shower.finish("failed", "so it is")
    assert capfd.readouterr() == ("", "")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="auto, live, plain, off"):
        run_display.make("loud")


class Told:
    """A painter under a clock of the test's own."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.painter = PlainPainter(Sink(self.stream), Sink(self.stream))
        self.picture = Picture(name="demo", path="/runs/demo")

    def at(self, now: float, *news: OutputLine | DisplayNotice, final: bool = False) -> list[str]:
        self.stream.seek(0)
        self.stream.truncate()
        self.painter.paint(self.picture, list(news), now, final)
        return self.stream.getvalue().splitlines()


def test_progress_is_told_at_once_then_every_ten_seconds_and_at_the_end() -> None:
    told = Told()
    lines = []
    for tick in range(1, 201):
        told.picture.reports = tick
        lines += told.at(tick / 8)
    assert [line.split("report ")[1].split(",")[0] for line in lines] == ["1", "81", "161"]
    assert lines[1].endswith(", 8/s")
    assert told.at(25.1, final=True) == ["[holdfast 25.1s] report 200, 7.92/s"]
    assert told.at(60.0) == []


def test_checkpoints_in_quick_succession_share_a_line() -> None:
    told = Told()
    lines = []
    for tick in range(1, 161):
        told.picture.checkpoint = (f"checkpoint_{tick:06}", tick, tick / 8)
        lines += told.at(tick / 8)
    assert [line.split()[3] for line in lines] == ["checkpoint_000001", "checkpoint_000081"]
    assert "saved checkpoint_000160" in told.at(20.1, DisplayNotice(20.1, "failure", "rank 0 died"))[0]


def test_no_speed_from_before_the_first_report_or_across_lost_reports() -> None:
    told = Told()
    told.at(0.0)
    told.picture.reports = 1
    assert told.at(100.0) == ["[holdfast 100.0s] report 1"]
    told.picture.reports = 50
    told.at(105.0)
    told.picture.reports = 40
    assert told.at(111.0) == ["[holdfast 111.0s] report 40"]


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ("plain", "plain"),
        ("tab\tstays", "tab\tstays"),
        ("\r 10%|#\r 50%|##\r100%|####| 3/3", "100%|####| 3/3"),
        (" 10%|#\r100%|##\r", "100%|##"),
        ("windows\r\n", "windows"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[H\x1b[?25l\x1b[1Aup", "up"),
        ("\x1b]0;title\x07bell\x07 \x1b]8;;http://x\x1b\\link", "bell link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("cut \x1b[", "cut "),
        ("end\x1b", "end"),
        ("c1 \x9b2Jcontrol", "c1 2Jcontrol"),
        (b"bad \xff\xfe".decode(errors="replace"), "bad \ufffd\ufffd"),
        ("", ""),
    ],
)
def test_a_line_cannot_disturb_the_terminal(printed: str, seen: str) -> None:
    assert clean(printed) == seen


def test_colours_stay_where_they_are_wanted_and_never_run_on() -> None:
    assert clean("\x1b[31mred\x1b[1A", colour=True) == "\x1b[31mred\x1b[0m"


def test_a_very_long_line_is_cut_and_says_so() -> None:
    text = shown(lambda shower: shower.output(0, "x" * 1_000_000))
    assert "… (996,000 more characters)\n" in text
    assert len(text) < 6_000


def test_weird_metrics() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compared")

        __hash__ = None  # type: ignore[assignment]

    metrics = {"odd": Odd(), "deep": {"a": {"b": 1}}, "many": [1, 2], "text": "long " * 99, "none": None, "flag": True}
    metrics |= {"nan": float("nan"), "inf": float("-inf"), "big": 10**400, "tokens": 12345678, "tiny": 1.5e-12}
    text = shown(lambda shower: shower.progress(1, metrics))
    assert "report 1, nan nan, inf -inf, big huge, tokens 12,345,678, tiny 1.5e-12, odd <Odd>\n" in text
    for name in ("nan", "inf", "big", "tokens", "tiny"):
        del metrics[name]
    text = shown(lambda shower: shower.progress(1, metrics))
    assert "odd <Odd>, deep {1 keys}, many [2 items], text long long long long lon…, none None, flag True\n" in text


def test_lines_that_come_too_fast_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_display, "MAX_WAITING", 100)
    held = threading.Event()

    class Held(PlainPainter):
        def paint(self, *arguments: object) -> None:
            assert held.wait(10)
            super().paint(*arguments)  # type: ignore[arg-type]

    stream = io.StringIO()
    shower = run_display.BackgroundDisplay(lambda: Held(Sink(stream), Sink(stream)))
    shower.start("demo", "/runs/demo", None)
    for number in range(100_000):
        shower.output(0, str(number))
    shower.failure("rank 0 was killed", "the last try is over")
    held.set()
    shower.finish("failed", "")
    text = stream.getvalue()
    dropped = re.findall(r"warning: ([\d,]+) lines came too fast", text)
    assert dropped
    assert text.count("(rank 0) ") + sum(int(count.replace(",", "")) for count in dropped) == 100_000
    assert "FAILURE: rank 0 was killed\n  the last try is over\n" in text


class Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_and_a_closed_stream_are_survived() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Full(), closed):
        shower = run_display.make("plain", stream)
        shower.start("demo", "/runs/demo", None)
        shower.output(0, "hello")
        shower.finish("finished", "")


def test_a_painter_that_fails_leaves_the_run_alone() -> None:
    def no_painter() -> run_display.Painter:
        raise ImportError("rich is not here")

    shower = run_display.BackgroundDisplay(no_painter)
    shower.start("demo", "/runs/demo", None)
    shower.output(0, "hello")
    shower.finish("finished", "")
    assert isinstance(shower.error, ImportError)


def test_a_reader_that_goes_away_changes_neither_the_run_nor_its_exit_code() -> None:
    script = """
import sys
from holdfast.ui import run_display
shower = run_display.make("plain")
shower.start("demo", "/runs/demo", None)
sys.stdin.readline()
for number in range(1000):
    shower.output(0, "x" * 1000)
shower.finish("finished", "")
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # what is left in a buffer would fail again at the exit
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.close()
        process.stdin.write("go\n")
        process.stdin.close()
        errors = process.stderr.read()
    assert process.returncode == 0
    assert errors.endswith("] finished\n")


def test_nothing_heavy_is_imported_before_a_live_display_is_used() -> None:
    script = "import sys, holdfast.ui.run_display; sys.exit('rich' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0
