"""Storage on an S3 server: transfers beside bare obstore, the loop's stall beside Ray Train, a long past, recovery.

All on one machine and through one server on loopback, so only the ratios say anything.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import obstore
import xxhash

from distance import farther_away
from holdfast.node.node_checkpoints import NodeCheckpoints
from holdfast.store.location import Location
from holdfast.store.manifests import FORMAT, Manifest, manifest_line
from measure import Findings, Goal, Options, Summary, main, progress, summary
from peers import Job, available, work_directory
from recovery import CHECKPOINT_EVERY, STEP_S, kill_once
from remote_past import PastRun, seconds
from s3_server import S3Server, s3_server

SIZE = 1_000_000_000
PIECE = 4 << 20
PAUSE_S = 4.0
PASTS = ((10, 10), (1000, 10), (1000, 1000))  # checkpoints that there ever were, and that are kept
ROUND_TRIP_S = 0.02  # of a store in the same region: S3 takes this long for the first byte, or longer
Samples = dict[str, list[float]]


def add(samples: Samples, name: str, value: float) -> None:
    samples.setdefault(name, []).append(value)
    progress(f"{name}: {value:.4g}")


def transfers(server: S3Server, work: Path, repeats: int, samples: Samples) -> None:
    """A checkpoint of one file, from a node to storage with its hashing, and from there to a node that verifies it."""
    bucket = server.make_bucket()
    store, source = server.store(bucket), work / "source"
    write_random(source, SIZE)
    for number in range(repeats + 1):
        steps: list[tuple[str, Callable[[], float]]] = [
            ("obstore put", lambda: seconds(lambda: obstore.put(store, "bare", source))),
            ("upload", lambda: upload(bucket, work / "sender", source)),
            ("obstore get", lambda: seconds(lambda: bare_get(store, "bare", work / "bare"))),
            ("download", lambda: download(bucket, work / "sender", work / "receiver")),
        ]
        if number % 2:  # who goes first has a quieter disk, or a busier one
            steps = [steps[1], steps[0], steps[3], steps[2]]
        for name, step in steps:
            value = step()
            if number:  # the first round warms up
                add(samples, name, value)
        (work / "bare").unlink()
        for home in ("sender", "receiver"):
            shutil.rmtree(work / home)
        obstore.delete(store, [meta["path"] for batch in obstore.list(store) for meta in batch])
    source.unlink()


def depot_at(bucket: str, home: Path) -> NodeCheckpoints:
    return NodeCheckpoints(home, lambda: Location.parse("run", f"s3://{bucket}/run").open(600.0))


def upload(bucket: str, home: Path, source: Path) -> float:
    """From the moment at which the file is staged."""
    depot = depot_at(bucket, home)
    staged = depot.layout.shard_dir(1, 0, 0) / "state.pt"
    staged.parent.mkdir(parents=True)
    os.link(source, staged)

    def work() -> None:
        entries = depot.seal(1, 0, 0)
        manifest = Manifest(FORMAT, "big", 1, 0, 1, 1, created=0.0, metrics={}, files=entries)
        depot.gather("big", 1, 0, manifest_line(manifest), [(0, ["state.pt"])])
        depot.upload("big")

    taken = seconds(work)
    depot.close(over=False)
    return taken


def download(bucket: str, sender: Path, receiver: Path) -> float:
    line = depot_at(bucket, sender).layout.manifest_file("big").read_bytes()
    depot = depot_at(bucket, receiver)
    taken = seconds(lambda: depot.fetch("big", line, stored=True))
    depot.close(over=False)
    return taken


def bare_get(store: Any, key: str, target: Path) -> None:
    with open(target, "wb", buffering=0) as file:
        for chunk in obstore.get(store, key).stream():
            file.write(chunk)


def digests(repeats: int, samples: Samples) -> None:
    """In memory that the processor's caches do not hold."""
    source = memoryview(bytearray(random.Random(0).randbytes(PIECE) * (SIZE // PIECE)))
    target = memoryview(bytearray(len(source)))

    def copy() -> None:
        for start in range(0, len(source), PIECE):
            target[start : start + PIECE] = source[start : start + PIECE]

    def digest() -> None:
        hasher = xxhash.xxh3_128()
        for start in range(0, len(source), PIECE):
            hasher.update(source[start : start + PIECE])

    copy()  # touches every page
    for _ in range(repeats):
        add(samples, "copy", seconds(copy) * SIZE / len(source))
        add(samples, "digest", seconds(digest) * SIZE / len(source))


def stalls(systems: Sequence[str], server: S3Server, work: Path, repeats: int, samples: Samples) -> None:
    url = f"s3://{server.make_bucket()}/runs?endpoint_override={server.endpoint.partition('://')[2]}&scheme=http"
    for system in systems:
        options = {"size": SIZE, "checkpoints": repeats, "upload": "default", "pause_s": PAUSE_S}
        with Job(system, "big_checkpoint", work, storage=f"{url}&region=us-east-1", **options) as job:
            job.wait(300 + 120 * repeats)
            for step in range(1, repeats + 1):
                times = json.loads((job.log / f"{step}.json").read_text())
                add(samples, f"report, {system}", times["report"])


def pasts(server: S3Server, work: Path, repeats: int, samples: Samples) -> None:
    runs = {}
    for past, kept in PASTS:
        where = Location.parse("run", f"s3://{server.make_bucket()}/run")
        runs[past, kept] = PastRun(where, work / f"past-{past}-{kept}", past, kept)
    with farther_away(server, ROUND_TRIP_S) as far, far.in_environment():
        for number in range(repeats + 1):
            for (past, kept), run in runs.items():
                found = run.measure()
                for name, value in found.items() if number else ():  # the first round warms up
                    add(samples, f"{name}, {past}, {kept}", value)


def recoveries(server: S3Server, work: Path, repeats: int, seed: int, samples: Samples) -> None:
    for where, storage in (("disk", str(work / "runs")), ("S3", f"s3://{server.make_bucket()}/runs")):
        options: dict[str, object] = {"step_s": STEP_S, "checkpoint_every": CHECKPOINT_EVERY, "storage": storage}
        chance = random.Random(seed)
        with Job("holdfast", "steps", work, **options) as job:
            for _ in range(repeats):
                add(samples, f"first step, {where}", kill_once(job, chance).to_first_step)


def write_random(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(os.urandom(min(64 << 20, size - file.tell())))


class Table:
    """Rows of Holdfast's figure, what stands beside it, and how the two compare."""

    def __init__(self, findings: Findings, samples: Samples) -> None:
        self._findings, self._samples = findings, samples

    def row(
        self,
        label: str,
        ours: str,
        beside: str,
        label_beside: str,
        show: Callable[[Summary], str],
        goal: Callable[[Summary], Goal] | None = None,
    ) -> None:
        if ours not in self._samples:
            return
        mine, others = summary(self._samples[ours]), self._samples.get(beside)
        if others is None:
            self._findings.rows.append([label, show(mine), "", ""])
            return
        by_round = summary([a / b for a, b in zip(mine.values, others, strict=True)])
        text = f"{label_beside}: {show(summary(others))}"
        self._findings.rows.append([label, show(mine), text, times(by_round)])
        if goal is not None:
            self._findings.goals.append(goal(by_round))


def times(ratio: Summary) -> str:
    return ratio.show() if ratio.median >= 0.1 else f"1/{1 / ratio.median:,.0f}"


def in_seconds(value: Summary) -> str:
    return value.show("s")


def in_ms(value: Summary) -> str:
    return value.show("ms", 1000)


def in_gb_per_s(value: Summary) -> str:
    return summary([SIZE / 1e9 / one for one in value.values]).show("GB/s")


def speed_goal(text: str, least: float) -> Callable[[Summary], Goal]:
    def judge(ratio: Summary) -> Goal:
        speed = summary([1 / one for one in ratio.values])
        return Goal(f"{text} at {least} or more of the speed", speed.show(), speed.median >= least)

    return judge


def time_goal(text: str, most: float) -> Callable[[Summary], Goal]:
    def judge(ratio: Summary) -> Goal:
        return Goal(f"{text}: at most {most} times as long", ratio.show(), ratio.median <= most)

    return judge


def report(findings: Findings, samples: Samples) -> None:
    table = Table(findings, samples)
    up, down = "upload of 1 GB, with its hashing", "download of 1 GB, with its verification"
    table.row(up, "upload", "obstore put", "bare obstore", in_seconds, speed_goal("upload of 1 GB", 0.8))
    table.row(down, "download", "obstore get", "bare obstore", in_seconds, speed_goal("download of 1 GB", 0.8))
    table.row("digest", "digest", "copy", "memory copy", in_gb_per_s, speed_goal("digest beside a memory copy", 0.8))
    table.row("report() of 1 GB", "report, holdfast", "report, ray", "Ray Train", in_ms)
    if "report, holdfast" in samples:
        stands = summary(samples["report, holdfast"])
        findings.goals.append(Goal("report() returns within 10 ms", in_ms(stands), stands.median < 0.010))
    for name, label in (("open", "open and decide"), ("commit", "commit"), ("retire", "retire")):
        for past, kept in PASTS[1:]:
            text = f"{label}: {past:,} past checkpoints, {kept:,} kept"
            goal = time_goal(f"{text}, beside 10", 1.2)
            table.row(text, f"{name}, {past}, {kept}", f"{name}, 10, 10", "10 past and kept", in_ms, goal)
    goal = time_goal("recovery with storage on S3 as on disk", 1.2)
    table.row("SIGKILL to first step", "first step, S3", "first step, disk", "on disk", in_seconds, goal)


def run(options: Options) -> Findings:
    findings = Findings("Storage on an S3 server", ["", "Holdfast", "beside it", "times as long, by round"])
    samples: Samples = {}
    systems = available(options.systems, ("holdfast", "ray"))
    with work_directory(options.work_dir) as work, s3_server(work / "s3") as server, server.in_environment():
        transfers(server, work, options.repeats, samples)
        digests(options.repeats, samples)
        pasts(server, work, options.repeats, samples)
        stalls(systems, server, work, options.repeats, samples)
        recoveries(server, work, options.repeats, options.seed, samples)
        report(findings, samples)
        findings.notes = [
            f"The server is {server.name}, on the same cores as all else. For the rows on past checkpoints each round "
            f"trip takes {ROUND_TRIP_S * 1000:.0f} ms longer."
        ]
    findings.samples = dict(samples)
    return findings


if __name__ == "__main__":
    main(__doc__, run)
