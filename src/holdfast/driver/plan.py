"""The request of a trainer to the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.run.state import Outcome, RunSpec
from holdfast.errors import TrainingFailedError
from holdfast.store.location import Location
from holdfast.wire.messages import Configure

from .reports import Callback

# (a checkpoint's id, the arguments of its report) -> the payload of a task, its time limit, and how often it is retried
# if its process crashes; -1: as often as it does
Validator = Callable[[str, dict[str, Any]], tuple[bytes, float | None, int]]


class ShardSource(Protocol):
    """Gives workers their parts of datasets that only the driver has."""

    def shard(self, name: str, attempt_number: int, rank: int, nodes: Sequence[str], lost: bytes | None) -> bytes:
        """The part of a rank, in the attempt whose ranks are on these nodes. ``lost``: the previous value, which is
        unusable."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Plan:
    name: str
    location: Location
    spec: RunSpec
    payload: bytes  # a cloudpickle of the callable that each worker runs
    identity: Mapping[str, Any]  # what run.json says
    essential: Sequence[str] = ()  # modules that every worker needs immediately
    preload: Sequence[str] = ()  # modules that workers need later, and that take long to import
    preload_early: bool = False  # as soon as workers have entered the train function
    imported: Sequence[str] = ()  # modules that the script has imported, and its workers perhaps need
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    placement: str = "PACK"
    preemption_grace_s: float = 0.0
    snapshot_replicas: int = 1  # nodes beside its own that keep a copy of a state in memory
    score_attribute: str | None = None
    validation: Validator | None = None
    on_report: Callback | None = None
    on_failure: Callable[[dict[int, Exception]], None] | None = None
    shards: ShardSource | None = None
    like: Configure | None = None  # what other runs of this process were configured with: the rest is the same
    lockstep: bool = False  # report() returns when the driver says so
    how_to_resume: str = "run the same command again"


@dataclass(frozen=True)
class Ending:
    outcome: Outcome
    error: TrainingFailedError | None = None
    return_value: Any = None
    signal: int | None = None  # what asked the run to stop
