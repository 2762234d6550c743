"""``holdfast.init`` and ``holdfast.shutdown``: which engine the runs of this process use, unless one says otherwise,
and what of this machine trials may have.

They set the variable of the setting, so that processes which the script starts agree with it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast import settings

_ENGINE = "HOLDFAST_ENGINE"
_AMOUNTS = {"num_cpus": "CPU", "num_gpus": "GPU"}
_IN_VAIN = (
    "configure_logging",
    "dashboard_host",
    "dashboard_port",
    "ignore_reinit_error",
    "include_dashboard",
    "log_to_driver",
    "logging_level",
    "object_store_memory",
    "runtime_env",
)
_local: dict[str, float] = {}  # what trials share on this machine, where that was said
_before: list[str | None] = []  # the previous value of the variable, and whether we opened the connection


def init(engine: str | None = None, *, address: str | None = None, **options: Any) -> None:
    """Choose an engine and connect to it. ``address`` and ``options`` are those of ``ray.init``.

    Without an address, it connects to the cluster at RAY_ADDRESS or on this machine, or starts one here. Without a
    cluster, ``num_cpus``, ``num_gpus`` and ``resources`` (a dict of other amounts) are what the trials of an experiment
    share.
    """
    chosen = engine or settings.load().engine
    if chosen == "ray":
        from .ray.connection import connect

        connect(address, **options)
    elif chosen != "local":
        raise ValueError(f'init(engine={chosen!r}): use "local" or "ray"')
    else:
        _limit_this_machine(address, options)
    _before.append(os.environ.get(_ENGINE))
    os.environ[_ENGINE] = chosen


def is_initialized() -> bool:
    """Return whether ``init`` was called, and ``shutdown`` was not called since."""
    return bool(_before)


def local_resources() -> dict[str, float]:
    """What ``init`` said of this machine."""
    return dict(_local)


def cluster_resources() -> dict[str, float]:
    """Return the total resources for trials: those of the Ray cluster, or of this machine."""
    if settings.load().engine == "ray":
        import ray

        return dict(ray.cluster_resources())
    from .local.local_engine import gpus_to_be_seen

    return {"CPU": float(os.cpu_count() or 1), "GPU": float(gpus_to_be_seen()), **_local}


def _limit_this_machine(address: str | None, options: Mapping[str, Any]) -> None:
    known = {*_AMOUNTS, "resources", *_IN_VAIN}
    wrong = ["address"] * (address is not None) + sorted(set(options) - known)
    if wrong:
        raise ValueError(f'init(engine="local"): {", ".join(wrong)} is for engine="ray"')
    amounts = {name: options[name] for name in _AMOUNTS if options.get(name) is not None}
    for name, amount in {**amounts, **(options.get("resources") or {})}.items():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
            raise ValueError(f"init({name}={amount!r}): pass a number, 0 or more")
        _local[_AMOUNTS.get(name, name)] = float(amount)
    in_vain = sorted(set(options) & set(_IN_VAIN))
    if in_vain:
        warnings.warn(f'init({", ".join(in_vain)}) has no effect with engine="local"', UserWarning, stacklevel=3)


def shutdown() -> None:
    """Undo ``init``: disconnect from the cluster. This stops everything that this process still runs there."""
    _local.clear()
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
