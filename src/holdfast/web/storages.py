"""The storage paths that are shown, and the runs in them by their addresses: ``{number of the storage}/{name}``.

Names such as ``..`` are refused, so no address leads out of a storage path.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from holdfast.errors import NotARunError
from holdfast.runs.discovery import READ_PATIENCE_S, is_run, runs_below
from holdfast.runs.stored_experiment import open_stored
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location

ITSELF = "-"  # the name in the address, where the storage path itself is a run


class Storages:
    def __init__(self, locations: Sequence[Location]) -> None:
        self.locations = tuple(locations)

    def runs(self) -> list[tuple[str, Location]]:
        """The address and location of each run. A storage path that does not exist yet holds no runs."""
        found = []
        for number, location in enumerate(self.locations):
            if is_run(location):
                found.append((f"{number}/{ITSELF}", location))
            else:
                found += [(f"{number}/{place.name}", place) for place in runs_below(location)]
        return found

    def find(self, address: str) -> Location:
        """NotARunError if there is none."""
        head, _, rest = address.partition("/")
        parts = rest.split("/")
        if not head.isdecimal() or int(head) >= len(self.locations) or not 1 <= len(parts) <= 2:
            raise NotARunError(f"No run at {address!r}.")
        location = self.locations[int(head)]
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise NotARunError(f"No run at {address!r}.")
        for part in parts:
            location = location if part == ITSELF else location / part
        return location

    def open(self, address: str) -> StoredRun:
        """The run for one look, which reads each file once."""
        return open_stored(self.find(address), READ_PATIENCE_S, once=True)


def link(page: str, address: str) -> str:
    """The path of the page of a run, whose name may have any characters."""
    return f"/{page}/{quote(address)}"
