"""Runs the examples as a user does: as commands, in a session of their own, with every wait bounded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from support.repository import EXAMPLES

MARK = "HOLDFAST_EXAMPLE_TEST"
PATIENCE_S = 180.0


class Command:
    """A running example. Its output is read as it comes."""

    def __init__(self, name: str, args: tuple[str, ...], cwd: Path | None, mark: str, temp: Path) -> None:
        env = {**os.environ, MARK: mark, "TMPDIR": str(temp), "HOLDFAST_DISPLAY": "plain", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *args],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._more:
                    self._lines.append(line)
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def output(self) -> str:
        with self._more:
            return "".join(self._lines)

    def wait_for(self, pattern: str, after: int = 0) -> re.Match[str]:
        """The first match in the output beyond its first `after` characters."""
        deadline = time.monotonic() + PATIENCE_S
        with self._more:
            while True:
                match = re.compile(pattern).search("".join(self._lines), after)
                if match:
                    return match
                left = deadline - time.monotonic()
                if left <= 0 or self._ended:
                    raise AssertionError(f"no {pattern!r} in:\n{''.join(self._lines)}")
                self._more.wait(left)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """What a terminal does at Ctrl+C: SIGINT to the whole foreground group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def finish(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "something still holds the command's output open"
        return code

    def abandon(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Shell:
    """Starts examples, and knows every process that came of them by a mark in its environment."""

    def __init__(self, home: Path) -> None:
        self.storage = home / "storage"
        self.temp = home / "temp"
        self.temp.mkdir(parents=True)
        self._mark = uuid.uuid4().hex
        self._commands: list[Command] = []

    def start(self, name: str, *args: str, cwd: Path | None = None) -> Command:
        command = Command(name, args, cwd, self._mark, self.temp)
        self._commands.append(command)
        return command

    def run(self, name: str, *args: str, cwd: Path | None = None) -> str:
        """Run to the end, which must be a good one. Returns the output."""
        command = self.start(name, *args, cwd=cwd)
        code = command.finish()
        assert code == 0, command.output
        return command.output

    def processes(self) -> dict[int, str]:
        """The living processes of all commands, with their command lines."""
        mark = f"{MARK}={self._mark}".encode()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
            except OSError:
                continue
        return found

    def temporary_files(self) -> list[str]:
        """What the commands left in the temporary directory; torch's own cache does not count."""
        return [entry.name for entry in self.temp.iterdir() if not entry.name.startswith("torchinductor_")]

    def wait_for_no_process(self) -> None:
        deadline = time.monotonic() + 10.0
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.processes() == {}

    def close(self) -> None:
        for command in self._commands:
            command.abandon()
        try:
            self.wait_for_no_process()
        finally:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
