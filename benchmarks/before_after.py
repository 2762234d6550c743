"""Two commits side by side: recovery, cold start, reports and tuning, in turns, so that a slow spell meets both.

The commit before is checked out into a temporary worktree. The benchmarks and jobs are those of this checkout, so that
only the product differs. ``before_after.py`` compares with the driver before it became a kernel and a runtime. Each
round measures everything on both commits; no round begins that is not expected to end within ``--minutes``. The CPU
time is that of all processes of a benchmark, imports included: other load on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measure import progress, summary

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIMIT_S = 900.0
BEFORE_THE_KERNEL = "ca1b1b8"  # the last commit before docs/decisions/0019-the-driver-is-a-kernel.md


Found = dict[str, dict[str, list[float]]]  # the samples of each figure, by side


class Subject(NamedTuple):
    script: str
    arguments: tuple[str, ...]
    figures: dict[str, Callable[[dict[str, Any]], list[float]]]  # from the samples
    more_is_better: bool


def _tuning(title: str) -> Callable[[dict[str, Any]], list[float]]:
    return lambda samples: list(samples[title]["holdfast"])


SUBJECTS = {
    "recovery": Subject(
        "recovery.py",
        (),
        {"kill to the first new step, s": lambda s: [r["to_first_step"] for r in s["holdfast"]]},
        False,
    ),
    "cold start": Subject("cold_start.py", (), {"script to train function, s": lambda s: list(s["holdfast"])}, False),
    "reports": Subject(
        "report_rate.py",
        (),
        {
            "report() calls a second": lambda s: list(s["holdfast"]["calls"]),
            "reports a second, sustained": lambda s: [s["holdfast"]["sustained"]],
        },
        True,
    ),
    "trials": Subject("tuning.py", ("trials",), {"trials a second": _tuning("trivial trials, a process each")}, True),
    "results": Subject(
        "tuning.py", ("results-fifo",), {"results of a trial a second": _tuning("results of one trial")}, True
    ),
    "restore": Subject(
        "tuning.py", ("restore",), {"restore of 1,000 trials, s": _tuning("restore of 1,000 finished trials")}, False
    ),
}


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-before-") as directory:
        place = Path(directory) / "source"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", place, commit], check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", place], check=True)


def measure(name: str, source: Path) -> dict[str, list[float]]:
    subject = SUBJECTS[name]
    with tempfile.TemporaryDirectory(prefix="holdfast-") as work:
        out = Path(work) / "samples.json"
        options = ["--systems", "holdfast", "--repeats", "1", "--json", str(out)]
        command = [sys.executable, HERE / subject.script, *subject.arguments, *options]
        environment = {**os.environ, "PYTHONPATH": str(source / "src"), "BENCHMARK_SOURCE": str(source / "src")}
        spent = _cpu_s()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        spent = _cpu_s() - spent
        if not out.exists():  # a missed goal is not a failure here
            raise SystemExit(f"{subject.script} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        samples = json.loads(out.read_text())["samples"]
    return {**{what: figure(samples) for what, figure in subject.figures.items()}, f"{name}: CPU s": [spent]}


def _cpu_s() -> float:
    """Of all processes that were started here and have ended, and of those that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(found: Found, commit: str) -> str:
    better = {what: subject.more_is_better for subject in SUBJECTS.values() for what in subject.figures}
    rows = [["", f"before ({commit})", "after", "after against before"], ["---"] * 4]
    for what, sides in found.items():
        before, after = summary(sides["before"]), summary(sides["after"])
        quicker = after.median / before.median if better.get(what) else before.median / after.median
        rows.append([what, before.show(), after.show(), f"{quicker:.2f} times as fast"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def measure_all(names: Sequence[str], sides: Mapping[str, Path], found: Found) -> None:
    """A round. The sides take turns at being first."""
    for name in names:
        for side in sides:
            for what, values in measure(name, sides[side]).items():
                found.setdefault(what, {"before": [], "after": []})[side] += values
                progress(f"{what}, {side}: {', '.join(f'{value:.3g}' for value in values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", default=BEFORE_THE_KERNEL, help=f"a commit ({BEFORE_THE_KERNEL})")
    parser.add_argument("--only", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--repeats", type=int, default=5, help="the most rounds")
    parser.add_argument("--minutes", type=float, default=9.0)
    options = parser.parse_args()
    found: Found = {}
    began, loads = time.monotonic(), [os.getloadavg()[0]]
    with checked_out(options.before) as old:
        sides = {"before": old, "after": ROOT}
        for round_ in range(options.repeats):
            took = (time.monotonic() - began) / max(1, round_)
            if round_ and time.monotonic() - began + took > 60 * options.minutes:
                break
            order = sorted(sides, reverse=round_ % 2 == 0)
            measure_all(options.only, {side: sides[side] for side in order}, found)
            loads.append(os.getloadavg()[0])
    print(table(found, options.before))
    print(f"\n{len(loads) - 1} rounds, {time.monotonic() - began:.0f} s, load {min(loads):.1f} to {max(loads):.1f}")


if __name__ == "__main__":
    main()
