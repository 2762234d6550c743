"""The fault proxy itself: it is invisible until a fault is armed, and each fault is exactly what its name says."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from support.object_stores.proxy import Fault, FaultProxy, classify
from support.object_stores.proxy_wire import bound

RUN = "bucket/runs/run"
FILE = f"/{RUN}/checkpoints/checkpoint_000001/model.bin"
OTHER_FILE = f"/{RUN}/checkpoints/checkpoint_000001/rank-1.bin"
MANIFEST = f"/{RUN}/checkpoints/checkpoint_000001.json"
JOURNAL = f"/{RUN}/journal/00000001.jsonl"
BODY = bytes(range(256)) * 1024
PATIENCE_S = 120.0
CREDENTIAL = "Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
SIGNED = f"authorization: AWS4-HMAC-SHA256 {CREDENTIAL}\r\n"  # moto asks for a signature and does not check it


def free_port() -> int:
    with bound(0) as sock:
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def serving(port: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that answers at a loopback port."""
    environment = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not answers(port):
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{command} does not listen"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def rclone(port: int, directory: Path, *options: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Keeps its objects as files."""
    program = str(Path(sys.executable).with_name("rclone"))
    options = ("--config", os.devnull, "--addr", f"127.0.0.1:{port}", *options)
    return serving(port, program, "serve", "s3", *options, str(directory))


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """moto's port, with a bucket; obstore is warm, so that the descriptors of its runtime are no test's."""
    port = free_port()
    with serving(port, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)):
        assert ask(port, "PUT", "/bucket")[0] == 200
        assert not list(obstore.list(store(f"http://127.0.0.1:{port}")))
        yield port


@pytest.fixture
def proxy(server: int) -> Iterator[FaultProxy]:
    for path in (FILE, OTHER_FILE, MANIFEST, JOURNAL):
        ask(server, "DELETE", path)
    with FaultProxy(server) as proxy:
        yield proxy


def store(url: str) -> S3Store:
    return S3Store(
        "bucket",
        prefix=RUN.removeprefix("bucket/"),
        endpoint=url,
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        client_options={"allow_http": True, "timeout": f"{PATIENCE_S:.0f}s"},
    )


def ask(port: int, method: str, path: str, body: bytes = b"", timeout: float = PATIENCE_S) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path, body or None, headers())
        reply = connection.getresponse()
        return reply.status, reply.read()


def headers() -> dict[str, str]:
    name, value = SIGNED.strip().split(": ", 1)
    return {name: value}


def eventually(act: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
    """Ask until somebody answers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("method", "target", "requests"),
    [
        ("PUT", FILE, "upload"),
        ("POST", f"{FILE}?uploads", "upload"),
        ("POST", f"{FILE}?uploads=", "upload"),
        ("PUT", f"{FILE}?partNumber=1&uploadId=x", "upload"),
        ("POST", f"{FILE}?uploadId=x", "upload"),
        ("DELETE", f"{FILE}?uploadId=x", "upload"),
        ("PUT", f"/{RUN}/checkpoints/checkpoint_000001/deep/config.json", "upload"),
        ("GET", FILE, "download"),
        ("DELETE", FILE, "delete"),
        ("DELETE", MANIFEST, "delete"),
        ("POST", "/bucket?delete", "delete"),
        ("POST", "/bucket/?delete=", "delete"),
        ("PUT", MANIFEST, "commit"),
        ("PUT", JOURNAL, "journal"),
        ("GET", JOURNAL, "other"),
        ("GET", MANIFEST, "other"),
        ("HEAD", FILE, "other"),
        ("PUT", f"/{RUN}/run.json", "other"),
        ("PUT", f"/{RUN}/lease.json", "other"),
        ("GET", f"/bucket?list-type=2&prefix={RUN}/checkpoints/checkpoint_000001/", "other"),
    ],
)
def test_a_request_is_known_by_its_method_and_key(method: str, target: str, requests: str) -> None:
    assert classify(method, target) == requests


def test_a_client_does_not_notice_a_proxy_without_faults(proxy: FaultProxy) -> None:
    objects, large = store(proxy.url), os.urandom(12 * 1024 * 1024)
    for number in range(20):
        obstore.put(objects, f"journal/{number:08d}.jsonl", b"line\n")
    obstore.put(objects, "checkpoints/c/large.bin", large, chunk_size=5 * 1024 * 1024)
    obstore.put(objects, "checkpoints/c.json", b"{}", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(objects, "checkpoints/c.json", b"{}", mode="create")
    assert obstore.get(objects, "checkpoints/c/large.bin").bytes() == large
    assert (
        obstore.get_range(objects, "checkpoints/c/large.bin", start=7_000_000, length=10) == large[7_000_000:7_000_010]
    )
    assert obstore.head(objects, "checkpoints/c/large.bin")["size"] == len(large)
    keys = [meta["path"] for batch in obstore.list(objects) for meta in batch]
    assert len(keys) == 22
    obstore.delete(objects, keys)
    assert not list(obstore.list(objects))
    counts = {"journal": 20, "upload": 5, "commit": 2, "download": 2, "delete": 1}  # upload: begin, three parts, end
    assert {name: count for name, count in proxy.requests.items() if name != "other"} == counts
    assert not proxy.strikes


@pytest.mark.usefixtures("server")
def test_signatures_stay_valid(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    port = free_port()
    with rclone(port, tmp_path, "--auth-key", "key,secret"), FaultProxy(port) as proxy:
        obstore.put(store(proxy.url), "journal/1", b"line")
        assert ask(proxy.port, "PUT", f"/{RUN}/journal/2", b"line")[0] == 400
    assert (tmp_path / RUN / "journal/1").read_bytes() == b"line"


@pytest.mark.usefixtures("server")
def test_a_connection_serves_many_requests_also_sent_ahead_of_the_replies(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    put = f"PUT {FILE} HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\none"
    listing = "GET /bucket?list-type=2 HTTP/1.1\r\nhost: x\r\n\r\n"
    get = f"GET {FILE} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    port = free_port()
    with rclone(port, tmp_path), FaultProxy(port) as proxy:
        replies = talk(proxy.port, (put + listing + put + get).encode())
    assert replies.count(b"HTTP/1.1 200") == 4
    assert FILE.removeprefix("/bucket/").encode() in replies
    assert replies.endswith(b"\r\n\r\none")
    assert proxy.requests == {"upload": 2, "other": 1, "download": 1}


def talk(port: int, data: bytes) -> bytes:
    """What comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(data)
        reply = b""
        while data := sock.recv(65536):
            reply += data
    return reply


def test_bodies_in_chunks_are_passed_on(proxy: FaultProxy, server: int) -> None:
    head = f"PUT {FILE} HTTP/1.1\r\nhost: x\r\n{SIGNED}transfer-encoding: chunked\r\n\r\n"
    assert talk(proxy.port, head.encode() + b"2\r\ntw\r\n1\r\no\r\n0\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert ask(server, "GET", FILE) == (200, b"two")


def test_bodies_are_streamed() -> None:
    """Of a body that the server does not read, the client cannot send much more than the buffers of the sockets."""
    limit = 64 * 1024 * 1024
    with socket.create_server(("127.0.0.1", 0)) as deaf, FaultProxy(deaf.getsockname()[1]) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.5) as sock:
            sock.sendall(f"PUT {FILE} HTTP/1.1\r\nhost: x\r\n{SIGNED}content-length: {limit}\r\n\r\n".encode())
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < limit:
                    sent += sock.send(bytes(65536))
    assert sent < limit / 2


def test_a_reset_comes_before_anything_is_passed_on(proxy: FaultProxy, server: int) -> None:
    proxy.arm("upload", Fault("reset"))
    with pytest.raises(ConnectionError):
        ask(proxy.port, "PUT", FILE, BODY)
    assert ask(server, "GET", FILE)[0] == 404
    assert ask(proxy.port, "PUT", FILE, BODY)[0] == 200
    assert proxy.strikes == {("upload", "reset"): 1}


@pytest.mark.parametrize("path", [FILE, MANIFEST, JOURNAL])
def test_the_request_of_a_lost_reply_is_carried_out(path: str, proxy: FaultProxy, server: int) -> None:
    requests = classify("PUT", path)
    proxy.arm(requests, Fault("lost reply"))
    with pytest.raises(ConnectionResetError):
        ask(proxy.port, "PUT", path, BODY)
    assert ask(server, "GET", path) == (200, BODY)
    assert proxy.strikes == {(requests, "lost reply"): 1}


def test_a_storm_answers_slow_down_and_passes(proxy: FaultProxy, server: int) -> None:
    proxy.arm("commit", Fault("503", times=3))
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        statuses = []
        for _ in range(4):  # on one connection
            connection.request("PUT", MANIFEST, BODY, headers())
            reply = connection.getresponse()
            statuses.append((reply.status, b"SlowDown" in reply.read()))
    assert statuses == [(503, True)] * 3 + [(200, False)]
    assert proxy.strikes == {("commit", "503"): 3}
    assert ask(server, "GET", MANIFEST) == (200, BODY)


def test_a_storm_may_last_for_a_while(proxy: FaultProxy) -> None:
    proxy.arm("commit", Fault("503", seconds=0.3))
    assert ask(proxy.port, "PUT", MANIFEST, BODY)[0] == 503
    deadline = time.monotonic() + PATIENCE_S
    while ask(proxy.port, "PUT", MANIFEST, BODY)[0] == 503:
        assert time.monotonic() < deadline
    assert proxy.strikes["commit", "503"] >= 1


def test_in_an_outage_nobody_listens(proxy: FaultProxy, server: int) -> None:
    proxy.arm("journal", Fault("outage", seconds=0.5))
    idle = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
    with contextlib.closing(idle):
        with pytest.raises(ConnectionError):
            ask(proxy.port, "PUT", JOURNAL, BODY)
        with pytest.raises(ConnectionRefusedError):
            ask(proxy.port, "GET", FILE)
        with pytest.raises(ConnectionResetError):
            idle.recv(1)
    assert ask(server, "GET", JOURNAL)[0] == 404
    assert eventually(lambda: ask(proxy.port, "PUT", JOURNAL, BODY))[0] == 200
    assert proxy.strikes == {("journal", "outage"): 1}


def test_no_connection_hangs_when_an_outage_begins(proxy: FaultProxy) -> None:
    def hammer(_: int) -> None:
        while proxy.strikes["journal", "outage"] < 50:
            with contextlib.suppress(ConnectionError):  # a TimeoutError would fail the test
                ask(proxy.port, "PUT", JOURNAL, b"x", timeout=5)

    proxy.arm("journal", Fault("outage", times=50, seconds=0.01))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hammer, range(8)))


def test_what_hangs_is_never_carried_out(proxy: FaultProxy, server: int) -> None:
    proxy.arm("journal", Fault("hang", seconds=1.0))
    with pytest.raises(TimeoutError):
        ask(proxy.port, "PUT", JOURNAL, BODY, timeout=0.1)
    with pytest.raises(TimeoutError):
        ask(proxy.port, "PUT", MANIFEST, BODY, timeout=0.1)
    with pytest.raises(ConnectionError):
        ask(proxy.port, "PUT", FILE, BODY)
    assert eventually(lambda: ask(proxy.port, "PUT", OTHER_FILE, BODY))[0] == 200
    assert [ask(server, "GET", path)[0] for path in (JOURNAL, MANIFEST, FILE)] == [404, 404, 404]
    assert proxy.strikes == {("journal", "hang"): 1}


def test_a_trickle_is_slow_and_whole(proxy: FaultProxy, server: int) -> None:
    ask(server, "PUT", FILE, BODY)
    proxy.arm("download", Fault("trickle", bytes_per_s=len(BODY), times=2))
    proxy.arm("upload", Fault("trickle", bytes_per_s=len(BODY)))
    assert ask(proxy.port, "GET", FILE) == (200, BODY)
    assert ask(proxy.port, "PUT", OTHER_FILE, BODY)[0] == 200
    assert ask(server, "GET", OTHER_FILE) == (200, BODY)
    with pytest.raises(TimeoutError):  # a second is what it takes
        read_within(proxy.port, FILE, seconds=0.3)
    assert proxy.strikes == {("download", "trickle"): 2, ("upload", "trickle"): 1}


def read_within(port: int, path: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\n{SIGNED}connection: close\r\n\r\n".encode())
        data = b"x"
        while data:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            data = sock.recv(65536)


def test_a_truncated_reply_promised_more(proxy: FaultProxy, server: int) -> None:
    ask(server, "PUT", FILE, BODY)
    proxy.arm("download", Fault("truncated"))
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(proxy.port, "GET", FILE)
    assert cut.value.partial == BODY[: len(BODY) // 2]
    assert proxy.strikes == {("download", "truncated"): 1}


def test_a_truncated_reply_without_a_body_ends_in_its_head(proxy: FaultProxy, server: int) -> None:
    proxy.arm("commit", Fault("truncated"))
    reply = talk(proxy.port, f"PUT {MANIFEST} HTTP/1.1\r\nhost: x\r\n{SIGNED}content-length: 2\r\n\r\n{{}}".encode())
    assert reply.startswith(b"HTTP/1.1 200")
    assert b"\r\n\r\n" not in reply
    assert ask(server, "GET", MANIFEST) == (200, b"{}")


def test_one_bit_is_flipped(proxy: FaultProxy, server: int) -> None:
    ask(server, "PUT", FILE, BODY)
    proxy.arm("download", Fault("bit flip"))
    status, body = ask(proxy.port, "GET", FILE)
    assert status == 200
    assert len(body) == len(BODY)
    assert [a ^ b for a, b in zip(body, BODY, strict=True) if a != b] == [1]
    assert ask(proxy.port, "GET", FILE) == (200, BODY)
    assert proxy.strikes == {("download", "bit flip"): 1}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(("requests", "method"), [("upload", "PUT"), ("download", "GET"), ("delete", "DELETE")])
def test_a_server_can_be_killed_in_the_middle_of_a_request(requests: Any, method: str, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    file, port = tmp_path / FILE.lstrip("/"), free_port()
    file.parent.mkdir(parents=True)
    if method != "PUT":
        file.write_bytes(BODY)
    with FaultProxy(port) as proxy:
        with rclone(port, tmp_path) as process:
            proxy.arm(requests, Fault("strike", action=process.kill))
            with pytest.raises(ConnectionError):
                ask(proxy.port, method, FILE, BODY if method == "PUT" else b"")
            with pytest.raises(ConnectionError):
                ask(proxy.port, "GET", FILE)
        assert file.exists() == (method != "PUT")
        with rclone(port, tmp_path):
            obstore.put(store(proxy.url), f"checkpoints/{file.parent.name}/{file.name}", BODY)
        assert file.read_bytes() == BODY
        assert proxy.strikes == {(requests, "strike"): 1}


def test_a_fault_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    port, struck = free_port(), threading.Event()
    with FaultProxy(port) as proxy:
        proxy.arm("upload", Fault("strike", action=struck.set))
        with pytest.raises(ConnectionError):
            ask(proxy.port, "PUT", FILE, BODY)
        assert not struck.is_set()
        (tmp_path / "bucket").mkdir()
        with rclone(port, tmp_path):
            assert ask(proxy.port, "PUT", FILE, BODY)[0] == 200
    assert struck.is_set()


def test_a_fault_keeps_to_its_class_and_its_turn(proxy: FaultProxy) -> None:
    proxy.arm("upload", Fault("503", skip=2, times=1))
    assert ask(proxy.port, "PUT", MANIFEST, BODY)[0] == 200
    assert ask(proxy.port, "PUT", JOURNAL, BODY)[0] == 200
    assert [ask(proxy.port, "PUT", FILE, BODY)[0] for _ in range(4)] == [200, 200, 503, 200]
    proxy.arm("upload", Fault("503", times=9))
    proxy.disarm()
    assert ask(proxy.port, "PUT", FILE, BODY)[0] == 200
    assert proxy.requests == {"upload": 1}
    assert not proxy.strikes


@pytest.mark.parametrize("kind", ["outage", "hang", "trickle"])
def test_the_proxy_ends_whatever_is_under_way(kind: Any, server: int) -> None:
    with FaultProxy(server) as proxy:
        proxy.arm("upload", Fault(kind, seconds=60, bytes_per_s=1))
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as sock:
            sock.sendall(
                f"PUT {FILE} HTTP/1.1\r\nhost: x\r\n{SIGNED}content-length: 9000\r\n\r\n".encode() + bytes(5000)
            )
            deadline = time.monotonic() + PATIENCE_S
            while not proxy.strikes:
                assert time.monotonic() < deadline
                time.sleep(0.01)
