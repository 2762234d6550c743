"""A tiny S3 server that misbehaves as the test says: one entry of ``script`` for each request, then it behaves."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_S = 30.0  # a bound; a test ends it earlier
KEYS = {"access_key_id": "AKIDTEST", "secret_access_key": "secretkey"}
ERRORS = {
    "503": (503, "SlowDown"),
    "429": (429, "TooManyRequests"),
    "500": (500, "InternalError"),
    "403": (403, "AccessDenied"),
    "expired": (400, "ExpiredToken"),
    "no bucket": (404, "NoSuchBucket"),
}


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.script: deque[str] = deque()
        self.always = ""  # after the script: what happens to every request
        self.failing_range = ""  # a Range header that is answered with 503
        self.ranges = True  # False: answers a range with 200 and the whole object
        self.requests: list[str] = []
        self.release = threading.Event()
        self.hanging = threading.Event()
        self._mutex = threading.Lock()

    def next_fault(self, request: str) -> str:
        with self._mutex:
            self.requests.append(request)
            return self.script.popleft() if self.script else self.always

    def shutdown_request(self, request: Any) -> None:
        self.close_request(request)  # without the orderly end that would hide a reset

    def store(self, **options: Any) -> Any:
        from obstore.store import S3Store

        endpoint = f"http://127.0.0.1:{self.server_port}"
        return S3Store("bucket", endpoint=endpoint, client_options={"allow_http": True}, **KEYS, **options)


@contextlib.contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    timeout = HANG_S

    def do_GET(self) -> None:
        key, wanted = self._key(), self.headers.get("Range", "")
        fault = self.server.next_fault(f"GET {key} {wanted}".strip())
        if wanted and wanted == self.server.failing_range:
            fault = "503"
        if self._failed(fault):
            return
        content = self.server.objects.get(key)
        if content is None:
            self._error(404, "NoSuchKey")
            return
        body, status, headers = content, 200, {}
        if wanted and self.server.ranges:
            first, last = wanted.removeprefix("bytes=").split("-")
            body = content[int(first) : int(last) + 1]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(body) - 1}/{len(content)}"
            status = 206
        headers["ETag"] = f'"{hashlib.md5(content).hexdigest()}"'
        headers["Last-Modified"] = "Thu, 01 Jan 2026 00:00:00 GMT"
        self._answer(status, body, headers, cut=fault == "truncate")

    def do_PUT(self) -> None:
        key, length = self._key(), int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        fault = self.server.next_fault(f"PUT {key}")
        if fault != "lost reply" and self._failed(fault):
            return
        if self.headers.get("If-None-Match") == "*" and key in self.server.objects:
            self._error(412, "PreconditionFailed")
            return
        self.server.objects[key] = body
        if fault == "lost reply":
            self._reset()
            return
        self._answer(200, b"", {"ETag": '"1"'})

    def do_POST(self) -> None:
        """Only the bulk delete."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self._failed(self.server.next_fault("POST delete")):
            return
        keys = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        for key in keys:
            self.server.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {"Content-Type": "application/xml"})

    def log_message(self, *args: Any) -> None:
        pass

    def _key(self) -> str:
        return self.path.partition("?")[0].removeprefix("/bucket/")

    def _failed(self, fault: str) -> bool:
        if fault in ERRORS:
            self._error(*ERRORS[fault])
        elif fault == "reset":
            self._reset()
        elif fault == "hang":
            self.server.hanging.set()
            self.server.release.wait(HANG_S)
            self.close_connection = True
        else:
            return False
        return True

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>scripted</Message></Error>".encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if cut else body)

    def _reset(self) -> None:
        """Close with RST: the client sees a reset connection, not an end of file."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
