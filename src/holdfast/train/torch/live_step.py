"""``TrainState.recoverable``: a step that is repeated, with the same batch, if another rank is lost within it.

Only collectives fail, and an optimizer refuses to step on the result of a failed one. So a survivor is before its
update, and then its step starts over as if nothing had happened, or after it, and then nothing is repeated. Survivors
are at most one update apart: those that are behind, and the replacement of the lost rank, get the state of one that is
ahead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from holdfast.errors import PeerLostError
from holdfast.store.layout import RunLayout
from holdfast.train.checks import warn_once
from holdfast.train.torch import live_buckets, live_group, live_transfer, state_parts
from holdfast.train.torch.elastic import ElasticLoader
from holdfast.train.torch.live_group import LiveGroup
from holdfast.train.torch.live_random import Numbers, NumbersFile
from holdfast.train.torch.order import derive
from holdfast.train.torch.rng import seed_rng
from holdfast.train.torch.torch_config import serve_store

if TYPE_CHECKING:
    from holdfast.train.torch.train_state import TrainState
    from holdfast.worker.session import Session

_MEET_WITHIN = timedelta(seconds=10)
_armed: list[LiveSteps] = []  # the one whose steps can be done again, in this process


class LiveSteps:
    """The steps of one ``TrainState``, in one process."""

    def __init__(self, state: TrainState, session: Session) -> None:
        self._state, self._session = state, session
        self._group: LiveGroup | None = None
        self._timeout = timedelta(seconds=float(session.group_timeout_s))
        self._served: tuple[str, int, Any] | None = None  # of a standby: the store for its peers to meet at
        self._numbers: NumbersFile | None = None
        self._first: Numbers | None = None  # the state with which a replacement starts its first step
        self._last: tuple[int, Numbers] | None = None  # the last recorded state, and for how many steps
        self._has_reduced = False  # whether gradients were reduced in this step
        self._running = False
        self._updates = 0  # that optimizers have made in this step
        self._expected = 0  # in a whole one
        self._accumulates = False  # the last step left gradients for the next one
        self._buffers = _Buffers()

    def _keep_numbers(self, steps: int) -> None:
        """The random state of this rank after this many steps, if it is not recorded yet."""
        if self._numbers is None:
            return
        now = Numbers.now(self._last[1] if self._last is not None else None)
        if self._last is None or self._last[0] != steps or not now.equals(self._last[1]):
            self._last = steps, now
            self._numbers.write(steps, now, begins=False)

    def _reduces(self) -> None:
        """The others may complete this step from now on, whatever becomes of this rank. A step draws before it."""
        if self._running and not self._has_reduced:
            self._has_reduced = True
            self._keep_numbers(self._state.steps + 1)

    # What TrainState calls

    def recoverable(self, step: Callable[..., Any], by_steps: bool) -> Callable[..., Any]:
        problem = self._problem(by_steps)
        if problem is None:
            self._arm()
        elif self._session.world_size > 1:
            warn_once("not recoverable", f"a lost rank ends the attempt, as before: {problem}")

        @functools.wraps(step)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            if self._group is None:
                result = step(*arguments, **keywords)
            else:
                result = self._run(self._group, step, arguments, keywords)
            self._state.steps += 1
            self._keep_numbers(self._state.steps)
            return result

        return counted

    def stand_by(self) -> None:
        """Run by a standby: prepare to join, and wait for a rank."""
        self._served = serve_store(self._session, _MEET_WITHIN)
        self._session.place.get()

    def join(self) -> None:
        """Run by a replacement: get the state of a survivor, and join the group."""
        group = live_group.current()
        assert group is not None, "a replacement begins in a group of its own"
        self._group = group
        self._meet(group, steps=-1)
        self._session.joins = 0

    # Set-up

    def _problem(self, by_steps: bool) -> str | None:
        parts = self._state._parts.values()
        loaders = self._state._loaders()
        if self._session.world_size == 1:
            return "there is one worker"
        if not dist.is_initialized() or dist.get_backend() != "gloo" or self._session.devices:
            return "it works with the gloo backend, on CPUs"
        if self._session.is_launched:
            return "torchrun started the workers"
        if not by_steps and not loaders:
            return "TrainState has no data loader; pass loader=…, or recoverable(by_steps=True)"
        if not all(isinstance(loader, ElasticLoader) for loader in loaders):
            return "a data loader is not from prepare_data_loader()"
        if state_parts.sharded_names(self._state._parts):
            return "the model is sharded, so that no survivor has a copy of what is lost"
        if _armed and _armed[0] is not self:
            return "another TrainState of this process is recoverable already"
        return next(filter(None, map(live_buckets.problem_of, parts)), None)

    def _arm(self) -> None:
        if self._group is None:
            self._group = live_group.current() or live_group.take_over()
        for part in self._state._parts.values():
            live_buckets.adopt(part, self._group)
        if self._numbers is None:
            self._numbers = NumbersFile(_numbers_path(self._session))
            register_optimizer_step_pre_hook(self._before_update)
            register_optimizer_step_post_hook(self._behind_update)
            self._session.on_peers_lost = self._peers_lost
            self._expected = sum(isinstance(p, torch.optim.Optimizer) for p in self._state._parts.values()) or 1
            self._group.on_reduce = self._reduces
            self._keep_numbers(self._state.steps)
            _armed.append(self)
            self._session.arm()

    def _peers_lost(self, number: int) -> None:
        """Called in another thread."""
        if self._group is not None and number > self._group.number:
            self._group.abort("the driver says that a peer is lost")

    def _before_update(self, *_: Any) -> None:
        group = self._group
        if group is not None and self._running and group.is_lost and not group.is_alone:
            raise PeerLostError(group.why_lost)
        if group is not None and not self._running:
            _check_unspoiled(group)
        if self._running and not self._updates:
            self._keep_numbers(self._state.steps + 1)

    def _behind_update(self, *_: Any) -> None:
        self._updates += 1
        if self._group is not None and self._running:
            self._group.has_updated = self._updates >= self._expected

    # A step

    def _run(self, group: LiveGroup, step: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        assert self._numbers is not None
        _check_unspoiled(group)
        self._check_whole()
        if self._first is not None:
            self._first.restore()
            self._first = None
        entry = _Entry(self._state, self._buffers, self._last[1] if self._last is not None else None)
        if self._last is None or self._last[0] != self._state.steps or not entry.numbers.equals(self._last[1]):
            self._numbers.write(self._state.steps, entry.numbers, begins=True)
        call = functools.partial(step, *arguments, **keywords)
        self._updates = 0
        while True:
            try:
                if group.is_lost:
                    raise PeerLostError(group.why_lost)
                return self._try(group, call)
            except PeerLostError:
                if self._updates or self._accumulates:
                    raise  # some gradients or updates are of an unfinished step: it cannot be done again
                entry.restore(self._state)
                ahead = self._meet(group, self._state.steps)
                group.is_spoiled = False  # with the gradients that were, those that the old group left at its end too
                if ahead is not None:
                    return self._catch_up(group, call, ahead)

    def _try(self, group: LiveGroup, call: Callable[[], Any]) -> Any:
        self._updates, self._running, self._has_reduced = 0, True, False
        try:
            result = call()
            if group.is_lost and not group.has_updated:
                raise PeerLostError(group.why_lost)
            self._accumulates = self._updates == 0
            self._expected = self._updates or self._expected
            return result
        finally:
            self._running = group.has_updated = False

    def _catch_up(self, group: LiveGroup, call: Callable[[], Any], ahead: dict[str, Any]) -> Any:
        """The other ranks have completed this step. Run it for its return value and random numbers, and then take their
        state."""
        with group.alone():
            result = call()
        parts = {name: p for name, p in self._state._parts.items() if not isinstance(p, ElasticLoader)}
        state_parts.restore(parts, {name: ahead["parts"][name] for name in parts})
        return result

    def _check_whole(self) -> None:
        if not all(loader.ends_step for loader in self._state._loaders()):
            raise RuntimeError(
                "TrainState.recoverable: the step got only a part of a global batch. Pass it all parts, or use a "
                "larger batch_size in the DataLoader."
            )

    # A new group

    def _meet(self, group: LiveGroup, steps: int) -> dict[str, Any] | None:
        """Wait for all ranks, form the group, and send the state to the ranks that need it: returned if the others are
        ahead."""
        session, own = self._session, None
        if steps < 0:
            own = self._served or serve_store(session, _MEET_WITHIN)
        while True:
            group.leave()
            found = session.regroup(steps, own[:2] if own is not None else None)
            try:
                store = own[2] if own is not None and found["endpoint"] == own[:2] else _store_at(found["endpoint"])
                group.join(found["number"], store, session.rank, self._timeout)
                ahead = self._share(group, found)
                self._state._regrouped(found["snapshot"])
                return ahead
            except PeerLostError:
                pass  # another rank is lost

    def _share(self, group: LiveGroup, found: dict[str, Any]) -> dict[str, Any] | None:
        session, source, steps = self._session, found["source"], found["steps"]
        wanting = [rank for rank in range(len(steps)) if rank in found["replaced"] or steps[rank] < steps[source]]
        if session.rank == source:
            captured = self._captured()
            for rank in wanting:
                live_transfer.send(group, rank, captured)
            return None
        if session.rank not in wanting:
            return None
        captured = live_transfer.receive(group, source)
        if session.rank not in found["replaced"]:
            return captured
        self._become(captured, steps[source], found)
        return None

    def _captured(self) -> dict[str, Any]:
        captured = self._state.capture()
        for name, part in self._state._parts.items():
            if isinstance(part, ElasticLoader):
                captured["parts"][name] = part.state_before_batch()
        return captured

    def _become(self, captured: dict[str, Any], steps: int, found: dict[str, Any]) -> None:
        session = self._session
        numbers = captured.pop("rng")
        self._state.apply({**captured, "rng": None})
        session.continue_behind(found["reports"], found["made"][session.rank])
        path = _numbers_path(session)
        self._first = NumbersFile(path).read(steps) if path.exists() else None
        if self._first is None:  # the rank was lost with its machine: derive numbers that are the same each time
            seed_rng(derive("torch", *numbers["torch"].tolist()), session.rank)
            self._first = Numbers()


class _Buffers:
    """Copies of the buffers of modules. Not every operation that changes a buffer is visible: all are copied, each
    time."""

    def __init__(self) -> None:
        self._owners: list[dict[str, torch.Tensor | None]] | None = None  # as DDP, it looks for modules once
        self._buffers: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []

    def take(self, modules: list[torch.nn.Module]) -> None:
        if self._owners is None:
            unique = {id(one): one for module in modules for one in module.modules() if one._buffers}
            self._owners = [one._buffers for one in unique.values()]
        buffers = [buffer for owner in self._owners for buffer in owner.values() if buffer is not None]
        known = self._buffers
        if len(buffers) != len(known) or any(
            b is not k or b.shape != c.shape for b, k, c in zip(buffers, known, self._copies, strict=True)
        ):
            self._copies = [torch.empty_like(buffer) for buffer in buffers]
        self._buffers = buffers
        with torch.no_grad():
            if buffers:
                torch._foreach_copy_(self._copies, buffers)

    def restore(self) -> None:
        with torch.no_grad():
            if self._buffers:
                torch._foreach_copy_(self._buffers, self._copies)


class _Entry:
    """What a step changes before its first collective fails: random numbers, buffers, gradients and plain values."""

    def __init__(self, state: TrainState, buffers: _Buffers, known: Numbers | None) -> None:
        self.numbers = Numbers.now(known)
        self._values, self._buffers = dict(state._values), buffers
        self._modules = [part for part in state._parts.values() if isinstance(part, torch.nn.Module)]
        buffers.take(self._modules)

    def restore(self, state: TrainState) -> None:
        self.numbers.restore()
        state._values.update(self._values)
        self._buffers.restore()
        for module in self._modules:
            module.zero_grad(set_to_none=True)


def _check_unspoiled(group: LiveGroup) -> None:
    """A model that is trained outside a recoverable step, too, has gradients of a collective that failed: its step
    cannot be repeated."""
    if group.is_spoiled:
        raise PeerLostError(
            "a peer was lost while gradients were reduced outside a recoverable step; make that training step "
            "recoverable, too"
        )


def _numbers_path(session: Session) -> Path:
    return RunLayout(Path(session.run_dir)).report_log(session.attempt_number, session.rank).with_suffix(".numbers")


def _store_at(endpoint: tuple[str, int]) -> Any:
    try:
        return dist.TCPStore(*endpoint, is_master=False, wait_for_workers=False, timeout=_MEET_WITHIN)
    except RuntimeError as error:
        raise PeerLostError(str(error)) from None
