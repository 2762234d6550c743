"""Record a kill and its recovery: a real run in a real terminal (tmux), as docs/pictures/kill.svg.

    make pictures

Run it on a quiet machine: it records what it sees. Two terminals are recorded, one above the other: the upper one
trains, in the lower one `kill -9` is typed. Needs tmux.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from terminal_svg import Frame, draw

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parent / "pictures" / "kill.svg"
COLUMNS, ROWS, LOWER = 88, 17, 2
EVERY_S, LIMIT_S, PROMPT = 0.1, 120.0, "$ "
RECOVERY_S, LENGTH_S = 1.5, 15.0  # at most, on a quiet machine
KILLED_AT = 6  # reports
PROCESS = re.compile(r"pid (\d+) ")
REPORTS = re.compile(r"reports +(\d+)")
_SGR = re.compile(r"\x1b\[[\d;]*m")


class Terminal:
    """A tmux server of its own, with one window for each terminal."""

    def __init__(self, directory: Path) -> None:
        self.socket = f"holdfast-film-{os.getpid()}"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["env", f"PATH={path}", f"PS1={PROMPT}", "HISTFILE=", "bash", "--norc", "--noprofile"]
        size = ["-x", str(COLUMNS), "-y", str(ROWS + 8), "-c", str(directory)]
        self.tmux("-f", os.devnull, "new-session", "-d", "-s", "film", "-n", "upper", *size, *shell)
        self.tmux("new-window", "-d", "-t", "film", "-n", "lower", "-c", str(directory), *shell)

    def tmux(self, *args: str) -> str:
        command = ["tmux", "-L", self.socket, *args]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def type(self, window: str, text: str) -> None:
        self.tmux("send-keys", "-t", f"film:{window}", "-l", text)

    def enter(self, window: str) -> None:
        self.tmux("send-keys", "-t", f"film:{window}", "Enter")

    def lines(self, window: str, rows: int) -> list[str]:
        """The last lines that are not empty."""
        seen = self.tmux("capture-pane", "-p", "-e", "-t", f"film:{window}").rstrip("\n").split("\n")
        while seen and not _SGR.sub("", seen[-1]).strip():
            seen.pop()
        kept = seen[-rows:]
        return kept + [""] * (rows - len(kept))

    def frame(self, at: float) -> Frame:
        rule = "\x1b[2m" + "─" * COLUMNS + "\x1b[0m"
        return Frame(at, (*self.lines("upper", ROWS), rule, *self.lines("lower", LOWER)))

    def close(self) -> None:
        self.tmux("kill-server")


def plain(frame: Frame) -> str:
    return _SGR.sub("", "\n".join(frame.lines))


def record(terminal: Terminal) -> list[Frame]:
    """Start the script, kill rank 1 in the middle, and film until the prompt is back."""
    frames: list[Frame] = []
    terminal.type("upper", "python train.py")
    terminal.enter("upper")
    begin, killed = time.monotonic(), False
    while (now := time.monotonic() - begin) < LIMIT_S:
        frames.append(terminal.frame(now))
        text = plain(frames[-1])
        reports = REPORTS.search(text)
        if reports and not killed and int(reports[1]) >= KILLED_AT:
            terminal.type("lower", f"kill -9 {PROCESS.findall(text)[-1]}")
            frames.append(terminal.frame(time.monotonic() - begin))
            time.sleep(0.8)  # to be read
            terminal.enter("lower")
            killed = True
        if text.count(f"\n{PROMPT.strip()}") and killed and "finished" in text:
            return frames
        time.sleep(EVERY_S)
    raise SystemExit(f"the run did not finish within {LIMIT_S:g} s; last seen:\n{plain(frames[-1])}")


def check(frames: list[Frame]) -> None:
    """A recording on a busy machine argues against the product."""

    def first(text: str) -> float:
        return next((frame.at for frame in frames if text in plain(frame)), math.inf)

    recovery, length = first("resumes after step") - first("kill -9") - 0.8, frames[-1].at
    if recovery > RECOVERY_S or length > LENGTH_S:
        raise SystemExit(
            f"{recovery:.1f} s from the kill to the resumption, {length:.0f} s in all: the machine is too busy (load "
            f"{os.getloadavg()[0]:.1f}). Record again when it is quiet, or pass --anyway."
        )


def shorten(frames: list[Frame], longest_s: float, shortest_s: float) -> list[Frame]:
    """Fewer frames: pauses are cut to ``longest_s``, as an import of torch need not be watched, and of frames that
    differ in numbers only there is one every ``shortest_s``."""
    kept: list[Frame] = []
    at = last = 0.0
    for frame in frames:
        if kept and kept[-1].lines == frame.lines:
            continue
        if kept and frame is not frames[-1] and frame.at - last < shortest_s and words(kept[-1]) == words(frame):
            continue
        at += min(frame.at - last, longest_s)
        last = frame.at
        kept.append(Frame(at if kept else 0.0, frame.lines))
    return kept


def words(frame: Frame) -> list[str]:
    return re.findall(r"[a-z]+", plain(frame))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=PICTURE)
    parser.add_argument("--anyway", action="store_true", help="keep the recording of a busy machine")
    args = parser.parse_args()
    if shutil.which("tmux") is None:
        parser.error("tmux is not installed. Install it: apt-get install tmux")
    with tempfile.TemporaryDirectory(prefix="job-") as name:
        shutil.copy(HERE / "film_script.py", Path(name, "train.py"))
        terminal = Terminal(Path(name))
        try:
            frames = record(terminal)
        finally:
            terminal.close()
    if not args.anyway:
        check(frames)
    title = "A worker is killed with kill -9; the run resumes after its last completed step"
    args.to.write_text(draw(shorten(frames, 0.8, 0.5), COLUMNS, title))
    print(f"{args.to}: {len(frames)} frames, {args.to.stat().st_size / 1024:.0f} KB\n{plain(frames[-1])}")


if __name__ == "__main__":
    main()
