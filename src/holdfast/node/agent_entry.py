"""The agent's process.

``python -m holdfast.node.agent_entry [MARK] child PARENT DRIVER_FD [ZYGOTE_FD]``: the driver is its parent, at the end
of a socket. ``python -m holdfast.node.agent_entry [MARK] caller FD``: the driver is across a network; where, and what
to prove that it is the right agent with, is read from a pipe. The mark says for which run and driver it works
(``leftovers``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence

from holdfast.node import handshake, leftovers
from holdfast.node.agent import Agent
from holdfast.node.launch import ZygoteLauncher
from holdfast.platform import open_files, process_control
from holdfast.worker.temporary import find_directory

_CALL_WITHIN_S = 20.0


def child(parent: int, driver_fd: int, zygote_fd: int | None = None) -> None:
    driver = socket.socket(fileno=driver_fd)
    launcher = ZygoteLauncher(socket.socket(fileno=zygote_fd)) if zygote_fd is not None else None
    agent = _with_signals(Agent(driver, launcher, alone=True))
    # SIGKILL also ends an agent that was stopped and could therefore never see that its driver has exited.
    signal.signal(signal.SIGCONT, lambda *_: agent.close_soon() if os.getppid() != parent else None)
    process_control.die_with_parent(parent, signal.SIGCONT)
    agent.run()


def caller(told_fd: int) -> None:
    with open(told_fd, "rb") as file:
        told = json.loads(file.read())
    try:
        driver = handshake.call(told["host"], told["port"], bytes.fromhex(told["token"]), _CALL_WITHIN_S)
    except OSError as error:
        print(f"holdfast: the driver at {told['host']}:{told['port']} cannot be reached: {error}", file=sys.stderr)
        return
    _with_signals(Agent(driver, alone=True, leased=True)).run()


def _with_signals(agent: Agent) -> Agent:
    """A SIGTERM comes from outside, and means that the machine will be removed."""
    signal.signal(signal.SIGTERM, lambda *_: agent.drain())
    signal.signal(signal.SIGHUP, lambda *_: agent.close_soon())
    return agent


_KINDS: dict[str, Callable[..., None]] = {"child": child, "caller": caller}


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_control.set_name("hf-agent")
    open_files.raise_limit()
    find_directory()
    kind = next(index for index, argument in enumerate(arguments) if argument in _KINDS)
    for mark in arguments[:kind]:
        threading.Thread(target=leftovers.end_leftovers, args=(mark,), name="holdfast-leftovers", daemon=True).start()
    try:
        _KINDS[arguments[kind]](*map(int, arguments[kind + 1 :]))
    except Exception as error:
        traceback.print_exc()
        if open_files.is_at_limit(error):
            print(f"holdfast: {open_files.remedy(error)}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(0)  # without waiting for threads that still hash


if __name__ == "__main__":
    main(sys.argv[1:])
