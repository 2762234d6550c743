"""The parts of live recovery that need no second process: random numbers, a group that is alone, settled buckets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from holdfast.errors import PeerLostError
from holdfast.train.torch import live_buckets, live_group
from holdfast.train.torch.live_group import LiveGroup
from holdfast.train.torch.live_random import Numbers, NumbersFile


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
