"""Local mode under torchrun: the processes that torchrun started are one world. Rank 0 has the run and its storage; the
others train with it, and their reports only appear in their own result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from holdfast.errors import WorkerGroupError, message_of
from holdfast.store.location import Location
from holdfast.train.checks import warn_once
from holdfast.train.result import Result
from holdfast.wire.worker_messages import Offer, Place
from holdfast.worker import session as sessions
from holdfast.worker.session import Files
from holdfast.worker.worker_place import Placed


@dataclass(frozen=True)
class LaunchedWorld:
    """What torchrun has passed to this process."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int

    @staticmethod
    def of_this_process() -> LaunchedWorld | None:
        """The world of torchrun; None if torchrun did not start this process or started only one. Holdfast's own
        workers do not count, although they have the same variables."""
        env = os.environ
        if "TORCHELASTIC_RUN_ID" not in env or int(env.get("WORLD_SIZE", "1")) < 2 or sessions._current is not None:
            return None
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        return LaunchedWorld(*(int(env[name]) for name in names))

    def enter(self, session: Any) -> None:
        """Make the session of a single process a part of this world."""
        alone = session.request
        session.world_size = self.world_size
        session.place.take(Place(self.rank, self.local_rank, self.local_world_size, self.node_rank))

        def request(kind: str, body: Any, timeout_s: float | None = None) -> Any:
            return _COLLECTIVES[kind](body) if kind in _COLLECTIVES else alone(kind, body, timeout_s)

        session.request, session.is_launched = request, True


def _barrier(_body: Any) -> None:
    import torch.distributed as dist

    dist.barrier()


def _broadcast(body: Any) -> Any:
    import torch.distributed as dist

    bodies = [body]
    dist.broadcast_object_list(bodies, src=0)
    return bodies[0]


def _gather(body: Any) -> list[bytes]:
    import torch.distributed as dist

    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, cloudpickle.dumps(body))
    return gathered


_COLLECTIVES: dict[str, Callable[[Any], Any]] = {"barrier": _barrier, "broadcast": _broadcast, "gather": _gather}


@dataclass(frozen=True)
class Launched:
    """Runs outside the framework's own wrapper: sets the rank before a group is formed."""

    world: LaunchedWorld
    fn: Callable[[], Any]

    def __call__(self) -> Any:
        self.world.enter(sessions.current())
        return self.fn()


@dataclass(frozen=True)
class Joined:
    """Runs inside it: tells all ranks what rank 0 knows about the run."""

    fn: Callable[[], Any]

    def __call__(self) -> Any:
        session: Any = sessions.current()
        known = (session.run_name, session.run_dir, session.location, session.resumed_from, session.metadata)
        about = session.request("broadcast", known if session.rank == 0 else None)
        if session.rank > 0:
            session.run_name, session.run_dir, session.location, session.resumed_from, session.metadata = about
        return self.fn()


class Follower(Placed):
    """A rank without a run: has the part of a ``Session`` that the API uses."""

    attempt_number = 1
    joins = 0
    memory = None  # snapshots belong to runs with agents
    group_timeout_s = 0.0
    devices: tuple[int, ...] = ()
    address = "127.0.0.1"
    run_name = run_dir = ""
    resumed_from: Offer | None = None
    validates = True
    started = False

    def __init__(self) -> None:
        super().__init__(Place(0, 0, 1, 0), lambda: None)
        self.world_size = 1
        self.metrics: dict[str, Any] | None = None
        self.metadata: dict[str, Any] = {}
        self.location: Location | None = None
        self.datasets: dict[str, Any] = {}
        self.initial: Any = None
        self._at_end: list[Callable[[], None]] = []

    def ready(self) -> None:
        self.started = True

    def report(self, metrics: dict[str, Any], files: Files | Callable[[int], Files] | None = None, **_: Any) -> None:
        self.metrics = metrics
        if files is not None:
            warn_once(
                "files of a launched rank",
                "report(checkpoint=…): under torchrun with num_workers=0 only rank 0's files are kept; for checkpoints "
                "of several ranks, start the script with python and ScalingConfig(num_workers=…)",
            )

    def request(self, kind: str, _body: Any, _timeout_s: float | None = None) -> Any:
        raise RuntimeError(f"only rank 0 can ask for {kind!r} under torchrun with num_workers=0")

    def notice(self) -> None:
        """Nothing is about to end these processes."""

    def current_checkpoint(self) -> Offer | None:
        return self.resumed_from

    def at_end(self, call: Callable[[], None]) -> None:
        self._at_end.append(call)

    def leave(self) -> None:
        while self._at_end:
            self._at_end.pop()()


def follow(world: LaunchedWorld, payload: Callable[[], Any], config: dict[str, Any] | None) -> Result:
    """Train together with rank 0, as another rank."""
    session = Follower()
    before = sessions.install(session)  # type: ignore[arg-type]
    try:
        value = payload()
        session.leave()
    except Exception as error:
        text = f"rank {world.rank} raised {type(error).__name__}: {message_of(error)}"
        raise WorkerGroupError(text, {world.rank: error}) from error
    finally:
        sessions.install(before)
    return Result(metrics=session.metrics, path=str(session.location or ""), config=config, return_value=value)
