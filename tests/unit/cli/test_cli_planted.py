"""Somebody has put FIFOs, devices, giants and nonsense into a run: commands end, and say what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import journal, metrics, values
from holdfast.store.regular import WHOLE
from holdfast.store.sealed import seal, unseal
from support.cli.cli_shell import holdfast, holdfast_json

COMMANDS = ("ls STORAGE", "show RUN", "verify RUN", "checkpoints RUN", "logs RUN", "watch RUN", "stop RUN")
ONE_AFTER_THE_OTHER = """
import sys
from holdfast.cli.main import main
for command in sys.argv[1:]:
    print(f"<{command}>", flush=True)
    print(f"<{main(command.split())}>", flush=True)
"""
IN_HASTE = """
import sys
sys.setswitchinterval(1e-6)
from holdfast.cli.main import main
sys.exit(main(["ls", sys.argv[1]]))
"""
TIMES: list[Any] = [1e300, -1e300, float("nan"), float("inf"), -5.0, True, 10**400]


@pytest.fixture
def run(finished: Path) -> Path:
    """With another one beside it."""
    storage = finished.parent / "storage"
    storage.mkdir()
    shutil.copytree(finished, storage / "other")
    return finished.rename(storage / "run")


def last(run: Path, pattern: str) -> Path:
    return max(run.glob(pattern))


def fifo(pattern: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = last(run, pattern)
        path.unlink()
        os.mkfifo(path)

    return plant


def device(pattern: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = last(run, pattern)
        path.unlink()
        path.symlink_to("/dev/zero")

    return plant


def directory(pattern: str) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = last(run, pattern)
        path.unlink()
        path.mkdir()

    return plant


def giant(pattern: str) -> Callable[[Path], None]:
    """Sparse: 3 GB without a newline."""
    return lambda run: os.truncate(last(run, pattern), 3 << 30)


def manifest_says(**fields: Any) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = last(run, "checkpoints/*.json")
        path.write_bytes(seal(values.encode({**values.decode(unseal(path.read_bytes()[:-1]) or b""), **fields})))

    return plant


def journal_says(seconds: Any, kind: str = "Nothing", **body: Any) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        path = last(run, "journal/*")
        with path.open("ab") as file:
            file.write(journal.line(len(path.read_bytes().splitlines()) + 1, seconds, kind, body))

    return plant


def metrics_say(line: bytes) -> Callable[[Path], None]:
    def plant(run: Path) -> None:
        with last(run, "metrics/*/rank-0.jsonl").open("ab") as file:
            file.write(line)

    return plant


FILES = ["run.json", "lease.json", "journal/*", "checkpoints/*.json", "metrics/*/rank-0.jsonl", "logs/*/rank-0.log"]
PLANTED: dict[str, Callable[[Path], None]] = {
    **{f"a FIFO as {file}": fifo(file) for file in FILES},
    **{f"a device as {file}": device(file) for file in FILES},
    **{f"a directory as {file}": directory(file) for file in FILES},
    **{f"a giant {file}": giant(file) for file in FILES if "log" not in file},
    **{f"a manifest of {time!s:.8}": manifest_says(created=time) for time in TIMES},
    **{f"a record of {time!s:.8}": journal_says(time) for time in TIMES},
    **{f"a report of {time!s:.8}": metrics_say(metrics.line(5, time, {"a": 1})) for time in TIMES},
    "an end of no kind": journal_says(0.0, "RunEnded", outcome=[], reason=5),
    "a start of no kind": journal_says(0.0, "GroupStarted", generation="x"),
    "a report of no number": metrics_say(b'{"index":"a","time":1,"metrics":{}}\n'),
    "a report of no metrics": metrics_say(b'{"index":5,"time":1,"metrics":[]}\n'),
    "a report of 60 MB": metrics_say(metrics.line(5, time.time(), {"blob": "x" * (60 << 20)})),
    "deep nesting": metrics_say(seal(b'{"index":5,"time":1,"metrics":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}")),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_no_command_hangs_or_crashes(run: Path, plant: Callable[[Path], None]) -> None:
    plant(run)
    commands = [command.replace("STORAGE", str(run.parent)).replace("RUN", str(run)) for command in COMMANDS]
    process = python(ONE_AFTER_THE_OTHER, *commands)
    assert process.returncode == 0, process.stdout
    assert len(process.stdout) < 100_000
    assert "other  finished" in process.stdout
    assert "Traceback" not in process.stdout
    codes = [line for line in process.stdout.splitlines() if re.fullmatch(r"<\d+>", line)]
    assert len(codes) == len(COMMANDS)
    assert set(codes) <= {"<0>", "<1>"}, process.stdout


def test_many_runs_are_listed_by_threads_in_haste(run: Path) -> None:
    for number in range(4):
        shutil.copytree(run, run.with_name(f"run-{number}"))
    for _ in range(12):
        process = python(IN_HASTE, str(run.parent))
        assert process.returncode == 0, process.stdout
        assert process.stdout.count("finished") == 6


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def test_what_is_not_a_regular_file_is_named_as_damage(run: Path) -> None:
    device("journal/*")(run)
    found = holdfast_json("verify", run, code=1)
    damage = [damage for check in found["checks"] for damage in check["damage"]]
    assert {
        "path": "journal/000001.jsonl",
        "where": "file",
        "what": "cannot be read: Not a regular file",
    } in damage


def test_a_giant_run_json_is_not_read(run: Path) -> None:
    giant("run.json")(run)
    assert f"more than {WHOLE} bytes" in holdfast("verify", run, code=1).stdout


def test_a_run_behind_links_is_read_as_ever(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.parent)
    before = holdfast("verify", link / "run").stdout
    moved = run.rename(tmp_path / "moved")
    run.symlink_to(moved)
    (moved / "run.json").rename(tmp_path / "elsewhere.json")
    (moved / "run.json").symlink_to(tmp_path / "elsewhere.json")
    assert holdfast("verify", run).stdout == before
