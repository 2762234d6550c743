"""``holdfast.init`` and ``holdfast.shutdown``: which engine the runs of this process use, unless one says otherwise.

They set the variable of the setting, so that processes which the script starts agree with it.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast import settings

_ENGINE = "HOLDFAST_ENGINE"
_before: list[str | None] = []  # what the variable was, and that the connection is ours to end


def init(engine: str | None = None, *, address: str | None = None, **options: Any) -> None:
    """Use this engine, and connect to it. ``address`` and ``options`` are those of ``ray.init``; without an address it
    is the cluster at RAY_ADDRESS or on this machine, or a new one here."""
    chosen = engine or settings.load().engine
    if chosen == "ray":
        from .ray.connection import connect

        connect(address, **options)
    elif chosen != "local":
        raise ValueError(f'init(engine={chosen!r}): this version has the engines "local" and "ray"')
    elif address is not None or options:
        given = ", ".join(["address"] * (address is not None) + sorted(options))
        raise ValueError(f'init(engine="local"): {given} is for engine="ray"')
    _before.append(os.environ.get(_ENGINE))
    os.environ[_ENGINE] = chosen


def shutdown() -> None:
    """Undo ``init``: leave the cluster, which ends what this process still runs there."""
    if not _before:
        return
    if os.environ.get(_ENGINE) == "ray":
        from .ray.connection import disconnect

        disconnect()
    first = _before[0]
    _before.clear()
    if first is None:
        os.environ.pop(_ENGINE, None)
    else:
        os.environ[_ENGINE] = first
