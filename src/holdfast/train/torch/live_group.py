"""``LiveGroup``: a process group whose inner group can be replaced, so that DDP and the script keep theirs when a peer
is lost.

A failed collective never leaves DDP in a broken state: the future that DDP waits for completes, with meaningless
values, and ``is_lost`` and ``is_spoiled`` say so; code that waits for the work itself gets ``PeerLostError``. Before it
has joined its peers, a group is alone: each collective completes immediately, with this rank's own values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from holdfast.errors import PeerLostError
from holdfast.platform.sockets import OpenSocket, open_sockets, shut_down

if TYPE_CHECKING:
    from holdfast.worker.worker_place import WorkerPlace

_NAME = "holdfast-live"
_SMALL = 1 << 16  # bytes: copying such a tensor costs nothing compared with a collective
_FORM_WITHIN = timedelta(seconds=10)  # the new group; a peer that was lost again is noticed by then


class _Finished(dist.Work):  # type: ignore[misc]
    """The work of a group that has one member, or has lost a peer. ``spoil``: says that the value means nothing."""

    def __init__(self, value: Any, why: str | None = None, spoil: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._value, self._why, self._spoil = value, why, spoil

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._why is not None:
            raise PeerLostError(self._why)
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> Any:
        if self._spoil is not None:
            self._spoil()
        future: Any = torch.futures.Future()
        future.set_result(self._value)
        return future


class _Watched(dist.Work):  # type: ignore[misc]
    """A collective of the inner group. ``undo``: what to do instead of raising, once the step's update is done."""

    def __init__(self, work: Any, group: LiveGroup, value: Any, undo: Callable[[], None] | None) -> None:
        super().__init__()
        self._work, self._group, self._value, self._undo = work, group, value, undo
        self._number = group.number

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        try:
            return bool(self._work.wait(timeout) if timeout else self._work.wait())
        except RuntimeError as error:
            self._group.lose(str(error))
            if self._undo is None:
                raise PeerLostError(str(error)) from None
            self._undo()
            return True

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def get_future(self) -> Any:
        return self._work.get_future().then(self._taken)

    def _taken(self, future: Any) -> Any:
        try:
            return future.value()
        except RuntimeError as error:
            if self._number == self._group.number:  # else it is of a group that was replaced meanwhile
                self._group.lose(str(error))
                self._group.spoil()
            return self._value


class LiveGroup(dist.ProcessGroup):  # type: ignore[misc]
    """``inner`` None: it is alone."""

    def __init__(self, rank: int, size: int, inner: Any, sockets: Iterable[OpenSocket] = ()) -> None:
        super().__init__(rank, size)
        self.number = 0  # of the last regrouping
        self.has_updated = False  # all optimizers have made this step's update
        self.is_spoiled = False  # code that cannot notice it, such as DDP, got values that mean nothing
        self.on_reduce: Callable[[], None] = _nothing  # called before each all-reduce
        self._inner = inner
        self._alone = 0
        self._why: str | None = None
        self._sockets = list(sockets)

    @property
    def is_lost(self) -> bool:
        return self._why is not None

    @property
    def why_lost(self) -> str:
        return self._why or ""

    @property
    def is_alone(self) -> bool:
        return self._alone > 0

    def lose(self, why: str) -> None:
        self._why = self._why or why

    def spoil(self) -> None:
        self.is_spoiled = True

    @contextlib.contextmanager
    def alone(self) -> Any:
        """In this context every collective completes immediately, with this rank's own values."""
        self._alone += 1
        try:
            yield
        finally:
            self._alone -= 1

    def abort(self, why: str) -> None:
        """A peer is lost: make collectives that wait for it fail. May be called from another thread."""
        self.lose(why)
        shut_down(self._sockets)

    def join(self, number: int, store: Any, rank: int, timeout: timedelta) -> None:
        """Form the inner group again, all ranks at the same time, each with the same number."""
        self.leave()
        before = open_sockets()
        prefix = dist.PrefixStore(f"live{number}", store)
        try:
            self._inner = dist.ProcessGroupGloo(prefix, rank, self.size(), _FORM_WITHIN)
        except RuntimeError as error:
            raise PeerLostError(str(error)) from None
        self._inner._set_default_timeout(timeout)
        self._sockets = [found for found in open_sockets() if found not in before]
        self._why, self.number = None, number

    def leave(self) -> None:
        """Close the connections: a peer that still waits in a collective of the old group is woken by that."""
        self.abort("this rank has left the group")
        self._inner = None

    def send_to(self, tensor: torch.Tensor, rank: int) -> None:
        self.send([tensor], rank, 0).wait()

    def receive_from(self, tensor: torch.Tensor, rank: int) -> None:
        self.recv([tensor], rank, 0).wait()

    # What torch calls

    def getBackendName(self) -> str:
        return _NAME

    def shutdown(self) -> None:
        self._inner = None

    def _run(self, name: str, value: Any, alone: Callable[[], None] | None, *arguments: Any) -> Any:
        if self._alone or (self._inner is None and not self.is_lost):
            if alone is None:
                raise RuntimeError(f"{name}() needs the other ranks, and this one has not joined them: call resume()")
            alone()
            return _Finished(value)
        if self._why is not None:
            return _Finished(value, None if self.has_updated else self._why, self.spoil)
        undo = self._undo_of(value) if self.has_updated else None
        try:
            return _Watched(getattr(self._inner, name)(*arguments), self, value, undo)
        except RuntimeError as error:
            self.lose(str(error))
            return _Finished(value, None if self.has_updated else str(error), self.spoil)

    def _undo_of(self, value: Any) -> Callable[[], None]:
        """The step is done, and is not repeated: values that are still to be shared, such as a loss to print, stay this
        rank's."""
        tensors = [tensor for tensor in _flat(value) if tensor.numel() * tensor.element_size() <= _SMALL]
        copies = [tensor.clone() for tensor in tensors]

        def undo() -> None:
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)

        return undo

    def allreduce(self, tensors: Any, *rest: Any) -> Any:
        self.on_reduce()
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return self._run("allreduce", tensors, _nothing, tensors, *rest)

    def allreduce_coalesced(self, tensors: Any, *rest: Any) -> Any:
        return self._run("allreduce_coalesced", tensors, _nothing, tensors, *rest)

    def broadcast(self, tensors: Any, *rest: Any) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return self._run("broadcast", tensors, _nothing, tensors, *rest)

    def reduce(self, tensors: Any, *rest: Any) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        return self._run("reduce", tensors, _nothing, tensors, *rest)

    def barrier(self, *options: Any) -> Any:
        return self._run("barrier", [], _nothing, *options)

    def allgather(self, outputs: Any, inputs: Any, *rest: Any) -> Any:
        def alone() -> None:
            for gathered, own in zip(outputs, inputs, strict=True):
                for tensor in gathered:
                    tensor.copy_(own)

        return self._run("allgather", outputs, alone, outputs, inputs, *rest)

    def _allgather_base(self, output: Any, source: Any, *rest: Any) -> Any:
        def alone() -> None:
            for part in output.view(self.size(), -1):
                part.copy_(source.view(-1))

        return self._run("_allgather_base", [output], alone, output, source, *rest)

    def gather(self, outputs: Any, inputs: Any, *rest: Any) -> Any:
        return self._run("gather", outputs, None, outputs, inputs, *rest)

    def scatter(self, outputs: Any, inputs: Any, *rest: Any) -> Any:
        return self._run("scatter", outputs, None, outputs, inputs, *rest)

    def reduce_scatter(self, outputs: Any, inputs: Any, *rest: Any) -> Any:
        return self._run("reduce_scatter", outputs, None, outputs, inputs, *rest)

    def _reduce_scatter_base(self, output: Any, source: Any, *rest: Any) -> Any:
        return self._run("_reduce_scatter_base", [output], None, output, source, *rest)

    def alltoall(self, outputs: Any, inputs: Any, *rest: Any) -> Any:
        return self._run("alltoall", outputs, None, outputs, inputs, *rest)

    def alltoall_base(self, output: Any, source: Any, *rest: Any) -> Any:
        return self._run("alltoall_base", [output], None, output, source, *rest)

    def send(self, tensors: Any, *rest: Any) -> Any:
        return self._run("send", tensors, None, tensors, *rest)

    def recv(self, tensors: Any, *rest: Any) -> Any:
        return self._run("recv", tensors, None, tensors, *rest)

    def recv_anysource(self, tensors: Any, *rest: Any) -> Any:
        return self._run("recv_anysource", tensors, None, tensors, *rest)


class StandbyGroup(LiveGroup):
    """The group of a standby worker, which has no rank yet: the script waits where it asks for one."""

    def __init__(self, size: int, place: WorkerPlace) -> None:
        super().__init__(0, size, None)
        self._place = place
        self._is_installed = False

    def install(self) -> None:
        install(self)
        self._is_installed = True

    def rank(self) -> int:
        """torch asks for it once when it installs the group, for its own log. Later calls come from the script."""
        return self._place.get().rank if self._is_installed else 0

    def getRank(self) -> int:
        """torch asks for it while DDP is created; any value will do then."""
        return self.rank() if self._place.is_known else 0


def _nothing() -> None: ...


def _flat(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flat(inner)


_formed: list[OpenSocket] = []  # the connections of the group that the workers began with


def remember_sockets(before: list[OpenSocket]) -> None:
    """The group was formed just now; ``before`` are the sockets that were open before."""
    _formed[:] = [found for found in open_sockets() if found not in before]


def current() -> LiveGroup | None:
    group = c10d.GroupMember.WORLD
    return group if isinstance(group, LiveGroup) else None


def take_over() -> LiveGroup:
    """Put a live group into the place of the default one, which becomes its inner group."""
    inner = c10d._get_default_group()
    group = LiveGroup(inner.rank(), inner.size(), inner, _formed)
    install(group)
    return group


def install(group: LiveGroup, store: Any = None) -> None:
    """Make it the default group, in the place of the one that there may be."""
    world, before = c10d._world, c10d.GroupMember.WORLD
    world.pg_map[group] = ("gloo", store) if before is None else world.pg_map[before]
    world.pg_names[group] = _NAME
    world.pg_group_ranks[group] = {rank: rank for rank in range(group.size())}
    world.pg_backend_config[group] = "cpu:gloo"
    world.pg_to_tag[group] = ""
    c10d._update_default_pg(group)
    group._set_group_name(_NAME)
    c10d._register_process_group(_NAME, group)
