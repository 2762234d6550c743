"""``holdfast ui`` at its limits: the first paint with 10,000 trials and with a million reports, from a server that has
just started; the server's memory; and what a run loses by being watched. Needs chromium; ``make paint`` runs it.

"first paint" is the browser's first contentful paint; "data drawn" is when rows or curves are on the page. Where the
machine is busy, the CPU time of the server and of the page's main thread up to the first paint says more than seconds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.web.browsing import Tab, browser_tab
from support.web.large_runs import write_run, write_search
from support.web.web_server import WebServer, web_server

GOAL_S = 0.5
ROUNDS = 5
TRIALS, REPORTS = 10_000, 1_000_000
WATCHED_REPORTS = 4_000
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
JOB = """
import sys, time
from holdfast import train
def loop():
    began = time.perf_counter()
    for step in range(int(sys.argv[2])):
        train.report({"step": step, "loss": 1 / (step + 1)})
        sum(range(20_000))
    print(time.perf_counter() - began, flush=True)
    return time.perf_counter() - began
run_config = train.RunConfig(storage_path=sys.argv[1], name=sys.argv[3], verbose=0)
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


def job_seconds(storage: Path, name: str) -> float:
    command = [sys.executable, "-c", JOB, str(storage), str(WATCHED_REPORTS), name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()[-1])


def measure_watched(storage: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds that a run's reports take alone, and with its page open in a browser, by turns; and the share of a core
    that the server took meanwhile."""
    alone, watched, shares = [], [], []
    for number in range(ROUNDS):
        alone.append(job_seconds(storage, f"alone-{number}"))
        with web_server(storage) as server, browser_tab() as tab:
            tab.page.goto(server.url)
            process = subprocess.Popen(
                [sys.executable, "-c", JOB, str(storage), str(WATCHED_REPORTS), f"watched-{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            with process:
                tab.page.locator("a", has_text=f"watched-{number}").click()
                before, began = cpu_s(server.process), time.perf_counter()
                assert process.stdout is not None
                watched.append(float(process.stdout.read().split()[-1]))
                shares.append((cpu_s(server.process) - before) / (time.perf_counter() - began))
    return alone, watched, shares


def show(name: str, values: list[float], goal: float | None = None) -> bool:
    middle = statistics.median(values)
    met = "" if goal is None else f", goal {goal:g} s: {'met' if middle <= goal else 'MISSED'}"
    print(f"{name:<52} median {middle:6.2f} s, {min(values):.2f} to {max(values):.2f}{met}", flush=True)
    return goal is None or middle <= goal


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        large, small = Path(directory, "large"), Path(directory, "small")
        small.mkdir()
        write_search(large / "trials", TRIALS)
        write_run(large / "reports", REPORTS)
        pages: dict[str, Any] = {
            f"{TRIALS:,} trials": ("/search/0/trials", "document.querySelectorAll('#rows tbody tr').length === 20"),
            f"{REPORTS:,} reports": (
                "/run/0/reports",
                "document.querySelectorAll('.js-plotly-plot .trace').length >= 3",
            ),
        }
        met = True
        for name, (path, drawn) in pages.items():
            times = measure_page(large, path, drawn)
            met &= show(f"{name}: first paint, server just started", times.paint, GOAL_S)
            show(f"{name}: CPU of the server until then", times.server_cpu)
            show(f"{name}: CPU of the page until then", times.page_cpu)
            show(f"{name}: data drawn, server just started", times.data)
            show(f"{name}: data drawn, second visit", times.second_visit)
        used = measure_memory(large)
        print(f"server's memory after 100, 200, 300 and 400 requests: {', '.join(f'{mb:.0f}' for mb in used)} MB")
        print(f"growth from the first hundred requests to the last: {used[-1] - used[0]:+.1f} MB")
        alone, watched, shares = measure_watched(small)
        show(f"{WATCHED_REPORTS:,} reports of a run alone", alone)
        show(f"{WATCHED_REPORTS:,} reports of a run whose page is open", watched)
        slower = (statistics.median(watched) / statistics.median(alone) - 1) * 100
        print(f"a run whose page is open is slower by {slower:+.1f} %")
        print(f"share of a core that its server takes: {statistics.median(shares) * 100:.0f} %")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
