"""What a run may do and must keep to, as it was configured. It is journalled whenever a driver starts."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.run.staged_files import ON_NODES, ON_SHARED_DISK, StagedFiles


class RunSpec(Struct, frozen=True, rename={"nodes_hold_files": "remote"}):
    """The limits of the run. A time of 0 means no limit."""

    num_workers: int = 1  # the maximum of an elastic range
    min_workers: int = 0  # 0: all of them
    resize_interval_s: float = 60.0
    max_failures: int = 0
    max_preemption_failures: int = -1
    max_hang_failures: int | None = None  # None: hangs count with the other failures
    max_same_errors: int = 0  # how often the same error may occur at the same report; 0: no limit
    bad_node_failures: int = 3
    bad_node_rest_s: float = 600.0
    num_to_keep: int | None = None
    scored: bool = False
    score_order: str = "max"
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0
    start_timeout_s: float = 300.0
    hang_timeout_s: float = 0.0
    learns_hangs: bool = False  # no timeout is set: learn it from the run's own pace
    stopped_grace_s: float = 2.0
    standby_workers: int = 0  # how many processes are kept ready to replace a lost rank
    regroup_timeout_s: float = 0.0  # the time for survivors and replacements to form a group
    missing_warning_s: float = 30.0
    nodes_hold_files: bool = False  # remote storage: nodes hold files until they are uploaded, and the commit follows
    rank_zero_only: bool = False  # only rank 0 reports, and its files are the whole state
    sync_period_s: float = 0.0  # how long a complete checkpoint may wait for its upload
    lease_s: float = 0.0  # how long workers across a network may outlive their driver

    @property
    def files(self) -> StagedFiles:
        return ON_NODES if self.nodes_hold_files else ON_SHARED_DISK
