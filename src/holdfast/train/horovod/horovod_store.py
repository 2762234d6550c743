"""Where the workers of a Horovod job exchange their addresses: a key-value store over HTTP, which rank 0 serves. Each
attempt has its own store, so it cannot meet the workers of an earlier one.

Horovod's own server listens on all interfaces, and needs packages that training does not.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MOST_BYTES = 16 << 20  # of a value: the addresses of a worker's connections


class _Store(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # all workers come at the same time

    def __init__(self, host: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.values: dict[str, bytes] = {}
        super().__init__((host, 0), _Request)

    def server_bind(self) -> None:
        """Without the look-up of the host's name that HTTPServer does, which is slow where names are not served."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that was killed during its request is not a failure of this worker."""


class _Request(BaseHTTPRequestHandler):
    server: _Store
    timeout = 60.0

    def do_GET(self) -> None:
        value = self.server.values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        if not 0 <= size <= _MOST_BYTES:
            self._answer(413)
            return
        self.server.values[self.path] = self.rfile.read(size)
        self._answer(200)

    def do_DELETE(self) -> None:
        """A worker is connected to all others: a later ``hvd.init()`` must not find its old address."""
        self.server.values.pop(self.path, None)
        self._answer(200)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the output of a worker belongs to the user."""


@contextmanager
def served_store(host: str) -> Iterator[int]:
    """Serve a store on this address. Returns its port."""
    with _Store(host) as store:
        thread = threading.Thread(target=store.serve_forever, name="holdfast-horovod-store", daemon=True)
        thread.start()
        try:
            yield store.server_address[1]
        finally:
            store.shutdown()
            thread.join()
