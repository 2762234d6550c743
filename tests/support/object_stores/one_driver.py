"""A driver in a process of its own: begins the run in the directory given, says so, and waits to be killed."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from holdfast.store.remote.remote_journal import RemoteJournal
from holdfast.store.remote.remote_lease import Opened, RemoteLease
from support.object_stores.directory_objects import DirectoryObjects


def main() -> None:
    objects = DirectoryObjects(Path(sys.argv[1]))

    def claim(token: str) -> Opened:
        opened = RemoteJournal.open(objects, token)
        opened[0].append([("Hello", {})], 0.0)
        return opened

    lease = RemoteLease.acquire(objects, claim, on_lost=lambda _: None)
    print(lease.epoch, flush=True)
    threading.Event().wait(60)


if __name__ == "__main__":
    main()
