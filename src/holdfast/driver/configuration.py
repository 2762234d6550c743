"""The first message to the nodes of a run."""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec import structs

from holdfast.settings import Settings
from holdfast.wire import messages as wire

from .plan import Plan
from .storage import NodeAddress, Storage


def configuration(plan: Plan, settings: Settings, address: NodeAddress) -> wire.Configure:
    """The first message to all nodes of the run, without their place."""
    own: dict[str, Any] = {
        "run_name": plan.name,
        "payload": plan.payload,
        "metadata": dict(plan.metadata),
        "validates": plan.validation is not None,
        "storage": address.location,
        "scratch": address.scratch,
        "preemption_grace_s": plan.preemption_grace_s or settings.preemption_grace_s,
        "lockstep": plan.lockstep,
        "rank_zero_only": plan.spec.rank_zero_only,
    }
    if plan.like is not None and not plan.env:
        return structs.replace(plan.like, **own)
    return wire.Configure(
        node_id="",
        run_dir="",
        env={os.fsencode(name): os.fsencode(value) for name, value in {**os.environ, **plan.env}.items()},
        sys_path=[os.fsencode(path) for path in sys.path],
        argv=[os.fsencode(argument) for argument in sys.argv],
        cwd=_working_directory(),
        essential=list(plan.essential),
        preload=list(plan.preload),
        preload_early=plan.preload_early,
        imported=tuple(plan.imported),
        start_method=settings.start_method,
        stop_grace_s=settings.stop_grace_s,
        patience_s=settings.storage_patience_s,
        node_timeout_s=settings.node_timeout_s,
        **own,
    )


def configured_for(configuration: wire.Configure, storage: Storage) -> wire.Configure:
    """The same message with the place of the run, once the run has been taken over."""
    where = {"run_dir": str(storage.run_dir), "run_key": storage.run_key, "epoch": storage.epoch}
    return structs.replace(configuration, **where)


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:  # it has been removed
        return b""
