"""What an earlier driver had whole on a node when it died: brought into storage before anything else is done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.core import events as ev
from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.store.checkpoints import Manifest, parse_manifest_line
from holdfast.wire import messages as wire

from .fleet import Fleet
from .recovery import Past
from .remote_storage import RemoteStorage


class Adoption:
    def __init__(self, fleet: Fleet, storage: RemoteStorage, then: Callable[[list[ev.Event]], None]) -> None:
        """``then`` is called when all is in storage, with what the machine is to know of it."""
        self._fleet, self._storage, self._then = fleet, storage, then
        self._open: dict[tuple[int, int], Manifest] = {}
        self._committing: set[tuple[int, int]] = set()
        self._done: list[ev.Committed] = []

    def begin(self, node: str, unsaved: Sequence[bytes], past: Past, stored: Collection[str]) -> None:
        """May be called again: for another node, or for one that was lost on the way and is back."""
        self._fleet.tell(wire.Sweep())
        stored = {*stored, *(event.record.id for event in self._done)}
        for line in unsaved:
            try:
                manifest = parse_manifest_line(line)
            except CheckpointDamagedError:
                continue  # half written: it was never whole
            if manifest.id in stored:
                self._fleet.is_durable(manifest.generation, manifest.index, manifest.id)
            elif _is_wanted(manifest, past):
                self._open[manifest.generation, manifest.index] = manifest
                self._fleet.upload_from(node, manifest)
            else:
                self._fleet.forget(manifest)
        self._finish_if_done()

    def uploaded(self, generation: int, index: int, error: str) -> bool:
        """Whether it was one of these."""
        manifest = self._open.get((generation, index))
        if manifest is None:
            return False
        if error:
            raise StorageError(
                f"{manifest.id}, which was not in storage yet when the last driver ended, could not be brought there: "
                f"{error}. It is still on its node: run again to try again."
            )
        if (generation, index) not in self._committing:  # a node that is back has uploaded it again
            self._committing.add((generation, index))
            self._storage.adopt(manifest, self._committed)
        return True

    def _committed(self, event: ev.Committed, manifest: Manifest) -> None:
        del self._open[manifest.generation, manifest.index]
        self._done.append(event)
        self._fleet.is_durable(manifest.generation, manifest.index, manifest.id)
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if not self._open:
            self._then([*sorted(self._done, key=lambda event: event.record.report)])


def _is_wanted(manifest: Manifest, past: Past) -> bool:
    """Only of the last group: after an earlier one the run has gone another way. And only what is ahead of the rest."""
    newest = past.state.newest
    ahead = newest is None or manifest.report > newest.report
    given_up = (manifest.generation, manifest.index) in past.given_up or manifest.id in past.state.damaged
    return manifest.generation == past.state.generation and ahead and not given_up
