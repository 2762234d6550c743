"""The cluster of a script in a drill that names none: the drill has one for each run, and starts it when it is asked.

What is asked for is a file in the drill's directory, and so is the answer. ``holdfast.drill`` has the other side.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import settings
from holdfast.errors import HoldfastError

WANTED, ADDRESS, FAILED = "cluster-wanted", "cluster-address", "cluster-failed"
_STARTS_WITHIN_S = 180.0
_LOOK_EVERY_S = 0.02


def drill_cluster() -> str | None:
    """Its address; None if this is no drill, or the user has said which cluster it is."""
    drill = settings.load().drill
    if not drill or os.environ.get("RAY_ADDRESS"):
        return None
    directory = Path(drill)
    (directory / WANTED).touch()
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if (directory / FAILED).exists():
            raise HoldfastError((directory / FAILED).read_text())
        if (directory / ADDRESS).exists():
            return (directory / ADDRESS).read_text()
        time.sleep(_LOOK_EVERY_S)
    raise HoldfastError("the drill could not start a Ray cluster in time; give it one by RAY_ADDRESS")


def on_its_head(address: str) -> dict[str, str]:
    """Options of ``ray.init``. Older releases of Ray take a script to be on the node that was started last."""
    return {"_node_ip_address": address.rpartition(":")[0]}
