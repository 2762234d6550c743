"""A training state in memory that outlives the worker: written at the speed of a copy, read by the next attempt.

Each rank writes its own piece, and the first rank of each node writes what is the same on all ranks. A piece consists
of the tensors, one after the other, and a description of everything else. The description is read by an unpickler that
knows only plain containers: it can create no other object and call nothing.
"""

from __future__ import annotations

import math
import mmap
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from holdfast.train.checks import warn_once
from holdfast.train.torch import state_parts, state_shards
from holdfast.train.torch.elastic import ElasticLoader
from holdfast.train.torch.plain_pickle import describe_tree, read_tree
from holdfast.wire.worker_messages import Memory, TookSnapshot
from holdfast.worker.snapshot_buffers import DATA_AT, PieceBuffers, SnapshotFile, header_in, header_of

if TYPE_CHECKING:
    from holdfast.worker.session import Session

_ALIGN = 64
_KEPT_WITHIN_S = 10.0  # how long a snapshot waits for the one before it to be complete on all ranks
_SHARED = "shared"
_IN_WORDS = ("python", "numpy")  # generators whose state is a list of words


def _piece(rank: int) -> str:
    return f"rank-{rank}"


class _Places:
    """Where each tensor of a tree will be, one after the other."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.places: list[tuple[int, str, tuple[int, ...]]] = []
        self.size = 0

    def add(self, tensor: torch.Tensor) -> tuple[int, str, tuple[int, ...]]:
        place = (self.size, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        self.tensors.append(tensor)
        self.places.append(place)
        self.size += -(-tensor.numel() * tensor.element_size() // _ALIGN) * _ALIGN
        return place


def _view(content: mmap.mmap, place: tuple[int, str, tuple[int, ...]]) -> torch.Tensor:
    at, name, shape = place
    dtype = getattr(torch, name)
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=DATA_AT + at).view(shape)


class _Piece:
    def __init__(self, buffers: PieceBuffers) -> None:
        self._buffers = buffers
        self._views: dict[Path, tuple[mmap.mmap, list[Any], list[torch.Tensor]]] = {}

    def write(self, tree: Any, attempt_number: int, step: int, keep: tuple[int, int] | None) -> str:
        places = _Places()
        meta = describe_tree(tree, places.add)
        file = self._buffers.next(keep)
        content = file.begin(places.size, len(meta))
        self._copy(file, content, places)
        file.commit(attempt_number, step, places.size, meta)
        return str(file.path)

    def _copy(self, file: SnapshotFile, content: mmap.mmap, wanted: _Places) -> None:
        known = self._views.get(file.path)
        if known is None or known[0] is not content or known[1] != wanted.places:
            views = [_view(content, place) for place in wanted.places]
            known = self._views[file.path] = (content, wanted.places, views)
        if known[2]:
            torch._foreach_copy_(known[2], wanted.tensors)


class SnapshotWriter:
    """Takes the snapshots of a rank. All ranks take them after the same steps.

    With a snapshot after each step, the next update waits until it is complete on all ranks, copies included, while
    the gradients for that update are computed. So whatever is lost, at most one completed step is lost with it.
    """

    def __init__(self, session: Session, memory: Memory | None, keep: tuple[int, int] | None = None) -> None:
        """``keep``: the newest snapshot that is complete on all ranks, by attempt and step, if that is known. Without
        memory it takes no snapshots, but keeps pace with the other ranks."""
        self._session = session
        self._pieces: dict[str, _Piece] = {}
        self._memory = memory or Memory("")
        self._keep = keep or _resumed_from(self._memory)
        self._last = -1  # the step that was written last
        self._step = -1  # that was completed last
        self._is_on = self._is_told = memory is not None
        self._pace = _Pace()
        session.at_end(register_optimizer_step_pre_hook(self._before_update).remove)

    def count_step(self, step: int, every: int, share: float | None) -> bool:
        """Whether a snapshot is due after it."""
        self._step = step
        if step <= self._session.regrouped_at:
            return False  # a replaced rank takes none of it
        is_due = self._pace.count_step(step, every, share)
        if is_due and not self._is_told:  # this node has no memory, but others may have some
            self._tell_end(f"{self._session.node_id} has no memory for them")
        if is_due and not self._is_on:
            self._pace.took(self._session.world_size)
        return is_due and self._is_on

    def _before_update(self, *_: Any) -> None:
        if self._is_on and self._pace.is_each_step and self._last == self._step:
            self._await_kept()

    def _await_kept(self) -> bool:
        """Whether the last snapshot is complete, so that the one before it is no longer needed."""
        if self._last < 0 or self._session.await_kept(self._last, _KEPT_WITHIN_S):
            kept = self._session.snapshot_kept
            if kept.why_ended:
                self._stop(kept.why_ended)
                return False
            if kept.given_up and kept.step >= self._last:
                self.regrouped(kept.complete)
            return True
        self._end(f"step {self._last} was not kept by all ranks within {_KEPT_WITHIN_S:g} s")
        return False

    def take(self, captured: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
        self._take(captured, parts)
        self._pace.took(self._session.world_size)

    def _take(self, captured: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
        session, step = self._session, captured["steps"]
        if not session.reports_are_told:
            # An earlier report is still being uploaded, so the snapshot's place in the run is uncertain.
            session.tell_snapshot(TookSnapshot(step))
            return
        if not self._await_kept():
            return
        trees = split(captured, parts, session.rank, session.local_rank)
        try:
            where = (session.attempt_number, step, self._keep)
            files = {piece: self._piece(piece).write(tree, *where) for piece, tree in trees.items()}
        except OSError as error:
            self._end(str(error))
            return
        moves = state_shards.can_be_cut(parts)
        own = alike(parts, captured["parts"]) if moves else b""
        session.tell_snapshot(TookSnapshot(step, 0, moves, files, self._keep, own))
        self._last, self._keep = step, None

    def replaced(self, complete: tuple[int, int] | None) -> None:
        """Ranks were replaced: the new ones learn the pace, and so do the others again."""
        self._pace = _Pace()
        self.regrouped(complete)

    def regrouped(self, complete: tuple[int, int] | None) -> None:
        """Ranks were replaced, or one has skipped a snapshot. A snapshot that was incomplete then will never be
        complete: do not wait for it, and reuse its memory instead of that of the snapshot before."""
        if complete is None or complete[1] < self._last:
            self._last, self._keep = -1, complete

    def _end(self, why: str) -> None:
        """For all ranks: without this one, no snapshot is complete."""
        self._tell_end(why)
        self._stop(why)

    def _tell_end(self, why: str) -> None:
        self._is_told = True
        self._session.tell_snapshot(TookSnapshot(self._step, why_ended=why))

    def _stop(self, why: str) -> None:
        self._is_on = False
        warn_once("snapshots end", f"no more snapshots are taken in memory: {why}")

    def _piece(self, piece: str) -> _Piece:
        if piece not in self._pieces:
            keep = self._memory.pieces.get(piece, "")
            self._pieces[piece] = _Piece(PieceBuffers(Path(self._memory.directory), piece, keep))
        return self._pieces[piece]


def _resumed_from(memory: Memory) -> tuple[int, int] | None:
    """The snapshot that the worker resumed from, by attempt and step; None if from something else."""
    if _SHARED not in memory.pieces:
        return None
    header = header_in(Path(memory.pieces[_SHARED]))
    return (header.attempt_number, header.step) if header.step >= 0 else None


class _Pace:
    """After which steps a snapshot is due. A share of the time is converted into a number of steps. All ranks agree on
    the steps even while that number is being learnt: each of them calls ``took`` for each step that is due, also if it
    takes no snapshot then."""

    def __init__(self) -> None:
        self._every = 1
        self._taken = 0
        self._begun = self._called = time.perf_counter()
        self._step_s = 0.0
        self._share: float | None = None
        self.is_each_step = False

    def count_step(self, step: int, every: int, share: float | None) -> bool:
        """Whether a snapshot is due after it."""
        now = time.perf_counter()
        self._step_s, self._begun, self._share = now - self._called, now, share
        self._called = now
        interval = every if share is None else self._every
        self.is_each_step = interval == 1
        return step % interval == 0

    def took(self, world_size: int) -> None:
        self._called = time.perf_counter()
        self._taken += 1
        if self._share is None or self._taken & (self._taken - 1):  # after the 1st, 2nd, 4th, 8th, …
            return
        cost = self._called - self._begun
        steps = math.ceil(cost * (1 - self._share) / (self._share * max(self._step_s, 1e-6)))
        every = torch.tensor(max(1, steps))
        if world_size > 1 and dist.is_initialized():
            device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
            every = every.to(device)
            dist.all_reduce(every, dist.ReduceOp.MAX)
        self._every = int(every.item())


def alike(parts: Mapping[str, Any], states: Mapping[str, Any]) -> bytes:
    """A digest of the states that another number of ranks can take over only if they are the same on all of them."""
    sharded = state_parts.sharded_names(parts)
    own = [name for name in states if not state_parts.is_replicated(parts[name]) and name not in sharded]
    own = [name for name in own if not isinstance(parts[name], ElasticLoader)]  # that is the same
    return state_parts.digest_of({name: states[name] for name in own}) if own else b""


def split(captured: Mapping[str, Any], parts: Mapping[str, Any], rank: int, local_rank: int) -> dict[str, Any]:
    """The pieces that this rank writes. Buffers of modules are rank 0's for all, as they are in a checkpoint."""
    states, sharded = captured["parts"], state_parts.sharded_names(parts)
    replicated = [name for name in states if state_parts.is_replicated(parts[name]) and name not in sharded]
    own: dict[str, Any] = {
        "rng": _packed(captured["rng"]),
        "parts": {name: state for name, state in states.items() if name not in replicated and name not in sharded},
        "sharded": {name: state_parts.local(states[name]) for name in sharded},
        "places": state_shards.places_of({name: states[name] for name in sharded}),
    }
    if rank == 0:
        own["buffers"] = {name: state_parts.buffers(parts[name], states[name]) for name in replicated}
    if local_rank:
        return {_piece(rank): own}
    shared = {key: captured[key] for key in ("steps", "values")}
    return {_SHARED: {**shared, "parts": {name: states[name] for name in replicated}}, _piece(rank): own}


def read(memory: Memory, parts: Mapping[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """What ``split`` took apart, for a rank of this many. Its tensors are in the mapped files: apply it before anything
    is written there."""
    shared = _load(memory.pieces[_SHARED])
    first = _load(memory.pieces[_piece(0)])
    own = _load(memory.pieces[_piece(rank)]) if 0 < rank < memory.world_size else first
    states = {**shared["parts"], **own["parts"]}
    for name, buffers in first["buffers"].items():
        states[name] = {**states[name], **buffers}
    if own["sharded"] and memory.world_size == world_size:
        states |= state_parts.filled(parts, own["sharded"], state_shards.fill_own)
    elif own["sharded"]:
        others = (_load(memory.pieces[_piece(other)]) for other in range(1, memory.world_size))
        states |= state_shards.taken(parts, [(piece["sharded"], piece["places"]) for piece in (first, *others)])
    rng = _unpacked(own["rng"]) if rank < memory.world_size else None
    return {**shared, "parts": states, "rng": rng, "first_rng": _unpacked(first["rng"])}


def _packed(rng: Mapping[str, Any]) -> dict[str, Any]:
    """The words of the generators as bytes: the pickler takes as long for a list of them as for a small model."""
    return {**rng, **{name: _with_words(rng[name], lambda words: array("I", words).tobytes()) for name in _IN_WORDS}}


def _unpacked(rng: Mapping[str, Any]) -> dict[str, Any]:
    return {**rng, **{name: _with_words(rng[name], lambda words: array("I", words).tolist()) for name in _IN_WORDS}}


def _with_words(state: Sequence[Any], change: Callable[[Any], Any]) -> list[Any]:
    first, words, *rest = state
    return [first, change(words), *rest]


def _load(path: str) -> Any:
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    header = header_of(content)
    at = DATA_AT + header.data_size
    return read_tree(content[at : at + header.meta_size], lambda place: _view(content, place))
