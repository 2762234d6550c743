"""How each system is started on the same job.

A job is an ordinary script in jobs/, written for Holdfast. A peer gets the same text with another import root: ``ray``,
or ``bare``, a small stand-in for what one writes by hand to run under torchrun.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from measure import marked_processes, progress

HERE = Path(__file__).resolve().parent
NAMES = {"holdfast": "Holdfast", "torchrun": "torchrun", "ray": "Ray Train"}
ROOTS = {"holdfast": "holdfast", "torchrun": "bare", "ray": "ray"}
NEEDS = {"holdfast": "holdfast", "torchrun": "torch", "ray": "ray"}
MAIN = 'if __name__ == "__main__":\n'
RAY_START = (
    MAIN + "    import ray\n    ray.init(address='local', include_dashboard=False, num_cpus=4, _temp_dir={temp!r},"
    " log_to_driver=False)\n"
)


class BenchmarkError(RuntimeError):
    """A job did not do what the benchmark waits for."""


def available(systems: tuple[str, ...], among: tuple[str, ...] = tuple(NAMES)) -> list[str]:
    """Those of ``systems`` that this benchmark knows and that are installed; says which are left out."""
    chosen = []
    for system in systems:
        if system not in NAMES:
            raise SystemExit(f"--systems: {system!r} is unknown; choose from {', '.join(NAMES)}")
        if importlib.util.find_spec(NEEDS[system]) is None:
            progress(f"{NAMES[system]} is not installed here and is left out")
        elif system in among:
            chosen.append(system)
    return chosen


@contextlib.contextmanager
def work_directory(base: Path | None) -> Iterator[Path]:
    """A private directory, removed at the end. The name is short: Ray puts Unix sockets below it."""
    path = Path(tempfile.mkdtemp(prefix="hf-", dir=base)).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def script_for(system: str, job: str, directory: Path) -> Path:
    """Write the job's text, with the system's import root, into ``directory``."""
    text = re.sub(r"\bholdfast\b", ROOTS[system], (HERE / "jobs" / f"{job}.py").read_text())
    if system == "ray" and "nodes_of" not in text:  # else it has a cluster of its own
        text = text.replace(MAIN, RAY_START.format(temp=str(directory / "ray")))
    path = directory / f"{job}.py"
    path.write_text(text)
    return path


def command_for(system: str, script: Path, config: Mapping[str, object]) -> list[str]:
    launcher = [sys.executable]
    if system == "torchrun":
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=100"]
    return [*launcher, str(script), json.dumps(config)]


class Job:
    """One run of a job under one system, in a session of its own; leaving the block ends all its processes.

    ``log`` is a directory for what the job writes about itself, ``storage`` is its storage path; its temp directory is
    on the same file system.
    """

    def __init__(self, system: str, job: str, directory: Path, **config: object) -> None:
        self.system = system
        self.directory = directory / f"{system[0]}{uuid.uuid4().hex[:6]}"
        for name in ("log", "storage", "tmp"):
            (self.directory / name).mkdir(parents=True)
        self.log = self.directory / "log"
        self.storage = self.directory / "storage"
        self.output = self.directory / "output"
        self._mark = f"BENCHMARK_JOB={uuid.uuid4().hex}"
        config = {"log": str(self.log), "storage": str(self.storage), **config}
        self._command = command_for(system, script_for(system, job, self.directory), config)

    def __enter__(self) -> Job:
        name, _, value = self._mark.partition("=")
        environment = {
            **os.environ,
            name: value,
            "TMPDIR": str(self.directory / "tmp"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("BENCHMARK_SOURCE")))),
            "RAY_TRAIN_V2_ENABLED": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with self.output.open("wb") as output:
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                self._command,
                env=environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.process.wait(30)
        if kind is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        return marked_processes(self._mark)

    def wait_for(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll until ``ready()``; an error with the job's last output if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            ended = self.process.poll() is not None
            if ended and ready():  # what it did last counts
                return
            if ended or time.monotonic() > deadline:
                state = f"ended with {self.process.returncode}" if ended else f"took over {timeout_s:.0f} s"
                tail = "\n".join(self.output.read_text(errors="replace").splitlines()[-30:])
                raise BenchmarkError(f"{NAMES[self.system]} {state} before {what}. Its last output:\n{tail}")
            time.sleep(0.02)

    def wait(self, timeout_s: float) -> None:
        """Wait for the job to end well."""
        self.wait_for(lambda: self.process.poll() == 0, "its end", timeout_s)
