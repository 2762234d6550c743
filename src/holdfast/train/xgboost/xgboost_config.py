"""XGBoost's collective around a train function. Rank 0 runs the tracker, on a port that the system picks; each attempt
has its own tracker, so it cannot meet the workers of an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from holdfast.train import rendezvous
from holdfast.train.config import BackendConfig


@dataclass
class XGBoostConfig(BackendConfig):
    """How workers form XGBoost's collective. ``xgboost_communicator`` is "rabit", the only one."""

    xgboost_communicator: str = "rabit"

    essential: ClassVar[tuple[str, ...]] = ("xgboost",)

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise ValueError(f'XGBoostConfig(xgboost_communicator={self.xgboost_communicator!r}): use "rabit"')

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InCollective(train_fn)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _InCollective:
    """Calls a train function inside XGBoost's collective."""

    def __init__(self, train_fn: Callable[..., Any]) -> None:
        self.train_fn = train_fn

    def __call__(self, *args: Any) -> Any:
        from xgboost import collective
        from xgboost.tracker import RabitTracker

        from holdfast.train.api import session_for

        session = session_for("xgboost.XGBoostTrainer")
        if session.world_size == 1:
            return self.train_fn(*args)
        tracker = None
        if session.rank == 0:
            tracker = RabitTracker(n_workers=session.world_size, host_ip=session.address, sortby="task")
            tracker.start()
        found = rendezvous.from_rank_zero(session, tracker and tracker.worker_args())
        # XGBoost sorts workers by their task ids, so they get the same ranks there as here.
        collective.init(dmlc_communicator="rabit", dmlc_task_id=f"{session.rank:08d}", **found)
        # After an exception peers may be dead: leave by exiting, without waiting for them.
        result = self.train_fn(*args)
        collective.finalize()
        if tracker is not None:
            tracker.wait_for()
        return result
