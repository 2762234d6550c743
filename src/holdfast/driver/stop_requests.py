"""A stop request from outside: a note in the run's storage for the driver that is running there.

It reaches a driver in any thread, container or machine, which a signal does not. A note is for one driver, named as in
its lease, so that a later driver is not stopped by a note for an earlier one.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import StorageError
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.fetch import get_if_there
from holdfast.store.sealed import seal_struct, unseal_struct

KEY = "stop.json"
LOOKS_EVERY_S = 0.5
LOOKS_FAR_AWAY_EVERY_S = 5.0
_PATIENCE_S = 5.0
_CLOCK_GOES_BACK_S = 1.0


class StopRequest(msgspec.Struct, frozen=True):
    host: str
    pid: int
    since: float  # by the driver's clock
    at_once: bool


def leave(objects: ObjectStore, request: StopRequest) -> None:
    objects.put(KEY, seal_struct(request))


def is_waiting(objects: ObjectStore) -> bool:
    """Whether no driver has taken the note."""
    return get_if_there(objects, KEY) is not None


def withdraw(objects: ObjectStore) -> None:
    objects.delete([KEY])


@contextlib.contextmanager
def watched(location: Location, ask_to_stop: Callable[[int, bool], None], in_process: bool = False) -> Iterator[None]:
    """Call ``ask_to_stop(SIGTERM, at_once)``, from another thread, for each request to the driver of this process.

    ``in_process``: the train function is in this process too, and ends as at a Ctrl+C.
    """
    interrupts = in_process and threading.current_thread() is threading.main_thread()
    over = threading.Event()
    every_s = location.pause_s(LOOKS_EVERY_S, LOOKS_FAR_AWAY_EVERY_S)
    began = time.time() - _CLOCK_GOES_BACK_S
    objects: list[ObjectStore] = []

    def look() -> None:
        while not over.wait(every_s):
            objects[:] = objects or [location.open(_PATIENCE_S)]
            with contextlib.suppress(StorageError, OSError):
                request = unseal_struct(get_if_there(objects[0], KEY), StopRequest)
                if request is not None and _is_ours(request, began):
                    withdraw(objects[0])
                    if interrupts:
                        _thread.interrupt_main()
                    else:
                        ask_to_stop(signal.SIGTERM, request.at_once)

    thread = threading.Thread(target=look, name="holdfast-stop-requests", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        for store in objects:
            store.close()
        thread.join(_PATIENCE_S)


def _is_ours(request: StopRequest, began: float) -> bool:
    return (request.host, request.pid) == (socket.gethostname(), os.getpid()) and request.since >= began
