"""A zygote and its workers take no snapshot of themselves: nothing is ever forked from it."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from holdfast.node import seed, zygote


def test_a_worker_that_imports_a_trainer_takes_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "serving", True)
    monkeypatch.setattr(seed, "_seed", None)
    monkeypatch.setattr(seed, "_inside", False)
    monkeypatch.setattr(seed, "is_safe_to_fork", lambda: True)
    monkeypatch.setattr(seed, "_fork", lambda _modules: pytest.fail("forked"))
    seed.plant(["json"])
    assert seed.planted() is None


def test_a_zygote_says_that_it_serves() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = (
        "import socket, sys\n"
        "from holdfast.node import seed, zygote\n"
        "zygote._Zygote.loop = lambda self: print(zygote.serving, flush=True)\n"
        f"zygote.serve(socket.socket(fileno={theirs.fileno()}))\n"
    )
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=60
        )
    assert done.stdout == "True\n", done.stderr
