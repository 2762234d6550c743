"""Is this machine ready for training? Python, torch, processors, memory, limits, clocks, network, Ray.

Each check takes at most a second, except torch and Ray, and changes nothing. Information that the system does not
provide is left out.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import holdfast
from holdfast.cli.diagnosis import DoctorFinding, bad, good, warning
from holdfast.cli.output import size_text

Look = Callable[[], Iterator[DoctorFinding]]
_FEW_FILES, _FEW_PROCESSES = 4096, 4096
_SMALL_SHARED_MEMORY = 1 << 30
_LITTLE_MEMORY = 2 << 30
_TORCH_WITHIN_S = 120.0
_NAME_IS_FOUND_WITHIN_S = 1.0
_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)
_TORCH = """
import torch, torch.distributed as dist
print(torch.__version__, torch.cuda.device_count(), dist.is_available() and dist.is_gloo_available())
"""


def looks(ray_address: str | None, quick: bool) -> list[Look]:
    return [
        _python,
        partial(_torch, quick),
        _processors,
        _memory,
        _shared_memory,
        _limits,
        _clock,
        _network,
        partial(_ray, ray_address),
    ]


def _python() -> Iterator[DoctorFinding]:
    yield good("holdfast", f"{holdfast.__version__}, Python {platform.python_version()} on {platform.platform()}")


def _torch(quick: bool) -> Iterator[DoctorFinding]:
    """In a separate process: an import can crash the whole process."""
    if importlib.util.find_spec("torch") is None:
        yield warning("torch", "not installed", "pip install 'holdfast[torch]', if you train with PyTorch")
        return
    if quick:
        yield good("torch", f"{importlib.metadata.version('torch')} is installed; its import was not tried")
        return
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH], capture_output=True, text=True, timeout=_TORCH_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield bad("torch", f"its import takes more than {_TORCH_WITHIN_S:g} s", "is it on a slow network disk?")
        return
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3:
        last = next(reversed(done.stderr.strip().splitlines()), f"exit code {done.returncode}")
        yield bad("torch", f"cannot be imported: {last}", "install it again: pip install --force-reinstall torch")
        return
    version, gpus, gloo = words
    seen = len(glob.glob("/dev/nvidia[0-9]*"))
    if seen and gpus == "0":
        yield warning("torch", f"{version} sees none of this machine's {seen} GPUs", "install a build with CUDA")
    elif gloo != "True":
        yield warning(
            "torch", f"{version} has no gloo", "workers without GPUs cannot form a group; install another build"
        )
    else:
        yield good("torch", f"{version}, {gpus} GPU(s), gloo")


def _processors() -> Iterator[DoctorFinding]:
    there = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    load = os.getloadavg()[0]
    text = f"{usable} of {there} usable, load {load:.1f}"
    if load > 2 * usable:
        yield warning("processors", text, "others use them too: training will be slow, and times vary")
    else:
        yield good("processors", text)


def _memory() -> Iterator[DoctorFinding]:
    fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    available = int(fields["MemAvailable"].split()[0]) << 10 if "MemAvailable" in fields else None
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    if limit.isdecimal():
        used = _read("/sys/fs/cgroup/memory.current").strip()
        left = int(limit) - int(used or 0)
        available = left if available is None else min(available, left)
    if available is None:
        return
    if available < _LITTLE_MEMORY:
        yield warning("memory", f"{size_text(available)} left", "workers may be killed when memory runs out")
    else:
        yield good("memory", f"{size_text(available)} left")


def _shared_memory() -> Iterator[DoctorFinding]:
    if not os.path.isdir("/dev/shm"):
        return
    size = shutil.disk_usage("/dev/shm")
    text = f"{size_text(size.free)} of {size_text(size.total)} free in /dev/shm"
    if size.free < _SMALL_SHARED_MEMORY:
        remedy = "data loaders with workers need more: docker run --shm-size=8g, or mount a larger tmpfs there"
        yield warning("shared memory", text, remedy)
    else:
        yield good("shared memory", text)


def _limits() -> Iterator[DoctorFinding]:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < _FEW_FILES:
        yield warning("open files", f"at most {files}", f"ulimit -n {most if most > 0 else 65536}")
    else:
        yield good("open files", f"at most {'any number' if files < 0 else files}")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    cgroup = _read("/sys/fs/cgroup/pids.max").strip()
    processes = min([n for n in (processes, int(cgroup) if cgroup.isdecimal() else -1) if n >= 0], default=-1)
    if 0 <= processes < _FEW_PROCESSES:
        yield warning("processes", f"at most {processes}, threads included", "ulimit -u, or docker run --pids-limit=-1")
    else:
        yield good("processes", f"at most {'any number' if processes < 0 else processes}")
    temporary = tempfile.gettempdir()
    free = shutil.disk_usage(temporary).free
    grade = good if free > _LITTLE_MEMORY else partial(warning, remedy="set TMPDIR to a larger disk")
    yield grade("temporary", f"{size_text(free)} free in {temporary}")


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2): the request is in its first fields."""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    ]


def _clock() -> Iterator[DoctorFinding]:
    """Leases in object stores, and requests that are signed, need clocks that agree to some seconds."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.2)
    drift = abs((time.time() - wall) - (time.monotonic() - steady))
    if drift > 0.05:
        yield warning("clock", f"was set by {drift:.2f} s just now", "let chrony or systemd-timesyncd slew it")
        return
    if wall < 1.7e9:
        yield bad("clock", time.strftime("says %Y-%m-%d", time.gmtime(wall)), "set the clock")
        return
    if sys.platform != "linux":
        return
    timex = _Timex()
    try:
        asked = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return
    if asked >= 0 and timex.status & _UNSYNCHRONISED:
        yield warning("clock", "not synchronized", "run chrony or systemd-timesyncd")
    elif asked >= 0:
        yield good("clock", "synchronised")


def _network() -> Iterator[DoctorFinding]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 3.0):
            pass
    except OSError as error:
        yield bad("loopback", f"127.0.0.1 cannot be reached: {error}", "bring the loopback interface up")
        return
    name = socket.gethostname()
    began = time.monotonic()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        yield warning("host name", f"{name} is not found: {error}", f"add it to /etc/hosts: 127.0.1.1 {name}")
        return
    took = time.monotonic() - began
    if took > _NAME_IS_FOUND_WITHIN_S:
        yield warning("host name", f"{name} takes {took:.1f} s to be found", "add it to /etc/hosts")
    else:
        yield good("host name", f"{name} is {address}")


def _ray(given: str | None) -> Iterator[DoctorFinding]:
    from holdfast.engine.ray.ray_address import why_unreachable

    if importlib.util.find_spec("ray") is None:
        if given:
            yield bad("ray", "not installed", "pip install ray")
        return
    version = importlib.metadata.version("ray")
    address = given or os.environ.get("RAY_ADDRESS") or _cluster_of_this_machine()
    if not address:
        yield good("ray", f"{version}; no cluster is named by RAY_ADDRESS or --ray, or runs here")
        return
    why = why_unreachable(address)
    if why:
        yield bad("ray", f"{version}; the cluster at {address} cannot be reached: {why}", "is it up? ray status")
    else:
        yield good("ray", f"{version}; a cluster answers at {address}")


def _cluster_of_this_machine() -> str:
    """What ``ray start`` on this machine wrote down."""
    return _read(str(Path(tempfile.gettempdir(), "ray", "ray_current_cluster"))).strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
