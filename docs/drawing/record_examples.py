"""Run examples and draw what they print, as docs/pictures/example-*.svg, for the gallery.

    python docs/drawing/record_examples.py [NAME ...]

A picture has the last lines of a real run, without a terminal: one line for each event.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from terminal_svg import Frame, draw

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, ROWS, LIMIT_S = 92, 16, 600
EXAMPLES = ("demo", "driver_failure", "elastic", "elastic_data", "keep_best", "async_validation", "tune_auto_resume")
MARKS = (
    (re.compile(r"^(\[holdfast [^]]*\])"), "\x1b[36m\\1\x1b[0m"),
    (re.compile(r"(killed by \w+|was lost|is lost|SIGKILL|identical)"), "\x1b[33m\\1\x1b[0m"),
    (re.compile(r"(\(rank \d+\))"), "\x1b[2m\\1\x1b[0m"),
)


def output(name: str, directory: str) -> list[str]:
    storage = [] if name == "demo" else ["--storage-path", f"{directory}/runs"]
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *storage]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": directory},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name}.py ended with {done.returncode}:\n{done.stdout}")
    return done.stdout.replace(f"{directory}/", "").splitlines()


def colour(line: str) -> str:
    line = line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"
    for pattern, marked in MARKS:
        line = pattern.sub(marked, line)
    return line


def main() -> None:
    for name in sys.argv[1:] or EXAMPLES:
        with tempfile.TemporaryDirectory(prefix="holdfast-example-") as directory:
            lines = output(name, directory)
        shown = [f"$ python examples/{name}.py", *(["\x1b[2m…\x1b[0m"] if len(lines) > ROWS else [])]
        frame = Frame(0.0, (*shown, *(colour(line) for line in lines[-ROWS:])))
        picture = PICTURES / f"example-{name.replace('_', '-')}.svg"
        picture.write_text(draw([frame], COLUMNS, f"What examples/{name}.py prints"))
        print(picture, flush=True)


if __name__ == "__main__":
    main()
