"""Run every benchmark, print the tables, and write them between the markers of a Markdown page."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path

import checkpoint_stall
import cold_start
import linear
import memory
import nodes
import recovery
import remote_storage
import report_rate
import tuning
from measure import Findings, Options, options, parser, progress

BENCHMARKS = {
    "recovery": recovery.run,
    "nodes": nodes.run,
    "cold_start": cold_start.run,
    "report_rate": report_rate.run,
    "checkpoint_stall": checkpoint_stall.run,
    "memory": memory.run,
    "linear": linear.run,
    "remote_storage": remote_storage.run,
    "tuning": tuning.run,
}
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def machine() -> str:
    versions = []
    for name in ("holdfast", "torch", "ray"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{day}, {system}, {', '.join(versions)}."


def run_each(names: list[str], chosen: Options) -> tuple[dict[str, Findings], list[str]]:
    """The findings, and the names of those that broke off: the others are worth having all the same."""
    found: dict[str, Findings] = {}
    broken = []
    for name in names:
        progress(name)
        try:
            found[name] = BENCHMARKS[name](chosen)
            print(found[name].text(), flush=True)
        except Exception:
            traceback.print_exc()
            broken.append(name)
    return found, broken


def write_page(page: Path, found: dict[str, Findings]) -> None:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no lines {BEGIN!r} and {END!r} to write between")
    sections = "\n\n".join(findings.markdown() for findings in found.values())
    page.write_text(
        f"{before}{BEGIN}\n\n{machine()} Medians, with the range in brackets.\n\n{sections}\n\n{END}{after}"
    )


def main() -> None:
    arguments = parser((__doc__ or "").strip())
    arguments.add_argument("--only", default=",".join(BENCHMARKS), help="which benchmarks to run, comma-separated")
    arguments.add_argument("--markdown", type=Path, help="the page to write the tables into")
    args = arguments.parse_args()
    names = args.only.split(",")
    if unknown := [name for name in names if name not in BENCHMARKS]:
        arguments.error(f"--only: no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    found, broken = run_each(names, options(args))
    if args.json:
        args.json.write_text(json.dumps({name: one.as_json() for name, one in found.items()}, indent=1) + "\n")
    if args.markdown:
        write_page(args.markdown, found)
    missed = [f"{name}: {goal.text}" for name, one in found.items() for goal in one.goals if not goal.met]
    for line in [f"broke off: {name}" for name in broken] + [f"missed: {line}" for line in missed]:
        print(line)
    sys.exit(1 if missed or broken else 0)


if __name__ == "__main__":
    main()
