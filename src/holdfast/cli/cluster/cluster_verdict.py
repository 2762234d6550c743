"""What the capacity of a cluster means for a run: whether it can start, and how far it can grow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.engine.demand import Demand
    from holdfast.engine.ray.ray_capacity import RayCapacity

_UNKNOWN = "its limits are unknown: pass its configuration with --config"


@dataclass(frozen=True)
class ClusterVerdict:
    text: str
    grade: int  # 0: the run never starts; the higher, the better

    @property
    def can_start(self) -> bool:
        return self.grade > 0


def worst(verdicts: Iterable[ClusterVerdict]) -> ClusterVerdict:
    """The worst verdict on the parts of a run, which needs all of them; of equally bad ones the first."""
    return min(verdicts, key=lambda verdict: verdict.grade)


def judge(demand: Demand, found: RayCapacity) -> ClusterVerdict:
    """The worst verdict that applies."""
    run = f"The run asks for {_asked(demand)}"
    start, free = found.to_start_now, found.to_start_free
    never = f" It never has more than {found.in_time:g}." if found.in_time < demand.most else ""
    if found.to_start_in_time < demand.least:
        return ClusterVerdict(
            f"{run}, and the cluster has {_room(found)} at most: {_remedy(found)}, or ask for fewer.", 0
        )
    if start < demand.least and not found.is_known:
        return ClusterVerdict(f"{run}, and the cluster has space for {start} now. {_dark(found)}", 1)
    if start < demand.least:
        return ClusterVerdict(f"{run}: it waits until the autoscaler has added nodes (space now: {start}).{never}", 2)
    if free < demand.least:
        added = ", or nodes are added" if found.in_time > found.now else ""
        return ClusterVerdict(f"{run}: it waits until others have left{added} (free now: {free} of {start}).{never}", 3)
    if found.in_time < demand.most:
        return ClusterVerdict(
            f"{run}: it starts, and never has more than {found.in_time:g}. "
            "Let the maximum of the node types and of the run agree.",
            4,
        )
    if found.free < demand.most:
        dark = f" {_dark(found)}" if found.now < demand.most and not found.is_known else ""
        return ClusterVerdict(f"{run}: it starts with {found.free}, and grows as nodes join or others leave.{dark}", 5)
    return ClusterVerdict(f"{run}: the cluster has space for all of them now.", 6)


def _dark(found: RayCapacity) -> str:
    if found.in_the_dark:
        return f"If there is an autoscaler, {_UNKNOWN}."
    return (
        "It is unknown which nodes the autoscaler may add: the configuration does not say what resources a node "
        "type has."
    )


def _room(found: RayCapacity) -> str:
    return f"space for {found.to_start_in_time:g}{' on one node' if found.together else ''}"


def _remedy(found: RayCapacity) -> str:
    if found.together:
        return "take larger nodes"
    return "raise the maximum of a node type" if found.types else "add nodes"


def _asked(demand: Demand) -> str:
    number = f"{demand.least} to {demand.most}" if demand.least < demand.most else f"{demand.most}"
    where = f" with {dict(demand.labels[0])}" if len(demand.labels) == 1 and demand.labels[0] else ""
    how = {"STRICT_PACK": " on one node", "STRICT_SPREAD": " on nodes of their own"}.get(demand.strategy, "")
    workers = "worker" if demand.most == 1 else "workers"
    return f"{number} {workers}{how if demand.least > 1 else ''}{where}"
