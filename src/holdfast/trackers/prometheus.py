"""A page for Prometheus at /metrics, written by prometheus_client.

If the port cannot be opened, the run logs a warning and continues without the page.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import ThreadingHTTPServer

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)
_REQUEST_WITHIN_S = 10.0
_HIGHEST_PORT = 65535


@contextlib.contextmanager
def serving(source: Collector, host: str, port: int) -> Iterator[None]:
    if not 0 < port <= _HIGHEST_PORT:
        raise ValueError(f"HOLDFAST_METRICS_PORT={port}: use a port from 1 to {_HIGHEST_PORT}, or 0 for no endpoint")
    try:
        server = _Server((host, port), _handler(source))
    except OSError as error:
        log.warning(
            "cannot serve metrics on %s:%d (%s). Another run may use the port: set HOLDFAST_METRICS_PORT to a free one",
            *(host, port, error.strerror or error),
        )
        yield
        return
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="holdfast-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a hanging scraper must not delay the end of a run


def _handler(source: Collector) -> type[MetricsHandler]:
    pages = CollectorRegistry()
    pages.register(source)

    class Handler(MetricsHandler):
        registry = pages
        timeout = _REQUEST_WITHIN_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] in ("/metrics", "/"):
                super().do_GET()
            else:
                self.send_error(HTTPStatus.NOT_FOUND, "the metrics are at /metrics")

    return Handler
