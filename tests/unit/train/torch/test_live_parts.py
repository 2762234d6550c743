"""The parts of live recovery that need no second process: random numbers, a group that is alone, settled buckets."""

from __future__ import annotations

import pickle
import random
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from holdfast.errors import PeerLostError
from holdfast.train.torch import live_buckets, live_group, live_transfer
from holdfast.train.torch.live_group import LiveGroup
from holdfast.train.torch.live_random import Numbers, NumbersFile
from holdfast.train.torch.live_step import LiveSteps


def draws() -> tuple[Any, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        torch.rand(3).tolist(),
    )


def test_another_process_continues_with_the_same_numbers(tmp_path: Path) -> None:
    random.gauss(0, 1)  # it keeps a second one for later
    np.random.randn()
    NumbersFile(tmp_path / "numbers").write(7, Numbers(), begins=False)
    wanted = draws()
    found = NumbersFile(tmp_path / "numbers").read(7)
    assert found is not None
    found.restore()
    assert draws() == wanted


def test_what_a_step_begins_with_counts_more_than_what_the_last_one_left(tmp_path: Path) -> None:
    file = NumbersFile(tmp_path / "numbers")
    file.write(4, Numbers(), begins=False)
    draws()
    file.write(4, later := Numbers(), begins=True)
    found = file.read(4)
    assert found is not None
    assert found.equals(later)
    assert file.read(5) is None
    assert file.read(2) is None  # of the same place, and long overwritten


def _python_normal() -> float:
    return random.gauss(0, 1)


@pytest.mark.parametrize(
    "draw",
    [random.random, _python_normal, np.random.rand, np.random.randn, lambda: np.random.seed(5), lambda: torch.rand(1)],
    ids=["python", "python normal", "numpy", "numpy normal", "numpy seed", "torch"],
)
def test_nothing_that_was_drawn_is_missed(draw: Any) -> None:
    """What is known of earlier numbers saves time, and hides no change: Python and NumPy keep every second normal
    number."""
    np.random.seed(0)
    random.seed(0)
    known = Numbers()
    for _ in range(4):
        assert Numbers.now(known).equals(known)
        assert Numbers.now(known).equals(Numbers())
        draw()
        now = Numbers.now(known)
        assert not now.equals(known)
        assert now.equals(Numbers())
        known = now
        if draw.__name__ == "<lambda>":
            break  # the same seed again changes nothing


def test_numbers_that_nobody_drew_from_are_not_taken_again() -> None:
    random.seed(0)
    np.random.seed(0)
    known = Numbers()
    assert Numbers.now(known) is known
    torch.rand(1)
    now = Numbers.now(known)
    assert (now._python is known._python, now._numpy is known._numpy) == (True, True)
    assert not now.equals(known)


@pytest.mark.parametrize("at", [0, 8, 12, 16, 40, 3000])
def test_numbers_that_were_half_written_are_not_used(at: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    NumbersFile(path).write(2, Numbers(), begins=False)
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert NumbersFile(path).read(2) is None


@pytest.fixture
def group() -> Iterator[LiveGroup]:
    alone = LiveGroup(1, 3, None)
    live_group.install(alone)
    yield alone
    distributed_c10d.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_group_that_is_alone_answers_with_its_own_values() -> None:
    tensor = torch.arange(4.0)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    gathered = [torch.empty(4) for _ in range(3)]
    dist.all_gather(gathered, tensor)
    assert all(torch.equal(part, tensor) for part in gathered)
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (1, 3, "gloo")
    with pytest.raises(RuntimeError, match=r"call resume\(\)"):
        dist.send(tensor, 0)


def test_a_lost_group_raises_but_not_behind_the_update(group: LiveGroup) -> None:
    group.lose("rank 0 is gone")
    with pytest.raises(PeerLostError, match="rank 0 is gone"):
        dist.all_reduce(torch.ones(2))
    group.has_updated = True
    loss = torch.ones(2)
    dist.all_reduce(loss)
    assert loss.tolist() == [1.0, 1.0]


def test_buckets_are_settled_before_the_first_step(group: LiveGroup) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
    live_buckets.adopt(wrapped, group)
    assert all(parameter.grad is None for parameter in wrapped.parameters())
    assert not wrapped.reducer._rebuild_buckets(), "they were laid out again"
    wrapped(torch.ones(2, 32)).sum().backward()
    assert not wrapped.reducer._rebuild_buckets(), "the first step laid them out again"


@pytest.mark.usefixtures("group")
def test_what_cannot_be_replaced_is_said() -> None:
    static = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), static_graph=True)
    assert live_buckets.problem_of(static) == "DistributedDataParallel(static_graph=True)"
    assert live_buckets.problem_of(torch.nn.Linear(2, 2)) is None


def test_gradients_that_were_reduced_without_a_peer_are_noticed(group: LiveGroup) -> None:
    """DDP waits for a future, which must not fail: DDP would be broken for good."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for _ in range(2):  # in the second step DDP lays out its buckets again
        model(torch.ones(1, 2)).sum().backward()
    assert not group.is_spoiled, "alone, its own values are right"
    group.lose("rank 0 is gone")
    model(torch.ones(1, 2)).sum().backward()
    assert group.is_spoiled


def test_a_model_outside_a_recoverable_step_is_not_updated_with_such_gradients(group: LiveGroup) -> None:
    steps = LiveSteps(cast(Any, None), cast(Any, SimpleNamespace(group_timeout_s=1.0)))
    steps._group = group
    other = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2, bias=False))
    optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    hook = optimizer.register_step_pre_hook(steps._before_update)
    for _ in range(2):  # in the second step DDP lays out its buckets again
        other(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    before = [parameter.clone() for parameter in other.parameters()]
    group.lose("rank 0 is gone")
    optimizer.zero_grad()
    other(torch.ones(1, 2)).sum().backward()
    with pytest.raises(PeerLostError, match="make that training step recoverable"):
        optimizer.step()
    assert all(map(torch.equal, before, other.parameters()))
    group._why = None  # the peers have met again, in a recoverable step: the gradients are still meaningless
    with pytest.raises(PeerLostError, match="outside a recoverable step"):
        optimizer.step()
    hook.remove()


def test_a_local_model_is_updated_whoever_is_lost(group: LiveGroup) -> None:
    steps = LiveSteps(cast(Any, None), cast(Any, SimpleNamespace(group_timeout_s=1.0)))
    steps._group = group
    group.lose("rank 0 is gone")
    steps._before_update()


class _Line:
    """Two ends of a group, in one process."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []

    def send_to(self, tensor: torch.Tensor, _rank: int) -> None:
        self.sent.append(tensor.clone())

    def receive_from(self, tensor: torch.Tensor, _rank: int) -> None:
        tensor.copy_(self.sent.pop(0))


def test_a_state_arrives_as_it_was_sent() -> None:
    large = torch.randn(600, 600, dtype=torch.float64)
    state = {
        "steps": 3,
        "values": {"loss": 0.5, "list": [1, (2, None)], "count": Counter({"a": 2})},
        "parts": {"model": OrderedDict(w=large, b=torch.ones(3, dtype=torch.bfloat16), empty=torch.empty(0, 4))},
        "rng": {"torch": torch.get_rng_state(), "kind": torch.float16},
    }
    line: Any = _Line()
    live_transfer.send(line, 1, state)
    found = live_transfer.receive(line, 0)
    assert not line.sent
    assert found["values"] == state["values"]
    assert list(found["parts"]["model"]) == ["w", "b", "empty"]
    assert found["rng"]["kind"] is torch.float16
    for name, tensor in state["parts"]["model"].items():
        assert found["parts"]["model"][name].dtype == tensor.dtype
        assert torch.equal(found["parts"]["model"][name], tensor)


class _Runs:
    def __reduce__(self) -> Any:
        return (open, ("/nonexistent/by-a-pickle", "w"))


def test_what_comes_from_a_peer_can_run_nothing() -> None:
    line: Any = _Line()
    live_transfer.send(line, 1, {"values": _Runs()})
    with pytest.raises(pickle.UnpicklingError, match="is not a plain value"):
        live_transfer.receive(line, 0)
    for name in ("load", "nn"):
        live_transfer._send_bytes(line, 1, b'[["%s", [1]]]' % name.encode())
        live_transfer._send_bytes(line, 1, pickle.dumps({}))
        with pytest.raises(ValueError, match="is not a type of tensors"):
            live_transfer.receive(line, 0)
