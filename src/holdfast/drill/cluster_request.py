"""How a script in a drill gets a Ray cluster if it names none: the drill starts one for each run on request. The
request and the answer are files in the drill's directory. ``own_cluster`` is the other side.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.errors import HoldfastError

WANTED, ADDRESS, FAILED = "cluster-wanted", "cluster-address", "cluster-failed"
_STARTS_WITHIN_S = 180.0
_LOOK_EVERY_S = 0.02


def requested_cluster(directory: Path) -> str | None:
    """The address of the cluster; None if the user has named a cluster."""
    if os.environ.get("RAY_ADDRESS"):
        return None
    (directory / WANTED).touch()
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if (directory / FAILED).exists():
            raise HoldfastError((directory / FAILED).read_text())
        if (directory / ADDRESS).exists():
            return (directory / ADDRESS).read_text()
        time.sleep(_LOOK_EVERY_S)
    raise HoldfastError("the drill could not start a Ray cluster in time; set RAY_ADDRESS to a running one")
