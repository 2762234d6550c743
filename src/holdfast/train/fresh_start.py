"""``RunConfig(fresh=True)``: a new run or experiment beside the ones that have its name. Nothing stored is changed."""

from __future__ import annotations

import itertools
import sys

from holdfast import settings
from holdfast.printable import printable_lines
from holdfast.store.location import Location
from holdfast.store.run_at import run_at
from holdfast.train.config import RunConfig


def start_fresh(run: RunConfig, what: str) -> None:
    """Give it the first of NAME, NAME-2, NAME-3, ... that storage does not know. ``what`` is "run" or "experiment"."""
    if not run.fresh:
        return
    wanted = run.location.parent / run.chosen_name
    places = (wanted if number == 1 else wanted.parent / f"{wanted.name}-{number}" for number in itertools.count(1))
    free = next(place for place in places if not _is_taken(place))
    run.move_to(free)
    if free.name != wanted.name:
        text = (
            f"{what} {wanted.name!r} already exists and is kept. fresh=True starts a new one: {free.name!r} in {free}"
        )
        print(f"holdfast: {printable_lines(text)}", file=sys.stderr, flush=True)


def check_not_fresh(run: RunConfig | None, caller: str) -> None:
    if run is not None and run.fresh:
        raise ValueError(
            f"{caller}(run_config=RunConfig(fresh=True)): restore() resumes a stored run. Remove fresh=True, "
            "or start a new run without restore()."
        )


def _is_taken(place: Location) -> bool:
    return run_at(place, settings.load().storage_patience_s).is_there()
