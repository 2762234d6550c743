"""Every fault of a storage server at every kind of request: the run ends with the right weights, and nothing is torn.

In ``make test`` a run meets several short faults at each kind of request: some rows of the matrix at once. The full one
has a run for each cell, and outages of 30 s: ``pytest tests/system/object_stores/test_fault_matrix.py -m soak -s``.
Both print it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import obstore
import pytest

from support.object_stores.kill_case import children
from support.object_stores.matrix_job import KEPT, STEPS, expected
from support.object_stores.proxy import REQUEST_CLASSES, Fault, FaultKind, FaultProxy, RequestClass
from support.object_stores.servers import S3Server, free_port, unconditional_s3_server
from support.repository import SUPPORT

JOB = SUPPORT / "object_stores" / "matrix_job.py"
PATIENCE_S = 300.0
LIMIT_S = 1000.0  # above what two drivers, and a look at what they left, may take: one that hangs is to say where
Row = Literal["reset", "lost reply", "503 storm", "outage", "hang", "slow trickle", "truncated", "server killed"]
ROWS: tuple[Row, ...] = get_args(Row)
TOGETHER: list[tuple[Row, ...]] = [
    ("reset", "lost reply", "slow trickle", "truncated"),
    ("503 storm", "outage", "hang"),
    ("server killed",),
]


class Place(NamedTuple):
    """Where in a run a fault strikes: at this request of its class, the next fault of the same run so many later."""

    first: int
    apart: int
    bytes_per_s: int  # of a trickle that takes about a second


PLACES: dict[RequestClass, Place] = {
    "upload": Place(9, 15, 60_000),
    "commit": Place(2, 2, 2000),
    "journal": Place(4, 3, 2000),
    "download": Place(2, 3, 60_000),
    "delete": Place(2, 2, 2000),
}


@dataclass(frozen=True)
class Severity:
    """How bad a fault is: requests that it strikes, and how long it lasts."""

    times: int
    storm_s: float
    outage_s: float
    slowness: int  # how many times as long as in the quick form a trickle takes


QUICK = Severity(times=1, storm_s=0.5, outage_s=0.5, slowness=1)
FULL = Severity(times=3, storm_s=10.0, outage_s=30.0, slowness=4)


def fault(row: Row, place: Place, severity: Severity, kill: Callable[[], None]) -> Fault:
    made = {
        "reset": Fault("reset", times=severity.times),
        "lost reply": Fault("lost reply", times=severity.times),
        "503 storm": Fault("503", seconds=severity.storm_s),
        "outage": Fault("outage", seconds=severity.outage_s),
        "hang": Fault("hang", seconds=severity.outage_s),
        "slow trickle": Fault("trickle", times=severity.times, bytes_per_s=place.bytes_per_s // severity.slowness),
        "truncated": Fault("truncated", times=severity.times),
        "server killed": Fault("strike", action=kill),
    }[row]
    return replace(made, skip=place.first)


@dataclass
class Killer:
    """Kills the server, and starts it again after a while."""

    server: S3Server
    away_s: float
    threads: list[threading.Thread] = field(default_factory=list)
    turn: Any = field(default_factory=threading.Lock)

    def kill(self) -> None:
        with self.turn:
            self.server.kill()
        thread = threading.Thread(target=self.revive)
        thread.start()
        self.threads.append(thread)

    def revive(self) -> None:
        time.sleep(self.away_s)
        with self.turn:
            self.server.restart()

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)


class Matrix:
    """What came of each cell: how often its fault struck, and how long the run took."""

    def __init__(self) -> None:
        self.cells: dict[tuple[Row, RequestClass], str] = {}

    def note(
        self, cells: dict[tuple[Row, RequestClass], FaultKind], proxy: FaultProxy, seconds: float, good: bool
    ) -> None:
        for (row, requests), kind in cells.items():
            struck = proxy.strikes[requests, kind]
            self.cells[row, requests] = f"{struck} in {seconds:.0f} s" if struck and good else "FAILED"

    def show(self) -> str:
        width = max(map(len, ROWS)) + 2
        lines = ["".ljust(width) + "".join(name.ljust(18) for name in REQUEST_CLASSES)]
        for row in ROWS:
            cells = [self.cells.get((row, requests), "-") for requests in REQUEST_CLASSES]
            lines.append(row.ljust(width) + "".join(cell.ljust(18) for cell in cells).rstrip())
        return "\n".join(lines)


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    matrix = Matrix()
    yield matrix
    print(f"\n\nstrikes and seconds of the run, for each fault at each kind of request\n{matrix.show()}")


class Ministack(S3Server):
    """It checks no signatures, but refuses presigned addresses of keys that it does not know."""

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT"), timeout=PATIENCE_S):
            return name


@contextlib.contextmanager
def ministack(program: Path, directory: Path) -> Iterator[S3Server]:
    port = free_port()
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": port, "LOG_LEVEL": "ERROR"}
    settings |= {"S3_PERSIST": 1, "S3_DATA_DIR": directory / "objects"}
    settings |= {"PERSIST_STATE": 1, "STATE_DIR": directory / "state"}
    server = Ministack(["env", *(f"{name}={value}" for name, value in settings.items()), str(program)], port)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("rows", TOGETHER, ids=lambda rows: "-".join(rows).replace(" ", "-"))
def test_a_run_survives_faults_at_every_kind_of_request(
    rows: tuple[Row, ...], s3: S3Server, matrix: Matrix, tmp_path: Path
) -> None:
    with server_for(rows, s3, tmp_path) as server:
        run_with_faults(rows, REQUEST_CLASSES, QUICK, server, matrix, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("requests", REQUEST_CLASSES)
@pytest.mark.parametrize("row", ROWS)
def test_a_run_survives_a_bad_fault(
    row: Row, requests: RequestClass, s3: S3Server, matrix: Matrix, tmp_path: Path
) -> None:
    with server_for([row], s3, tmp_path) as server:
        run_with_faults([row], [requests], FULL, server, matrix, tmp_path)


def server_for(rows: Sequence[Row], s3: S3Server, tmp_path: Path) -> contextlib.AbstractContextManager[S3Server]:
    """One that is killed must keep its objects: ministack does, and so does rclone, which takes no conditions on writes
    and so makes each driver wait until all others would have shown themselves."""
    if "server killed" not in rows:
        return contextlib.nullcontext(s3)
    directory = tmp_path / "objects"
    directory.mkdir()
    program = Path(sys.executable).with_name("ministack")
    return ministack(program, directory) if program.exists() else unconditional_s3_server(directory)


def run_with_faults(
    rows: Sequence[Row],
    classes: Sequence[RequestClass],
    severity: Severity,
    server: S3Server,
    matrix: Matrix,
    tmp_path: Path,
) -> None:
    bucket, began = server.make_bucket(), time.monotonic()
    url = f"s3://{bucket}/runs"
    killer = Killer(server, severity.outage_s)
    cells: dict[tuple[Row, RequestClass], FaultKind] = {}
    with FaultProxy(server.port) as proxy:
        for number, row in enumerate(rows):
            for requests in classes:
                place = PLACES[requests]
                place = place._replace(first=place.first + number * place.apart)
                chosen = fault(row, place, severity, killer.kill)
                proxy.arm(requests, chosen)
                cells[row, requests] = chosen.kind
        try:
            code, output = drive(proxy, server, url, tmp_path, "first")
            assert code == -signal.SIGKILL, output
            code, output = drive(proxy, server, url, tmp_path, "second")
        finally:
            killer.wait()
        matrix.note(cells, proxy, time.monotonic() - began, good=code == 0)
        assert code == 0, output
        assert output.splitlines()[-1] == expected()
        assert all(proxy.strikes[requests, kind] for (_, requests), kind in cells.items()), proxy.strikes
    check_storage(server, bucket, url)
    assert not left_in(tmp_path / "second"), "the machine that finished the run keeps something of it"


@pytest.mark.timeout(LIMIT_S)
def test_a_bit_that_flips_on_the_way_costs_another_download(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.make_bucket()
    with FaultProxy(s3.port) as proxy:
        drive(proxy, s3, f"s3://{bucket}/runs", tmp_path, "first")
        proxy.arm("download", Fault("bit flip", skip=2))
        code, output = drive(proxy, s3, f"s3://{bucket}/runs", tmp_path, "second")
        assert code == 0, output
        assert output.splitlines()[-1] == expected()
        assert proxy.strikes == {("download", "bit flip"): 1}
    check_storage(s3, bucket, f"s3://{bucket}/runs")


def drive(proxy: FaultProxy, server: S3Server, url: str, tmp_path: Path, machine: str) -> tuple[int, str]:
    """One driver, on a machine that has nothing of what another one staged."""
    scratch, temporary, marks = tmp_path / machine / "scratch", tmp_path / machine / "tmp", tmp_path / "marks"
    for directory in (scratch, temporary, marks):
        directory.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **server.environment, "AWS_ENDPOINT_URL": proxy.url, "PYTHONFAULTHANDLER": "1"}
    environment |= {"HOLDFAST_SCRATCH_DIR": str(scratch), "TMPDIR": str(temporary)}
    command = [sys.executable, str(JOB), url, "run", str(marks)]
    with open(tmp_path / machine / "output", "w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = end_with_stacks(process)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return code, output.read()


def end_with_stacks(driver: subprocess.Popen[bytes]) -> int:
    """Of one that hangs: it and its agent write where they are."""
    for pid in [*children(driver.pid), driver.pid]:
        os.kill(pid, signal.SIGABRT)
    return driver.wait(PATIENCE_S)


def check_storage(server: S3Server, bucket: str, url: str) -> None:
    """Without the proxy: all that is committed is good, and nothing else is there."""
    environment = {**os.environ, **server.environment}
    command = [sys.executable, "-m", "holdfast", "verify", f"{url}/run"]
    verdict = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert re.search(rf"checkpoint_0*{STEPS}\S* +good", verdict.stdout), verdict.stdout
    store: Any = server.store(bucket)
    keys = [meta["path"] for batch in obstore.list(store, "runs/run/checkpoints/") for meta in batch]
    names = {key.split("/")[3].removesuffix(".json") for key in keys}
    committed = {key.split("/")[3].removesuffix(".json") for key in keys if key.count("/") == 3}
    assert names == committed, "files of no committed checkpoint are left"
    assert KEPT <= len(committed) <= KEPT + 1, f"{committed} are kept"  # and the one that was resumed from
    assert all(re.fullmatch(r"checkpoint_\d+(-g\d+)?", name) for name in names), f"{names}: one is quarantined"


def left_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and path.name != "output"]
