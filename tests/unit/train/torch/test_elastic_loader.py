"""The loaders of all ranks, driven side by side as their training loops would: what they see and resume from."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from holdfast.train.torch import ElasticSampler
from holdfast.train.torch.batches import DeviceLoader
from holdfast.train.torch.elastic import ElasticLoader

Prepare = Callable[..., list[Any]]
Steps = list[list[list[int]]]


class Numbers(Dataset[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        return index


def plain(size: int = 40, batch_size: int = 4, **options: Any) -> Callable[[], DataLoader[int]]:
    return lambda: DataLoader(Numbers(size), batch_size=batch_size, shuffle=True, **options)


def drive(loaders: list[Any], steps: int | None = None) -> tuple[Steps, Any]:
    """Let all ranks take so many batches, or all. Returns those of each step, by rank, and the state after them."""
    taken: Steps = []
    iterators = [iter(loader) for loader in loaders]
    while steps is None or len(taken) < steps:
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            assert batches == [None] * len(loaders)
            break
        taken.append([batch.tolist() for batch in batches])
        states = [loader.state_dict() for loader in loaders]
        assert states == [states[0]] * len(loaders)
    return taken, loaders[0].state_dict()


def joined(steps: Steps) -> list[int]:
    """The samples in the order of their positions: the ranks of a step take them in turn."""
    flat = []
    for step in steps:
        for place in range(max(map(len, step))):
            flat += [batch[place] for batch in step if place < len(batch)]
    return flat


def test_every_world_size_sees_the_same_order(prepare: Prepare) -> None:
    orders = []
    for world_size in (1, 2, 3, 4, 8):
        make = plain_with(global_batch_size=8, batch_size=8)
        steps, _ = drive(prepare(make, world_size))
        orders.append(joined(steps))
        assert [sum(map(len, step)) for step in steps] == [8] * 5
    assert orders == [orders[0]] * 5
    assert sorted(orders[0]) == list(range(40))


def plain_with(size: int = 40, batch_size: int = 4, **sampling: Any) -> Callable[[], DataLoader[int]]:
    def make() -> DataLoader[int]:
        data = Numbers(size)
        return DataLoader(data, batch_size=batch_size, sampler=ElasticSampler(data, **sampling))

    return make


def test_from_four_workers_to_two_to_three(prepare: Prepare) -> None:
    whole, _ = drive(prepare(plain(size=100), 4))
    first, state = drive(prepare(plain(size=100), 4), 2)
    second, state = drive(prepare(plain(size=100), 2, state), 2)
    third, state = drive(prepare(plain(size=100), 3, state))
    assert joined(first + second + third) == joined(whole)
    assert sorted(joined(whole)) == list(range(100))
    assert [[len(batch) for batch in step] for step in second] == [[8, 8]] * 2  # the global batch stays 16
    assert [[len(batch) for batch in step] for step in third] == [[6, 5, 5], [4, 3, 3], [4, 3, 3]]
    assert (state["epoch"], state["consumed"], state["global_batch_size"]) == (1, 0, 16)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(1, 90),
    batch=st.integers(8, 24),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**40),
    most=st.sampled_from([1, 3, 100]),
    runs=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(0, 9)), max_size=6),
)
def test_any_sequence_of_worlds_and_kills_sees_each_sample_once(
    prepare: Prepare, size: int, batch: int, shuffle: bool, seed: int, most: int, runs: list[tuple[int, int, int]]
) -> None:
    """A run takes some batches, saves, takes some more and is killed; the next one resumes from what was saved."""
    make = plain_with(size, batch_size=most, global_batch_size=batch, shuffle=shuffle, seed=seed)
    undisturbed = [joined(drive(prepare(make, 1))[0]), joined(drive(prepare(make, 1, at(make, prepare, 1)))[0])]
    state = prepare(make, 1)[0].state_dict()
    seen: dict[int, list[int]] = {0: [], 1: []}
    for world_size, saved_after, killed_after in [*runs, (2, 10**6, 0), (3, 10**6, 0)]:
        if state["epoch"] > 1:
            break
        state = survive(prepare(make, world_size, state), state, saved_after, killed_after, seen[state["epoch"]])
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(size))
    if most == 100:
        assert seen == dict(enumerate(undisturbed))


def at(make: Any, prepare: Prepare, epoch: int) -> Any:
    loader = prepare(make, 1)[0]
    loader.set_epoch(epoch)
    return loader.state_dict()


def survive(loaders: list[Any], state: Any, saved_after: int, killed_after: int, seen: list[int]) -> Any:
    """What survives of a run: the samples up to its last checkpoint, and the state in that."""
    iterators = [iter(loader) for loader in loaders]
    pending: Steps = []
    for number in range(saved_after + killed_after):
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            seen += joined(pending)
            return loaders[0].state_dict()
        weighted = [batch.tolist() if loader.weight else [] for batch, loader in zip(batches, loaders, strict=True)]
        pending.append(weighted)
        if loaders[0].ends_step and number < saved_after:
            seen += joined(pending)
            pending = []
            state = loaders[0].state_dict()
    return state


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"prefetch_factor": 7}])
def test_what_was_fetched_ahead_is_not_consumed(prepare: Prepare, options: Any) -> None:
    make = plain(100, num_workers=2, **options)
    whole, _ = drive(prepare(plain(100), 2))
    state = None
    seen: Steps = []
    for world_size, steps in ((2, 3), (1, 2), (2, 4), (1, None)):
        loaders = prepare(make, world_size, state)
        some, state = drive(loaders, steps)
        seen += some
        del loaders
    assert joined(seen) == joined(whole)


def test_persistent_workers_go_on_with_every_epoch(prepare: Prepare) -> None:
    (loader,) = prepare(plain(30, num_workers=1, persistent_workers=True), 1)
    (other,) = prepare(plain(30), 1)
    for _ in range(3):
        assert drive([loader]) == drive([other])


def test_persistent_workers_forget_an_epoch_that_was_left(prepare: Prepare) -> None:
    (loader,) = prepare(plain(60, num_workers=2, persistent_workers=True), 1)
    (other,) = prepare(plain(60), 1)
    for steps in (2, None, 5, 1, None):
        assert drive([loader], steps) == drive([other], steps)
    _, state = drive([loader], 3)
    loader.load_state_dict(state)
    other.load_state_dict(state)
    assert drive([loader]) == drive([other])


def test_epochs_count_by_themselves_and_by_set_epoch(prepare: Prepare) -> None:
    (loader,) = prepare(plain(), 1)
    counted = [joined(drive([loader])[0]) for _ in range(3)]
    assert loader.epoch == 3
    (other,) = prepare(plain(), 1)
    for epoch in (2, 0, 1):
        other.set_epoch(epoch)
        assert joined(drive([other])[0]) == counted[epoch]
        other.sampler.set_epoch(epoch)
        assert joined(drive([other])[0]) == counted[epoch]
    assert len({tuple(order) for order in counted}) == 3


def test_an_epoch_that_was_left_is_not_gone_on_with_unasked(prepare: Prepare) -> None:
    (loader,) = prepare(lambda: DataLoader(Numbers(10), batch_size=2), 1)
    for _ in range(3):
        assert drive([loader], 2)[0] == [[[0, 1]], [[2, 3]]]


def test_a_state_saved_with_the_last_batch_ends_the_epoch_on_resume(prepare: Prepare) -> None:
    loaders = prepare(plain(), 2)
    _, state = drive(loaders, len(loaders[0]))
    assert (state["epoch"], state["consumed"]) == (0, 40)
    loaders = prepare(plain(), 1, state)
    assert drive(loaders)[0] == []
    assert (loaders[0].epoch, loaders[0].consumed) == (1, 0)


def test_the_state_is_small_and_plain(prepare: Prepare) -> None:
    loaders = prepare(plain(), 2)
    _, state = drive(loaders, 3)
    assert json.loads(json.dumps(state)) == state
    assert state == {
        "epoch": 0,
        "consumed": 24,
        "samples": 40,
        "seed": 0,
        "shuffle": True,
        "global_batch_size": 8,
    }


def test_a_state_that_does_not_fit_is_refused(prepare: Prepare) -> None:
    state = prepare(plain(), 2)[0].state_dict()
    with pytest.raises(ValueError, match="saved with samples=40, and now it is 41"):
        prepare(plain(41), 2, state)
    with pytest.raises(ValueError, match="saved with shuffle=True"):
        prepare(lambda: DataLoader(Numbers(40), batch_size=4), 2, state)
    with pytest.raises(ValueError, match="no epoch, consumed"):
        prepare(plain(), 2, {"_snapshot": {}})


def test_the_saved_seed_is_gone_on_with(prepare: Prepare) -> None:
    whole, _ = drive(prepare(plain_with(seed=5), 2))
    first, state = drive(prepare(plain_with(seed=5), 2), 2)
    rest, _ = drive(prepare(plain_with(seed=6), 2, state))
    assert first + rest == whole
    assert drive(prepare(plain_with(seed=6), 2))[0] != whole


def test_the_users_global_batch_size_is_stronger_than_the_saved_one(prepare: Prepare) -> None:
    first, state = drive(prepare(plain_with(global_batch_size=8), 2), 2)
    second, state = drive(prepare(plain_with(global_batch_size=4), 2, state))
    assert [sum(map(len, step)) for step in second] == [4] * 6
    assert sorted(joined(first + second)) == list(range(40))
    assert state["global_batch_size"] == 4


def test_gradients_accumulate_where_a_share_is_too_large(prepare: Prepare) -> None:
    """The same training, by batch and by accumulated parts: the gradient is that of the mean over the global batch."""
    inputs = torch.randn(26, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def gradients(world_size: int, most: int) -> list[torch.Tensor]:
        def make() -> DataLoader[Any]:
            data = TensorDataset(inputs)
            return DataLoader(data, batch_size=most, sampler=ElasticSampler(data, global_batch_size=10))

        steps: list[torch.Tensor] = []
        total = torch.zeros(3, dtype=torch.float64)
        loaders = prepare(make, world_size)
        for batches in zip(*loaders, strict=True):
            for loader, (batch,) in zip(loaders, batches, strict=True):
                assert len(batch) <= most
                weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
                loss = ((batch @ weights - 1) ** 2).mean() * loader.weight
                loss.backward()
                total += weights.grad / world_size
            ends = {loader.ends_step for loader in loaders}
            assert len(ends) == 1
            if ends == {True}:
                steps.append(total)
                total = torch.zeros(3, dtype=torch.float64)
        return steps

    reference = gradients(1, 10)
    assert [len(reference), len(gradients(1, 3))] == [3, 3]
    for world_size, most in ((1, 3), (1, 1), (2, 2), (3, 100), (3, 1), (4, 2), (7, 1)):
        for one, other in zip(reference, gradients(world_size, most), strict=True):
            assert torch.allclose(one, other)


def test_half_a_global_batch_is_not_consumed(prepare: Prepare) -> None:
    make = plain_with(16, batch_size=2, global_batch_size=8)
    whole, _ = drive(prepare(make, 2))
    steps, state = drive(prepare(make, 2), 3)
    assert state["consumed"] == 8
    rest, _ = drive(prepare(make, 2, state))
    assert steps[:2] + rest == whole


def test_more_workers_than_samples_in_a_batch(prepare: Prepare) -> None:
    make = plain_with(4, batch_size=2, global_batch_size=2)
    loaders = prepare(make, 3)
    with pytest.warns(UserWarning, match=r"multiply the loss by loader\.weight"):
        iterators = [iter(loader) for loader in loaders]
    for _ in range(2):
        batches = [next(iterator).tolist() for iterator in iterators]
        assert batches[2] == batches[0] != batches[1]
        assert [loader.weight for loader in loaders] == [1.5, 1.5, 0.0]


def test_a_loader_without_batches_follows_the_world(prepare: Prepare) -> None:
    def make() -> DataLoader[int]:
        return DataLoader(Numbers(12), batch_size=None, shuffle=True)

    loaders = prepare(make, 2)
    iterators = [iter(loader) for loader in loaders]
    seen = [next(iterator) for _ in range(3) for iterator in iterators]
    loaders = prepare(make, 3, loaders[0].state_dict())
    seen += [item for items in zip(*loaders, strict=True) for item in items]
    assert sorted(seen) == list(range(12))


def test_dropping_the_last_drops_the_same_in_every_world(prepare: Prepare) -> None:
    make = plain(43, drop_last=True)
    whole, _ = drive(prepare(make, 2))
    first, state = drive(prepare(make, 2), 2)
    rest, _ = drive(prepare(make, 3, state))
    assert joined(first + rest) == joined(whole)
    assert len(joined(whole)) == 40


def test_loading_takes_no_random_numbers_of_the_training(prepare: Prepare) -> None:
    for options in ({}, {"num_workers": 1}):
        (loader,) = prepare(plain(**options), 1)
        before = torch.get_rng_state()
        drive([loader])
        assert torch.equal(torch.get_rng_state(), before)


def test_it_is_still_a_data_loader(prepare: Prepare) -> None:
    (loader,) = prepare(plain(drop_last=True, timeout=0), 1)
    assert isinstance(loader, DataLoader)
    assert isinstance(loader.sampler, DistributedSampler)
    assert (loader.batch_size, loader.drop_last, loader.timeout, loader.generator) == (4, True, 0, None)
    assert (len(loader), len(loader.sampler), len(loader.dataset)) == (10, 40, 40)
    assert sorted(loader.sampler) == list(range(40))
    copied = pickle.loads(pickle.dumps(loader_of_module(prepare)))
    assert len(copied) == 10
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        loader.nonsense  # noqa: B018


def loader_of_module(prepare: Prepare) -> Any:
    return prepare(plain(), 1)[0]


def test_batches_out_of_order_are_put_in_order(prepare: Prepare) -> None:
    with pytest.warns(UserWarning, match="keeps batches in order"):
        (loader,) = prepare(plain(in_order=False, num_workers=2), 1)
    assert drive([loader])[0] == drive(prepare(plain(), 1))[0]


def test_batches_on_a_device_are_counted_when_they_are_used(prepare: Prepare) -> None:
    """As on a GPU, where the next batch is copied while this one is used."""
    (made,) = prepare(plain(), 1)

    class Ahead(DeviceLoader):
        def __iter__(self) -> Any:
            waiting: list[Any] = []
            for batch in self._loader:
                if waiting:
                    yield waiting.pop()
                waiting.append(batch)
            yield from waiting

    inner = Ahead(made._loader, torch.device("cpu"), ahead=True)
    loader: Any = ElasticLoader(inner, made.sampler, plain()(), keep_batch=True)
    first, state = drive([loader], 3)
    assert state["consumed"] == 12
    rest, _ = drive(prepare(plain(), 1, state))
    assert first + rest == drive(prepare(plain(), 1))[0]


def test_an_error_in_the_data_passes_through(prepare: Prepare) -> None:
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            if index == 5:
                raise RuntimeError("cannot read sample 5")
            return index

    (loader,) = prepare(lambda: DataLoader(Broken(10), batch_size=2), 1)
    with pytest.raises(RuntimeError, match="cannot read sample 5"):
        drive([loader])
    assert loader.state_dict()["consumed"] == 4


def test_what_the_sampler_refuses() -> None:
    with pytest.raises(ValueError, match=r"global_batch_size=0\): must be at least 1"):
        ElasticSampler(Numbers(3), global_batch_size=0)
    with pytest.raises(TypeError, match="shuffle"):
        ElasticSampler(Numbers(3), shuffle="yes")  # type: ignore[arg-type]


def test_a_sampler_by_itself_splits_as_the_training_is() -> None:
    parts = [list(ElasticSampler(Numbers(9), num_replicas=2, rank=rank, shuffle=False)) for rank in (0, 1)]
    assert parts == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 8]]
