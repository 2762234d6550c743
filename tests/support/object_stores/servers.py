"""S3 servers on loopback: a correct one (moto), and one that takes no condition on writes (rclone).

Each is a process of its own, ended by its id. ``kill`` and ``restart`` keep the port; moto forgets its objects with its
process, rclone keeps them.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

START_S = 60.0
STOP_S = 10.0
KEYS = {"access_key_id": "AKIDTEST", "secret_access_key": "secretkey"}
SERVING: set[int] = set()  # the servers of this process: some live as long as it, and are nobody else's to end


class S3Server:
    """A server that may be killed and restarted; ``environment`` is what a process needs to reach it by s3:// URLs."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEYS["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": KEYS["secret_access_key"],
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        SERVING.add(self.pid)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._command[0]} ended with {self._process.returncode} at its start")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            time.sleep(0.02)
        self.kill()
        raise TimeoutError(f"{self._command[0]} did not listen within {START_S} s")

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        SERVING.discard(self.pid)
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def make_bucket(self) -> str:
        """A new bucket's name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        make_bucket(self.url, name, **KEYS)
        return name

    def store(self, bucket: str) -> object:
        """A bare store of obstore."""
        from obstore.store import S3Store

        return S3Store(bucket, endpoint=self.url, region="us-east-1", client_options={"allow_http": True}, **KEYS)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with conditional writes, in memory."""
    port = free_port()
    yield from _running(S3Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port))


@contextlib.contextmanager
def unconditional_s3_server(directory: Path) -> Iterator[S3Server]:
    """A server that silently ignores conditions on writes, on a directory."""
    port = free_port()
    keys = f"{KEYS['access_key_id']},{KEYS['secret_access_key']}"
    command = [_rclone(), "serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}", "--auth-key", keys]
    options = ["--config", os.devnull, "--vfs-cache-mode", "off", "--no-checksum"]
    yield from _running(S3Server([*command, *options], port))


def _running(server: S3Server) -> Iterator[S3Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill(signal.SIGTERM)


def _rclone() -> str:
    return str(Path(sys.executable).with_name("rclone"))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def make_bucket(url: str, name: str, access_key_id: str, secret_access_key: str) -> None:
    """obstore cannot make one, but a URL that it signs for the bucket's root can."""
    from obstore import sign
    from obstore.store import S3Store

    keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
    store = S3Store(name, endpoint=url, region="us-east-1", client_options={"allow_http": True}, **keys)
    address = sign(store, "PUT", "", datetime.timedelta(minutes=1))
    with urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=30):
        pass
