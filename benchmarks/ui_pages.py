"""``holdfast ui`` at its limits: the first paint with 10,000 trials, with a run of a million reports, 10,000 commits,
killed attempts and logs, and with a list of 500 runs, from a server that has just started; its memory; and what
a run loses by being watched. Needs chromium; ``make paint`` runs it, and ``--pages`` measures the first paint alone.

"first paint" is the browser's first contentful paint; "data drawn" is when rows or curves are on the page. Where the
machine is busy, the CPU time of the server and of the page's main thread up to the first paint says more than seconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.web.browsing import Tab, browser_tab
from support.web.large_runs import write_run, write_search
from support.web.web_server import WebServer, web_server

GOAL_S = 0.5
ROUNDS = 5
TRIALS, REPORTS, RUNS = 10_000, 1_000_000, 500
ATTEMPTS, COMMITS, LOG_LINES = 10, 10_000, 100_000  # of the run; lines of each rank in each attempt
WATCHED_STEPS = 1_000
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
JOB = """
import pathlib, sys, time
from holdfast import train
storage, name, steps = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def loop():
    train.report({"step": -1, "loss": 1.0})
    while not (storage / f"{name}.go").exists():
        time.sleep(0.01)
    began = time.perf_counter()
    for step in range(steps):
        sum(range(400_000))
        train.report({"step": step, "loss": 1 / (step + 1)})
    return time.perf_counter() - began
run_config = train.RunConfig(storage_path=str(storage), name=name, verbose=0)
print(train.DataParallelTrainer(loop, run_config=run_config).fit().return_value)
"""


@dataclass
class PageTimes:
    """Of each round."""

    paint: list[float] = field(default_factory=list)
    server_cpu: list[float] = field(default_factory=list)  # up to the first paint
    page_cpu: list[float] = field(default_factory=list)
    data: list[float] = field(default_factory=list)
    second_visit: list[float] = field(default_factory=list)


def cpu_s(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_cpu_s(session: Any) -> float:
    """What the page's main thread has done since the session enabled its counters."""
    found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def first_paint(tab: Tab) -> float:
    while (paint := tab.page.evaluate(PAINT)) is None:
        tab.page.wait_for_timeout(5)
    return float(paint) / 1000


def data_drawn(tab: Tab, url: str, drawn: str) -> float:
    """Seconds until the data are on the page."""
    began = time.perf_counter()
    tab.page.goto(url, wait_until="commit")
    tab.awaits(drawn)
    return time.perf_counter() - began


def measure_page(storage: Path, path: str, drawn: str) -> PageTimes:
    """Of ``ROUNDS`` servers that have just started."""
    times = PageTimes()
    for _ in range(ROUNDS):
        with web_server(storage) as server, browser_tab() as tab:
            tab.page.context.add_cookies(
                [{"name": f"holdfast_ui_{server.port}", "value": server.token, "url": server.origin}]
            )
            session = tab.page.context.new_cdp_session(tab.page)
            session.send("Performance.enable")
            before, began = cpu_s(server.process), time.perf_counter()
            tab.page.goto(f"{server.origin}{path}", wait_until="commit")
            times.paint.append(first_paint(tab))
            times.server_cpu.append(cpu_s(server.process) - before)
            times.page_cpu.append(page_cpu_s(session))
            tab.awaits(drawn)
            times.data.append(time.perf_counter() - began)
            tab.page.goto("about:blank")
            times.second_visit.append(data_drawn(tab, f"{server.origin}{path}", drawn))
    return times


def memory_mb(server: WebServer) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def measure_memory(storage: Path) -> list[float]:
    """After the first look at everything, and after each hundred more."""
    found = []
    with web_server(storage) as server:
        while server.get("/data/curves/0/reports").json()["share"] < 1:
            pass
        for _ in range(4):
            for _ in range(25):
                for path in (
                    "/",
                    "/run/0/reports",
                    "/data/curves/0/reports",
                    "/data/trials/0/trials?sort=value&q=relu",
                ):
                    assert server.get(path).status == 200
            found.append(memory_mb(server))
    return found


@contextlib.contextmanager
def waiting_job(storage: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has reported once, and does its steps when the file NAME.go appears."""
    command = [sys.executable, "-c", JOB, str(storage), name, str(WATCHED_STEPS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def seconds_of_steps(storage: Path, name: str, process: subprocess.Popen[str]) -> float:
    (storage / f"{name}.go").touch()
    said, _ = process.communicate(timeout=300)
    return float(said.split()[-1])


def measure_watched(storage: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds that the steps of a run take alone, and with its page open in a browser, by turns; and the share of a
    core that the server took meanwhile. The page is drawn before the first step."""
    alone, watched, shares = [], [], []
    for number in range(ROUNDS):
        name = f"alone-{number}"
        with waiting_job(storage, name) as process:
            alone.append(seconds_of_steps(storage, name, process))
        name = f"watched-{number}"
        with web_server(storage) as server, browser_tab() as tab, waiting_job(storage, name) as process:
            tab.page.goto(server.url)
            tab.page.locator("a", has_text=name).click()
            tab.awaits("document.querySelectorAll('.js-plotly-plot').length >= 1")
            before, began = cpu_s(server.process), time.perf_counter()
            watched.append(seconds_of_steps(storage, name, process))
            shares.append((cpu_s(server.process) - before) / (time.perf_counter() - began))
    return alone, watched, shares


def show(name: str, values: list[float], goal: float | None = None) -> bool:
    middle = statistics.median(values)
    met = "" if goal is None else f", goal {goal:g} s: {'met' if middle <= goal else 'MISSED'}"
    print(f"{name:<52} median {middle:6.2f} s, {min(values):.2f} to {max(values):.2f}{met}", flush=True)
    return goal is None or middle <= goal


def show_watched(storage: Path) -> None:
    alone, watched, shares = measure_watched(storage)
    show(f"{WATCHED_STEPS:,} steps of a run alone", alone)
    show(f"{WATCHED_STEPS:,} steps of a run whose page is open", watched)
    slower = (statistics.median(watched) / statistics.median(alone) - 1) * 100
    print(f"a run whose page is open is slower by {slower:+.1f} %")
    print(f"share of a core that its server takes: {statistics.median(shares) * 100:.0f} %")


def main() -> int:
    """``--watched`` measures the last part alone, and ``--pages`` the first."""
    if "--watched" in sys.argv:
        with tempfile.TemporaryDirectory() as directory:
            show_watched(Path(directory))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        large, many, small = Path(directory, "large"), Path(directory, "many"), Path(directory, "small")
        small.mkdir()
        write_search(large / "trials", TRIALS)
        write_run(large / "reports", REPORTS, ATTEMPTS, COMMITS, LOG_LINES)
        write_run(many / "run-000", 200, 2, 20)
        for number in range(1, RUNS):
            shutil.copytree(many / "run-000", many / f"run-{number:03d}")
        rows = "document.querySelectorAll('#rows tbody tr').length"
        curves = "document.querySelectorAll('.js-plotly-plot .trace').length >= 3"
        pages: dict[str, Any] = {
            f"{TRIALS:,} trials": (large, "/experiment/0/trials", f"{rows} === 20"),
            f"{REPORTS:,} reports": (large, "/run/0/reports", curves),
            f"{RUNS} runs": (many, "/", f"{rows} === {RUNS}"),
        }
        met = True
        for name, (storage, path, drawn) in pages.items():
            times = measure_page(storage, path, drawn)
            met &= show(f"{name}: first paint, server just started", times.paint, GOAL_S)
            show(f"{name}: CPU of the server until then", times.server_cpu)
            show(f"{name}: CPU of the page until then", times.page_cpu)
            show(f"{name}: data drawn, server just started", times.data)
            show(f"{name}: data drawn, second visit", times.second_visit)
        if "--pages" in sys.argv:
            return 0 if met else 1
        used = measure_memory(large)
        print(f"server's memory after 100, 200, 300 and 400 requests: {', '.join(f'{mb:.0f}' for mb in used)} MB")
        print(f"growth from the first hundred requests to the last: {used[-1] - used[0]:+.1f} MB")
        show_watched(small)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
