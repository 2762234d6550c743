"""One run that is struck at one request, and gone on with until it ends; and all that must hold of it then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from holdfast.errors import CheckpointDamagedError
from holdfast.runs.past import read_past
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote import remote_journal, sequence
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from support.object_stores.kill_proxy import Aim, Blow, KillProxy
from support.object_stores.remote_job import expected
from support.object_stores.servers import S3Server

Victim = Literal["driver", "agent"]
VICTIMS: tuple[Victim, ...] = get_args(Victim)
JOB = Path(__file__).with_name("remote_job.py")
CONFIG = {"steps": 5, "keep": 2, "size": 200, "max_failures": 1, "pace_s": 0.05}
NEVER = Aim(0)
ENDS_WITHIN_S = 120.0
GONE_WITHIN_S = 120.0


@dataclass
class Case:
    """``victim`` is killed at a request of the first driver, and of the next ones as long as there are ``aims``."""

    server: S3Server
    proxy: KillProxy
    directory: Path
    victim: Victim  # of the first driver
    aims: Sequence[Aim]
    then: Victim | None = None  # of the others, if that is another one
    mark: str = field(default_factory=lambda: f"KILL_CASE={uuid.uuid4().hex}")
    drivers: int = 0
    blows: list[Blow] = field(default_factory=list)
    durable: set[str] = field(default_factory=set)  # what the journal ever said

    def run(self) -> bool:
        """Whether the blow fell: a run may have ended before."""
        url = f"s3://{self.server.make_bucket()}/runs"
        for name in ("marks", "scratch", "tmp"):
            (self.directory / name).mkdir(parents=True)
        self.objects = Location.parse("run", f"{url}/run").open(10)
        try:
            self.drive_to_the_end(url)
            self.check_journal()
            self.check_checkpoints()
            command = [sys.executable, "-m", "holdfast", "verify", f"{url}/run"]
            verdict = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S)
            assert verdict.returncode == 0, f"{self}: {verdict.stdout}{verdict.stderr}"
        finally:
            self.objects.close()
        self.check_what_is_left()
        return any(blow.struck for blow in self.blows)

    def drive_to_the_end(self, url: str) -> None:
        for aim in [*self.aims, NEVER]:
            code, output = self.drive(url, aim)
            self.check_what_was_durable()
            if code == 0:
                assert output.split()[-1] == expected(CONFIG["steps"]), f"{self}: {output}"
                return
            assert code == -signal.SIGKILL, f"{self}: driver {self.drivers} ended with {code}: {output}"
        raise AssertionError(f"{self}: the run did not end")

    def drive(self, url: str, aim: Aim) -> tuple[int, str]:
        """One driver, which is struck at that request; all of its processes end with it."""
        self.drivers += 1
        name, _, value = self.mark.partition("=")
        environment = {**os.environ, **self.server.environment, "AWS_ENDPOINT_URL": self.proxy.url, name: value}
        environment |= {"HOLDFAST_SCRATCH_DIR": str(self.directory / "scratch"), "TMPDIR": str(self.directory / "tmp")}
        config = json.dumps({**CONFIG, "marks": str(self.directory / "marks")})
        with open(self.directory / f"output-{self.drivers}", "w+") as output:
            process = subprocess.Popen(
                [sys.executable, str(JOB), url, "run", config], env=environment, stdout=output, stderr=output
            )
            self.blows.append(Blow(aim, lambda: self.strike(process)))
            self.proxy.blow = self.blows[-1]
            try:
                code = process.wait(ENDS_WITHIN_S)
            finally:
                process.kill()
                process.wait()
            self.wait_until_all_are_gone()
            output.seek(0)
            return code, output.read()

    def strike(self, driver: subprocess.Popen[bytes]) -> bool:
        victim = self.victim if self.drivers == 1 else self.then or self.victim
        if victim == "driver":
            driver.kill()
            driver.wait()
            return True
        agents = [pid for pid in children(driver.pid) if name_of(pid) == "hf-agent"]
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        return bool(agents)

    def wait_until_all_are_gone(self) -> None:
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := marked(self.mark):
            assert time.monotonic() < deadline, f"{self}: {[(pid, name_of(pid)) for pid in left]} are left"
            time.sleep(0.005)

    def check_what_was_durable(self) -> None:
        """What the journal calls committed is there and whole, whenever one looks."""
        records, damage = remote_journal.read(self.objects)
        assert not damage, f"{self}: {damage}"
        self.durable |= {record.body["record"]["id"] for record in records if record.kind == "Committed"}
        for checkpoint in read_past(records).state.checkpoints:
            try:
                RemoteCheckpoints(self.objects).verify(checkpoint.id)
            except CheckpointDamagedError as error:
                raise AssertionError(f"{self}: {error}") from error

    def check_journal(self) -> None:
        """Each epoch has one writer, whose objects lie between its claim and the next one."""
        headers = list(headers_of(self.objects))
        assert all(header is not None for header in headers), f"{self}: {headers}"
        writers = [(header.epoch, header.token, header.pid) for header in headers if header is not None]
        assert writers == sorted(writers), f"{self}: {writers}"
        assert len({epoch for epoch, _, _ in writers}) == len(set(writers)) <= self.drivers, f"{self}: {writers}"

    def check_checkpoints(self) -> None:
        """The newest are kept, and at most one that a group began with; what else was ever durable is older."""
        records, _ = remote_journal.read(self.objects)
        past = read_past(records)
        kept = {checkpoint.id for checkpoint in past.state.checkpoints}
        self.durable |= {record.body["record"]["id"] for record in records if record.kind == "Committed"}
        newest = set(sorted(self.durable)[-CONFIG["keep"] :])
        assert newest <= kept <= newest | {attempt.resume for attempt in past.attempts}, f"{self}: {kept} are kept"
        assert len(kept) <= CONFIG["keep"] + 1, f"{self}: {kept} are kept"
        assert kept <= set(RemoteCheckpoints(self.objects).listing().committed), self

    def check_what_is_left(self) -> None:
        """Nothing. Of what was killed while it left, or while it read the result, an empty directory or such a copy."""
        scratch, temporary = self.directory / "scratch", self.directory / "tmp"
        files = [path for path in temporary.rglob("*") if path.is_file() and "holdfast-history-" not in str(path)]
        left = [*scratch.rglob("holdfast-*/*"), *files]
        assert not left, f"{self}: {left} are left"

    def __str__(self) -> str:
        met = "; ".join(f"{blow.aim.moment} {blow.aim.number}: {blow.request}" for blow in self.blows)
        return f"{self.victim} killed [{met}; carried out late: {self.proxy.late}]"


def headers_of(objects: ObjectStore) -> Iterator[sequence.Header | None]:
    for info in objects.list(sequence.DIRECTORY):
        position = int(info.key.removeprefix(sequence.DIRECTORY).partition(".")[0])
        yield sequence.parse_header(objects.get(info.key), position)


def children(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in path.read_text().split()]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def marked(mark: str) -> list[int]:
    """Living processes that were started with this in their environment, whoever is their parent now."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            continue  # gone meanwhile
    return found
