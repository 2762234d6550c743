from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from holdfast.train.torch import SeededDataset, rng_state, seed_rng, set_rng_state

Prepare = Callable[..., list[Any]]
Drawn = tuple[Any, ...]


def draw() -> Drawn:
    numbers = (random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.randn()))
    return (*numbers, torch.rand(1).item(), torch.randn(1).item())


class Augmented(Dataset[Any]):
    """Each sample with random numbers of all kinds."""

    def __init__(self, size: int = 24) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, *draw()], dtype=torch.float64)


def test_a_state_is_gone_on_from() -> None:
    draw()
    state = rng_state()
    expected = [draw() for _ in range(3)]
    seed_rng(1)
    set_rng_state(state)
    assert [draw() for _ in range(3)] == expected


def test_a_state_is_read_without_pickled_objects() -> None:
    draw()
    file = io.BytesIO()
    torch.save({"rng": rng_state()}, file)
    expected = draw()
    file.seek(0)
    set_rng_state(torch.load(file, weights_only=True)["rng"])
    assert draw() == expected
    state = rng_state()
    assert json.loads(json.dumps([state["python"], state["numpy"]])) == [state["python"], state["numpy"]]


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no cuda, numpy, python. Pass the whole value that rng_state\(\) returned"):
        set_rng_state({"torch": torch.get_rng_state()})


def test_equal_keys_give_equal_numbers_and_others_others() -> None:
    drawn: dict[tuple[int | str, ...], Drawn] = {}
    for key in ((0,), (0, 1), (1, 0), ("dropout", 0), (2**70,)):
        seed_rng(*key)
        drawn[key] = draw()
    assert len(set(drawn.values())) == len(drawn)
    for key, numbers in drawn.items():
        seed_rng(*key)
        assert draw() == numbers


def rows(loaders: list[Any]) -> dict[int, Drawn]:
    return {int(row[0]): tuple(row.tolist()) for one in loaders for batch in one for row in batch}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_augmentations_depend_on_nothing_but_seed_epoch_and_index(prepare: Prepare, num_workers: int) -> None:
    def make(seed: int = 0, batch_size: int = 3, workers: int = num_workers) -> Any:
        data = SeededDataset(Augmented(), seed=seed)
        return lambda: DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=workers)

    expected = rows(prepare(make(workers=0), 1))
    assert rows(prepare(make(), 3)) == expected
    assert rows(prepare(make(batch_size=5), 2)) == expected
    numbers = [number for row in expected.values() for number in row[1:]]
    assert len(set(numbers)) == len(numbers)
    assert set(rows(prepare(make(seed=1), 1)).values()).isdisjoint(expected.values())


def test_augmentations_change_with_the_epoch_also_in_workers_that_persist(prepare: Prepare) -> None:
    data = SeededDataset(Augmented(6))
    (stays,) = prepare(lambda: DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True), 1)
    (fresh,) = prepare(lambda: DataLoader(data, batch_size=2), 1)
    epochs = [rows([stays]) for _ in range(3)]
    assert epochs == [rows([fresh]) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]


def test_samples_do_not_disturb_the_numbers_of_the_training(prepare: Prepare) -> None:
    (loader,) = prepare(lambda: DataLoader(SeededDataset(Augmented()), batch_size=4), 1)
    seed_rng(3)
    expected = [draw() for _ in range(7)]
    seed_rng(3)
    drawn = [draw()]
    for _ in loader:
        drawn.append(draw())
    assert drawn == expected


def test_loader_workers_of_different_ranks_draw_different_numbers_each_time_the_same(prepare: Prepare) -> None:
    """Without a SeededDataset too."""

    def drawn(epoch: int) -> list[dict[int, Drawn]]:
        loaders = prepare(lambda: DataLoader(Augmented(8), batch_size=2, num_workers=1), 2)
        for loader in loaders:
            loader.set_epoch(epoch)
        return [rows([loader]) for loader in loaders]

    first = drawn(0)
    assert drawn(0) == first
    numbers = [row[1:] for rank in (*first, *drawn(1)) for row in rank.values()]
    assert len(set(numbers)) == 16


def test_a_seeded_dataset_is_a_dataset() -> None:
    data = SeededDataset(Augmented(5))
    assert len(data) == 5
    assert torch.equal(data[3], data[3])
    assert not torch.equal(data[3], data[(1, 3)])
    with pytest.raises(IndexError):
        SeededDataset([1, 2])[7]


def test_gpus_are_those_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without one: what is asked of torch.cuda."""
    states = {4: torch.tensor([4]), 6: torch.tensor([6]), 1: torch.tensor([1])}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda saved, device: states.__setitem__(device, saved))
    monkeypatch.setattr("holdfast.train.torch.rng.sessions.current", lambda: _Worker([4, 6]))
    state = rng_state()
    assert state["cuda"] == [torch.tensor([4]), torch.tensor([6])]
    monkeypatch.setattr("holdfast.train.torch.rng.sessions.current", lambda: _Worker([6, 1]))
    set_rng_state(state)
    assert [int(states[device]) for device in (4, 6, 1)] == [4, 4, 6]


class _Worker:
    def __init__(self, devices: list[int]) -> None:
        self.devices = devices
