"""Decides who may write the next object of the journal, on stores with and without safe creates."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from holdfast.errors import ObjectExistsError, StorageDeniedError, StorageUnavailableError
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.fetch import get_if_there
from holdfast.store.remote.sequence import Header, key_of, parse_header

CLAIMS = "claims/"
SETTLE_S = 10.0
PATIENCE_S = 300.0
_CLAIM = re.compile(r"claims/(\d{6,})\.([^./]+)\.json")

Compose = Callable[[int], bytes]  # the object's content, by the position that it gets


class TakenError(Exception):
    """Another driver has taken the position, or the run. The header names that driver, if it can be read."""

    def __init__(self, header: Header | None) -> None:
        super().__init__(header)
        self.header = header


class SafeTurns:
    """The store decides: a position belongs to the driver that creates it."""

    def __init__(self, objects: ObjectStore, token: str) -> None:
        self.epoch = 0
        self.next_position = 1
        self._objects = objects
        self._token = token

    def announce(self, newest_epoch: int) -> bool:
        """Choose an epoch above the newest one. True if this took time, in which other drivers may have written."""
        self.epoch = newest_epoch + 1
        return False

    def look(self) -> None:
        """Raise TakenError if another driver has announced that it takes the run over."""

    def key(self, position: int) -> str:
        return key_of(position)

    def write(self, compose: Compose) -> int:
        """Write at the next free position. After a failure, the position may hold the entry that seemed to fail."""
        while True:
            position = self.next_position
            try:
                self._objects.create(self.key(position), compose(position))
            except ObjectExistsError:
                found = self._header(position)
                if found is None or found.token != self._token:
                    raise TakenError(found) from None
                self.next_position += 1  # our append that seemed to fail did succeed: the next object replaces both
            else:
                self.next_position += 1
                return position

    def _header(self, position: int) -> Header | None:
        content = get_if_there(self._objects, self.key(position))
        return None if content is None else parse_header(content, position)


class PoliteTurns:
    """For stores without conditional writes: claims are announced, and checked before each write. Keys have owners.
    This keeps two drivers apart if every write arrives within ``settle_s`` of its check. No key is written twice, so a
    late request cannot replace what came after it.
    """

    def __init__(
        self, objects: ObjectStore, token: str, settle_s: float, patience_s: float, wait: Callable[[float], None]
    ) -> None:
        self.epoch = 0
        self.next_position = 1
        self._objects = objects
        self._quick = objects.with_patience(settle_s / 2)
        self._token = token
        self._settle_s = settle_s
        self._patience_s = patience_s
        self._wait = wait

    def announce(self, newest_epoch: int) -> bool:
        """Claim an epoch, and give other drivers time to see the claim and to finish their writes.

        If another driver has begun that epoch meanwhile, claim the next one. The existing claim stays.
        """
        if newest_epoch < self.epoch:
            return False
        self.epoch = max([newest_epoch, *(epoch for epoch, _, _ in self._claims())]) + 1
        header = Header.of_this_process(position=0, epoch=self.epoch, token=self._token)
        self._objects.put(f"{CLAIMS}{self.epoch:06d}.{self._token}.json", header.line())
        self._wait(self._settle_s)
        self.look()
        return True

    def key(self, position: int) -> str:
        return key_of(position, (self.epoch, self._token))

    def write(self, compose: Compose) -> int:
        deadline = time.monotonic() + self._patience_s
        while True:
            self.look()
            position = self.next_position
            self.next_position += 1
            try:
                self._quick.put(self.key(position), compose(position))
            except StorageDeniedError:
                raise
            except StorageUnavailableError:
                if time.monotonic() >= deadline:
                    raise
            else:
                return position

    def _claims(self) -> list[tuple[int, str, str]]:
        found = [(_CLAIM.fullmatch(info.key), info.key) for info in self._objects.list(CLAIMS)]
        return [(int(match[1]), match[2], key) for match, key in found if match]

    def look(self) -> None:
        for epoch, token, key in self._claims():
            if epoch > self.epoch or (epoch == self.epoch and token < self._token):
                raise TakenError(parse_header(self._objects.get(key), 0))
