"""``holdfast ui`` as a process of its own, and requests to it with any headers."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE_S = 120.0


@dataclass
class WebAnswer:
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebServer:
    url: str  # with the token
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        return urlsplit(self.url).query.removeprefix("token=")

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"holdfast_ui_{self.port}={self.token}"}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, form: dict[str, str] | None = None
    ) -> WebAnswer:
        """As it is: without a cookie unless one is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            body = None if form is None else urlencode(form)
            extra = {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, path, body, {**extra, **(headers or {})})
            answer = connection.getresponse()
            return WebAnswer(answer.status, answer.headers, answer.read())

    def get(self, path: str, **headers: str) -> WebAnswer:
        return self.request("GET", path, {**self.cookie, **headers})

    def post(self, path: str, form: dict[str, str]) -> WebAnswer:
        return self.request("POST", path, {**self.cookie, "Origin": self.origin}, form)


@contextlib.contextmanager
def web_server(*storages: Path | str) -> Iterator[WebServer]:
    command = [sys.executable, "-m", "holdfast", "ui", *map(str, storages), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield WebServer(json.loads(line)["url"], process)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
