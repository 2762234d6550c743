from __future__ import annotations

import os
import pickle
import random
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from holdfast.data.tensors import to_device, to_dtypes
from holdfast.train.torch import (
    accelerate,
    backward,
    enable_reproducibility,
    get_device,
    get_devices,
    prepare_data_loader,
    prepare_model,
    prepare_optimizer,
)
from holdfast.train.torch.batches import DeviceLoader

DATA = TensorDataset(torch.arange(10))


def seen(loader: Any) -> list[int]:
    return [int(x) for (batch,) in loader for x in batch]


def of_rank(session: Any, rank: int, loader: Any) -> Any:
    session.rank, session.world_size = rank, 2
    return prepare_data_loader(loader)


@pytest.mark.parametrize("call", [get_device, lambda: prepare_model(torch.nn.Linear(1, 1))])
def test_outside_a_worker_the_error_says_where_it_works(call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"holdfast\.train\.torch\.\w+\(\) works only inside a train function"):
        call()


def test_devices(session: Any) -> None:
    assert get_devices() == [torch.device("cpu")]
    assert get_device() == torch.device("cpu")
    session.devices = [2, 3]
    assert get_devices() == [torch.device("cuda", 2), torch.device("cuda", 3)]


@pytest.mark.usefixtures("session")
def test_one_worker_needs_no_wrapping() -> None:
    model = torch.nn.Linear(2, 2)
    assert prepare_model(model) is model
    assert prepare_model(model, parallel_strategy="fsdp") is model


@pytest.mark.usefixtures("session")
def test_one_worker_has_all_the_data() -> None:
    prepared = prepare_data_loader(DataLoader(DATA, batch_size=2, shuffle=True))
    assert isinstance(prepared, DataLoader)
    assert len(prepared) == 5
    assert [len(batch) for (batch,) in prepared] == [2] * 5
    assert sorted(seen(prepared)) == list(range(10))


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": WeightedRandomSampler([1.0] * 10, 10)},
        {"sampler": RandomSampler(DATA, replacement=True)},
        {"sampler": RandomSampler(DATA, num_samples=3)},
        {"batch_sampler": BatchSampler(SequentialSampler(DATA), 2, drop_last=False)},
    ],
)
def test_one_worker_keeps_a_sampler_of_its_own(options: Any) -> None:
    loader: DataLoader[Any] = DataLoader(DATA, **options)
    assert prepare_data_loader(loader) is loader


@pytest.mark.usefixtures("session")
def test_a_model_goes_to_the_device_that_is_asked_for() -> None:
    assert next(prepare_model(torch.nn.Linear(1, 1), torch.device("meta")).parameters()).is_meta


def test_prepare_model_refuses_what_it_does_not_know(session: Any) -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match='use "ddp", "fsdp" or None'):
        prepare_model(model, parallel_strategy="zero")
    session.world_size = 2
    assert prepare_model(model, parallel_strategy=None) is model
    with pytest.raises(RuntimeError, match="use_gpu=True"):
        prepare_model(model, parallel_strategy="fsdp")


def test_ranks_share_the_data(session: Any) -> None:
    parts = [seen(of_rank(session, rank, DataLoader(DATA, batch_size=2))) for rank in (0, 1)]
    assert parts == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_shuffling_stays_and_follows_the_epoch(session: Any) -> None:
    loaders = [of_rank(session, rank, DataLoader(DATA, batch_size=2, shuffle=True)) for rank in (0, 1)]
    orders = []
    for epoch in (0, 1):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        parts = [seen(loader) for loader in loaders]
        assert sorted(parts[0] + parts[1]) == list(range(10))
        orders.append(parts)
    assert orders[0] != orders[1]
    assert of_rank(session, 0, DataLoader(DATA)).sampler.shuffle is False


def test_all_other_options_stay(session: Any) -> None:
    def collate(items: Any) -> Any:
        return items

    def init(_: int) -> None: ...

    loader: DataLoader[Any] = DataLoader(
        DATA,
        batch_size=3,
        num_workers=1,
        collate_fn=collate,
        drop_last=True,
        timeout=7,
        worker_init_fn=init,
        multiprocessing_context="spawn",
        generator=torch.Generator().manual_seed(3),
        prefetch_factor=5,
        persistent_workers=True,
    )
    prepared = of_rank(session, 1, loader)
    for option in (
        "dataset",
        "batch_size",
        "num_workers",
        "collate_fn",
        "drop_last",
        "timeout",
        "worker_init_fn",
        "multiprocessing_context",
        "generator",
        "prefetch_factor",
        "persistent_workers",
        "pin_memory",
    ):
        assert getattr(prepared, option) == getattr(loader, option), option
    assert isinstance(prepared.sampler, DistributedSampler)
    assert (prepared.sampler.rank, prepared.sampler.num_replicas) == (1, 2)


def test_a_loader_without_batches_stays_one(session: Any) -> None:
    prepared = of_rank(session, 0, DataLoader(DATA, batch_size=None))
    assert prepared.batch_size is None
    assert [int(x) for (x,) in prepared] == [0, 2, 4, 6, 8]


def test_a_distributed_sampler_stays(session: Any) -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(DATA, num_replicas=2, rank=1)
    loader = DataLoader(DATA, sampler=sampler)
    assert of_rank(session, 0, loader) is loader
    batched = DataLoader(DATA, batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    assert of_rank(session, 0, batched) is batched


def test_a_batch_sampler_is_refused_with_a_way_out(session: Any) -> None:
    loader = DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 2, drop_last=False))
    with pytest.raises(ValueError, match="add_dist_sampler=False"):
        of_rank(session, 0, loader)
    assert prepare_data_loader(loader, add_dist_sampler=False) is loader


def test_another_sampler_is_replaced_with_a_word(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    loader = DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 10, 10))
    prepared = of_rank(session, 0, loader)
    assert isinstance(prepared.sampler, DistributedSampler)
    assert prepared.sampler.shuffle
    assert "replaces the WeightedRandomSampler" in caplog.text
    of_rank(session, 0, DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)))
    assert "replaces the RandomSampler" in caplog.text
    caplog.clear()
    of_rank(session, 0, DataLoader(DATA, sampler=RandomSampler(DATA)))
    assert caplog.text == ""


def test_an_iterable_dataset_stays_with_a_warning(session: Any) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    loader = DataLoader(Stream())
    with pytest.warns(UserWarning, match="cannot split an IterableDataset"):
        assert of_rank(session, 0, loader) is loader


def test_batches_of_any_shape_move_and_cast() -> None:
    Pair = namedtuple("Pair", "x y")
    batch = {"a": torch.ones(1), "b": [Pair(torch.ones(1), "text"), (torch.ones(1), 3)], "c": None}
    moved = to_device(batch, torch.device("meta"))
    assert moved["a"].is_meta
    assert moved["b"][0].x.is_meta
    assert isinstance(moved["b"][0], Pair)
    assert moved["b"][1][0].is_meta
    assert (moved["b"][0].y, moved["b"][1][1], moved["c"]) == ("text", 3, None)
    assert to_dtypes(batch, torch.float64)["b"][1][0].dtype == torch.float64
    with pytest.raises(TypeError, match="pass one dtype"):
        to_dtypes([torch.ones(1)], {"a": torch.float64})


def test_a_device_loader_is_its_loader_with_batches_elsewhere() -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(DATA, num_replicas=1, rank=0)
    loader = DeviceLoader(DataLoader(DATA, batch_size=4, sampler=sampler), torch.device("meta"), ahead=True)
    assert len(loader) == 3
    loader.sampler.set_epoch(2)
    assert sampler.epoch == 2
    for _ in range(2):
        assert [batch[0].is_meta for batch in loader] == [True, True, True]
    assert len(pickle.loads(pickle.dumps(loader))) == 3


def test_reproducibility(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "before")

    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), random.random(), float(numpy.random.rand())

    try:
        enable_reproducibility(3)
        first = draw()
        enable_reproducibility(3)
        assert draw() == first
        enable_reproducibility()
        assert draw() != first
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("call", [accelerate, lambda: backward(torch.ones(1)), lambda: prepare_optimizer(None)])
def test_what_is_not_offered_says_what_to_use(call: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.amp"):
        call()
