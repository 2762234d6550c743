"""The request to the driver of a simulated run, and a description of its environment."""

from __future__ import annotations

from pathlib import Path

from holdfast.driver.plan import Plan
from holdfast.driver.site import Site
from holdfast.store.location import Location

from .schedule import FENCE_S, Schedule
from .simulated_storage import SCORE

_RUN_DIR = Path("/run")
_LOCATION = Location("", "/run")


def plan_of(schedule: Schedule, epoch: int) -> Plan:
    return Plan(
        "run",
        _LOCATION,
        schedule.spec_of(epoch),
        b"",
        {},
        score_attribute=SCORE,
        validation=lambda _id, _arguments: (b"", None, 0),
        snapshot_replicas=schedule.replicas,
    )


def site_of(schedule: Schedule) -> Site:
    grows, remote = bool(schedule.nodes), schedule.spec.nodes_hold_files
    has_logs = not (remote and grows)
    where = (_RUN_DIR, lambda *_: "", lambda *_: _RUN_DIR if has_logs else None)
    return Site(grows, not grows, *where, FENCE_S if grows else 0.0, 0.0, schedule.most_waiting)
