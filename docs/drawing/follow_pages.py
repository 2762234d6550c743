"""Follow pages literally, as a new user would: a fresh environment, what the page installs, its blocks, its kill.

    PYTHONPATH=tests python docs/drawing/follow_pages.py [PAGE ...]

Prints how long it takes from the installation to the recovered run. Two things differ from what a reader does: Holdfast
comes from this checkout instead of the registry, and torch is installed first and pinned, because the newest one comes
with gigabytes of CUDA.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from support.docs.page_blocks import SHELL, Block, blocks
from support.repository import ROOT

TORCH = os.environ.get("TORCH", "torch==2.13.0")
HOROVOD = os.environ.get("HOROVOD", "")  # a wheel: to build one takes minutes, and who comes from Horovod has it
LIMIT_S, GOAL_S = 900.0, 300.0
_INSTALL = re.compile(r"^pip install 'holdfast\[(\w+)\]'$", re.MULTILINE)


@dataclass(frozen=True)
class Followed:
    recovered: str  # what the last command prints if the run has recovered
    has: tuple[str, ...] = ()  # what a reader who comes from there has installed already
    leaves_out: str = ""  # commands that are not part of the way to a recovered run


PAGES = {
    "README.md": Followed("starting workers: from checkpoint"),
    "docs/getting-started.md": Followed("of 40 epochs", leaves_out="holdfast drill"),
    "docs/coming-from/torchrun.md": Followed("1 of 1 faults passed", has=(TORCH, "numpy")),
    "docs/coming-from/ray.md": Followed("1 of 1 faults passed", has=(TORCH, "ray[train]")),
    "docs/coming-from/optuna.md": Followed("resumes with [1-9]", has=("optuna",)),
    "docs/coming-from/lightning.md": Followed("1 of 1 faults passed", has=(TORCH, "lightning")),
    **(
        {
            "docs/coming-from/horovod-elastic.md": Followed(
                "1 of 1 faults passed",
                has=(TORCH, HOROVOD, "numpy"),
                leaves_out="horovodrun",  # needs hosts that it reaches by ssh
            )
        }
        if HOROVOD
        else {}
    ),
    "docs/coming-from/transformers.md": Followed("1 of 1 faults passed", has=(TORCH, "transformers", "accelerate")),
}


class NotAsThePageSaysError(Exception):
    """A command failed, or the run did not recover."""


class Reader:
    """Types what the page says."""

    def __init__(self, home: Path) -> None:
        self.work = home / "work"
        temp, venv = home / "temp", home / "venv"
        for directory in (self.work, temp):
            directory.mkdir()
        kept = {name: os.environ[name] for name in ("LANG",) if name in os.environ}
        path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "HOME": os.environ["HOME"], "TMPDIR": str(temp), "PATH": path}
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=LIMIT_S)

    def types(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-c", commands],
            cwd=self.work,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise NotAsThePageSaysError(f"{commands}exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def installs(self, *packages: str) -> None:
        self.types("pip install --quiet --disable-pip-version-check " + " ".join(f"'{one}'" for one in packages))


def follow(page: str, followed: Followed, home: Path) -> tuple[float, float]:
    """Seconds from the start of the installation to its end, and to the recovered run."""
    reader, begin, installed, said = Reader(home), 0.0, 0.0, ""
    if followed.has:
        reader.installs(*followed.has)
    for block in blocks(ROOT / page):
        if block.file:
            (reader.work / block.file).write_text(block.code)
        elif extra := _INSTALL.search(block.code):
            begin = time.monotonic()
            if extra[1] in ("torch", "lightning", "transformers", "horovod"):
                reader.installs(TORCH)
            reader.installs(f"holdfast[{extra[1]}] @ {ROOT.as_uri()}")
            installed = time.monotonic() - begin
        elif typed := _commands(block, followed):
            started = time.monotonic()
            said = reader.types(typed)
            print(f"{page}:{block.line}: {time.monotonic() - started:.0f} s", flush=True)
    if not re.search(followed.recovered, said):
        raise NotAsThePageSaysError(f"the last command did not print {followed.recovered!r}:\n{said}")
    return installed, time.monotonic() - begin


def _commands(block: Block, followed: Followed) -> str:
    if block.language not in SHELL or (followed.leaves_out and block.code.startswith(followed.leaves_out)):
        return ""
    return block.code


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"by default: {' '.join(PAGES)}")
    pages = parser.parse_args().pages or list(PAGES)
    rows = []
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="holdfast-reader-") as home:
            try:
                installed, recovered = follow(page, PAGES[page], Path(home))
            except NotAsThePageSaysError as error:
                print(f"{page}: {error}", flush=True)
                rows.append(f"| {page} | **failed** | |")
                continue
        met = "" if recovered <= GOAL_S else f", **more than {GOAL_S:g} s**"
        rows.append(f"| {page} | {installed:.0f} s | {recovered:.0f} s{met} |")
        print(rows[-1], flush=True)
    print("\n| page | installed | recovered run |\n|---|---|---|\n" + "\n".join(rows))
    sys.exit(any("**" in row for row in rows))


if __name__ == "__main__":
    main()
