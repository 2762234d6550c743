"""A placement group: what was requested, on which nodes Ray has granted it, and with which GPUs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .connection import connected_ray

log = logging.getLogger(__name__)
NODE_LABEL = "ray.io/node-id"
_GRANTED = ("CREATED", "RESCHEDULING")
_ASK_AGAIN_S = 1.0  # before asking again which GPUs a bundle has
_IN_VAIN = 8  # waiting groups that are asked about before the rest is left for the next turn


class Reservation:
    """``avoiding``: nodes that are not to be used, by Ray's ids. ``nodes`` are by bundle, empty where none is granted.
    A group that is not granted yet is what Ray's autoscaler sees, and is withdrawn by removing it."""

    def __init__(
        self,
        name: str,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        labels: Sequence[Mapping[str, str]] = (),
        avoiding: Collection[str] = (),
    ) -> None:
        self._name, self._bundles, self._avoiding = name, bundles, frozenset(avoiding)
        self.labels = [dict(labels[number % len(labels)]) if labels else {} for number in range(len(bundles))]
        selectors = self.labels
        if avoiding:
            others = ",".join(sorted(avoiding))
            selectors = [{NODE_LABEL: f"!in({others})", **selector} for selector in selectors]
        more = {"bundle_label_selector": selectors} if any(selectors) else {}
        wanted = [dict(bundle) for bundle in bundles]
        self._group = connected_ray().util.placement_group(wanted, strategy=strategy, name=name, **more)
        self.nodes = [""] * len(bundles)
        self.was_granted = False  # all of it, once
        self._gpus: list[Any] = [None] * len(bundles)  # by bundle: the ids, or where they will be
        self._ask_at = 0.0  # for them, and not earlier

    @property
    def is_whole(self) -> bool:
        return all(self.nodes)

    def avoids(self, nodes: Collection[str]) -> bool:
        """Whether any bundle was lost. A request to Ray cannot be changed: it must be made again."""
        return not self._avoiding.isdisjoint(nodes)

    def look(self, alive: Collection[str]) -> None:
        """Record what was granted, and what was lost with its node."""
        if self.is_whole and all(node in alive for node in self.nodes):
            return
        table = connected_ray().util.placement_group_table(self._group)
        granted = table.get("bundles_to_node_id", {}) if table.get("state") in _GRANTED else {}
        for index, known in enumerate(self.nodes):
            node = granted.get(index, "")
            node = node if node in alive else ""
            if node != known:
                self.nodes[index], self._gpus[index] = node, None
        self.was_granted = self.was_granted or self.is_whole

    def gpus(self, index: int) -> list[str] | None:
        """The GPUs of a bundle; None while they are not known."""
        ray = connected_ray()
        if self._gpus[index] is None and self.nodes[index] and time.monotonic() >= self._ask_at:
            self._gpus[index] = self._ask_for_gpus(index)
        found = self._gpus[index]
        if isinstance(found, ray.ObjectRef):
            done, _ = ray.wait([found], timeout=0)
            if not done:
                return None
            try:
                found = ray.get(found)
            except ray.exceptions.RayError:  # the node is lost, or cannot be used: its agent says why
                found, self._ask_at = None, time.monotonic() + _ASK_AGAIN_S
            self._gpus[index] = found
        known: list[str] | None = found
        return known

    def remove(self) -> None:
        connected_ray().util.remove_placement_group(self._group)

    def _ask_for_gpus(self, index: int) -> Any:
        """Which GPUs a bundle has is told only to what runs in it; they stay the same as long as it has them."""
        gpus = self._bundles[index].get("GPU", 0.0)
        if not gpus:
            return []
        ray = connected_ray()
        where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._group, index)

        def gpu_ids() -> list[str]:  # sent as it stands, so that a node without Holdfast can do it
            import ray

            return [str(id) for id in ray.get_gpu_ids()]

        task = ray.remote(num_cpus=0, num_gpus=gpus, max_retries=0, scheduling_strategy=where)(gpu_ids)
        return task.options(name=f"{self._name}:gpus").remote()


def is_doubtful(group: Reservation, index: int, doubted: Collection[str]) -> bool:
    """Whether to request other resources instead of a granted bundle. If its labels name the node, no other would
    fit."""
    return group.nodes[index] in doubted and NODE_LABEL not in group.labels[index]


def remove_all(groups: Iterable[Reservation]) -> None:
    """Each one, whatever happens to the others. Ray removes the rest when this process exits."""
    for group in groups:
        try:
            group.remove()
        except Exception as error:
            log.debug("the cluster did not answer: %s", error)


def remove_left_behind(name: str) -> None:
    """Groups whose name begins so, which a driver has left that was a task of Ray's: they would last as long as the job
    that it is a part of. Those of other drivers go with them."""
    ray = connected_ray()
    if ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return
    from ray.util.placement_group import PlacementGroup

    for id, known in ray.util.placement_group_table().items():
        if known["name"].startswith(f"{name}:") and known["state"] != "REMOVED":
            ray.util.remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(id)))


def look_at_some(waiting: Sequence[Reservation], alive: Collection[str], turn: int) -> int:
    """Ray is asked about each one separately, so not about all of them at a time: about the first, which it will
    probably grant first, and about others, from ``turn`` on. Returns the next turn."""
    for part in (waiting, waiting[turn:]):
        in_vain = 0
        for reservation in part:
            reservation.look(alive)
            in_vain = 0 if reservation.is_whole else in_vain + 1
            if in_vain == _IN_VAIN:
                break
    return turn + _IN_VAIN if turn + _IN_VAIN < len(waiting) else 0
