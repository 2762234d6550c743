"""What every benchmark shares: summaries of samples, memory of processes from /proc, and tables to print.

A figure is never shown without its range, and a ratio only ever compares figures of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Summary:
    """Median and range of some samples."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def show(self, unit: str = "", scale: float = 1.0) -> str:
        low, middle, high = (_digits(v * scale) for v in (min(self.values), self.median, max(self.values)))
        return f"{middle}{unit and ' ' + unit} [{low}-{high}]"


def summary(values: Sequence[float]) -> Summary:
    return Summary(tuple(values))


def _digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    return (
        f"{value:,.0f}"
        if size >= 100
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.2f}"
        if size >= 1
        else f"{value:.3f}"
    )


def ratio(value: float, to: float | None) -> str:
    return "" if to is None or to == 0 else f"{_digits(value / to)} x"


@dataclass(frozen=True)
class Goal:
    """A limit that the project set itself, and what was measured."""

    text: str
    measured: str
    met: bool


@dataclass
class Findings:
    """The outcome of one benchmark."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: dict[str, object] = field(default_factory=dict)

    def text(self) -> str:
        widths = [max(len(line[i]) for line in [self.columns, *self.rows]) for i in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [self.columns, ["-" * width for width in widths], *self.rows]
        ]
        goals = [f"{'met   ' if goal.met else 'MISSED'}  {goal.text}: {goal.measured}" for goal in self.goals]
        return "\n".join([f"\n{self.title}", *lines, *goals, *self.notes])

    def markdown(self) -> str:
        lines = ["| " + " | ".join(line) + " |" for line in [self.columns, ["---"] * len(self.columns), *self.rows]]
        goals = [f"- {'Met' if g.met else '**Missed**'}: {g.text}. Measured: {g.measured}." for g in self.goals]
        parts = [f"### {self.title}", "\n".join(lines), "\n".join(goals), "\n".join(self.notes)]
        return "\n\n".join(part for part in parts if part)

    def as_json(self) -> dict[str, object]:
        goals = [{"goal": g.text, "measured": g.measured, "met": g.met} for g in self.goals]
        table = {"title": self.title, "columns": self.columns, "rows": self.rows, "goals": goals, "notes": self.notes}
        return {**table, "samples": self.samples}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Findings:
        """What ``as_json`` gave, read again, for its table."""
        goals = [Goal(goal["goal"], goal["measured"], goal["met"]) for goal in found["goals"]]
        return cls(found["title"], found["columns"], found["rows"], goals, found["notes"], found["samples"])


@dataclass(frozen=True)
class Options:
    systems: tuple[str, ...]
    repeats: int
    seed: int
    work_dir: Path | None


def parser(description: str) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--systems", default="holdfast,torchrun,ray", help="which of them to run, comma-separated")
    result.add_argument("--repeats", type=int, default=5, help="samples behind each median")
    result.add_argument("--seed", type=int, default=0, help="seed of the moments at which a worker is killed")
    result.add_argument("--work-dir", type=Path, help="a directory on the disk to measure; default: the temp directory")
    result.add_argument("--json", type=Path, help="also write all samples to this file")
    return result


def options(args: argparse.Namespace) -> Options:
    return Options(tuple(args.systems.split(",")), args.repeats, args.seed, args.work_dir)


def main(description: str | None, run: Callable[[Options], Findings]) -> None:
    """The command line of one benchmark: measure, print, and exit with 1 if a goal was missed."""
    args = parser((description or "").splitlines()[0]).parse_args()
    findings = run(options(args))
    print(findings.text())
    if args.json:
        args.json.write_text(json.dumps(findings.as_json(), indent=1) + "\n")
    sys.exit(0 if all(goal.met for goal in findings.goals) else 1)


def progress(text: str) -> None:
    print(f"  ... {text}", file=sys.stderr, flush=True)


def marked_processes(mark: str) -> list[int]:
    """Every process whose environment at start held ``mark``: a job's whole tree, re-parented daemons included."""
    wanted, found = mark.encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile, or another user's
                continue
            if wanted in variables:
                found.append(int(entry))
    return sorted(found)


def parent(pid: int) -> int | None:
    """The parent of a process; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def memory(pid: int, kind: str = "Pss") -> int:
    """Bytes of a process's memory: ``Pss`` splits shared pages among their users, ``Rss`` does not. 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    return 0


def threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
