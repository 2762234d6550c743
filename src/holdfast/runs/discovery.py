"""Which runs and experiments a storage path holds."""

from __future__ import annotations

from holdfast.store.location import Location
from holdfast.store.parallel import in_parallel
from holdfast.store.run_at import run_at

PATIENCE_S = 4.0  # for the first contact, because a person waits
READ_PATIENCE_S = 30.0  # with storage that has answered; also the time that one request may take


def runs_below(storage: Location, names: list[str] | None = None) -> list[Location]:
    """``names``: of the directories below, if they are known."""
    names = run_at(storage, PATIENCE_S).directories() if names is None else names
    places = [storage / name for name in names]
    return [place for place, found in zip(places, in_parallel(is_run, places), strict=True) if found]


def is_run(location: Location) -> bool:
    return run_at(location, PATIENCE_S).is_run()
