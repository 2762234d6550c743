"""Run every benchmark, one after the other, and write their tables into docs/benchmarks.md.

The convention: a benchmark is a program here that takes the options of ``measure.parser`` and writes what it found to
the file that ``--json FILE`` names, as ``Findings.as_json`` has it: title, columns, rows, goals, notes, samples. Its
table stands on the page between ``<!-- results: NAME -->`` and ``<!-- end of results: NAME -->``, and nothing else of
the page is touched. Each runs in a process of its own, so one that breaks off takes no other with it, and its table
stays as it was. The exit code is 1 if one broke off or missed a goal.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import Findings, parser, progress

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BENCHMARKS = (
    "recovery",
    "live_recovery",
    "frameworks",
    "nodes",
    "cold_start",
    "report_rate",
    "checkpoint_stall",
    "memory",
    "linear",
    "remote_storage",
    "tuning",
    "ray_engine",
    "data_loading",
)
LIMIT_S = 2 * 3600.0


def machine() -> str:
    versions = []
    for name in ("holdfast", "torch", "ray", "optuna"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{day}, {system}, {', '.join(versions)}"


def run(name: str, given: list[str], file: Path) -> str:
    """Why it broke off; empty if there are results, with goals missed or not."""
    command = [sys.executable, str(HERE / f"{name}.py"), *given, "--json", str(file)]
    try:
        code = subprocess.run(command, timeout=LIMIT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"it took more than {LIMIT_S / 3600:g} hours"
    if not file.exists():
        return f"it ended with code {code} and left no results"
    found = json.loads(file.read_text())
    file.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return ""


def section(found: dict[str, Any]) -> str:
    table = Findings.from_json(found).markdown()
    return f"{table}\n\nMedians, with the range in brackets. {found['machine']}." if "machine" in found else table


def markers(name: str) -> tuple[str, str]:
    return f"<!-- results: {name} -->", f"<!-- end of results: {name} -->"


def put(page: str, name: str, text: str) -> str:
    """The page with another table between the markers of a benchmark."""
    begin, end = markers(name)
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"the page has no lines {begin} and {end} to write between")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def write(page: Path, results: dict[str, dict[str, Any]]) -> None:
    text = page.read_text()
    for name, found in results.items():
        text = put(text, name, section(found))
    page.write_text(text)
    if page == PAGE:
        subprocess.run([sys.executable, str(PAGE.parent / "drawing" / "bar_charts.py")], timeout=60, check=True)


def arguments() -> argparse.ArgumentParser:
    result = parser((__doc__ or "").partition("\n")[0])
    result.add_argument("--only", default=",".join(BENCHMARKS), help="which benchmarks, comma-separated")
    result.add_argument("--page", type=Path, default=PAGE, help="where the tables are written (default: the docs)")
    result.add_argument("--no-page", action="store_true", help="write no page; the tables are printed all the same")
    result.add_argument("--results", type=Path, metavar="DIR", help="keep NAME.json of each benchmark there")
    result.add_argument("--render", action="store_true", help="measure nothing: write the tables of --results DIR")
    return result


def passed_on(args: argparse.Namespace) -> list[str]:
    given = ["--systems", args.systems, "--repeats", str(args.repeats), "--seed", str(args.seed)]
    return [*given, "--work-dir", str(args.work_dir)] if args.work_dir else given


def measure_each(names: list[str], args: argparse.Namespace, directory: Path) -> list[str]:
    """What went wrong. Each table is written as soon as it is there: the whole takes hours."""
    wrong = []
    for name in names:
        file = directory / f"{name}.json"
        if not args.render:
            progress(name)
            file.unlink(missing_ok=True)
            why = run(name, passed_on(args), file)
            if why:
                wrong.append(f"broke off: {name}: {why}")
                continue
        found = json.loads(file.read_text())
        if not args.no_page:
            write(args.page, {name: found})
        wrong += [f"missed: {name}: {goal['goal']}" for goal in found["goals"] if not goal["met"]]
    return wrong


def main() -> None:
    options = arguments()
    args = options.parse_args()
    names = args.only.split(",")
    if unknown := [name for name in names if name not in BENCHMARKS]:
        options.error(f"--only: no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if args.render and args.results is None:
        options.error("--render needs --results DIR, with the files of an earlier run")
    if args.render:
        names = [name for name in names if (args.results / f"{name}.json").exists()]
    if args.results is not None:
        args.results.mkdir(parents=True, exist_ok=True)
    if not args.no_page:
        for name in names:
            put(args.page.read_text(), name, "")  # a page that cannot be written is told before hours of work
    with tempfile.TemporaryDirectory() as temporary:
        directory = args.results or Path(temporary)
        wrong = measure_each(names, args, directory)
        if args.json:
            files = [directory / f"{name}.json" for name in names]
            every = {file.stem: json.loads(file.read_text()) for file in files if file.exists()}
            args.json.write_text(json.dumps(every, indent=1) + "\n")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
