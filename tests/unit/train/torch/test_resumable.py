"""A loader continues in the middle of an epoch with the batches, and the random numbers, of an undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from holdfast.train.torch.resumable import is_resumable, make_resumable
from holdfast.train.torch.rng import rng_state

LENGTH = 23


class Numbers(Dataset[int]):
    def __init__(self) -> None:
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        self.loaded.append(index)
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(LENGTH).tolist())


def loader_of(dataset: Any, resumed: list[Any], over: bool = False, **options: Any) -> Any:
    loader: Any = DataLoader(dataset, **options)
    return make_resumable(loader, lambda: over, lambda: resumed.pop() if resumed else None)


def epoch_of(loader: Any, stop_after: int | None = None) -> list[tuple[Any, float]]:
    """Each batch with a number that training draws for it."""
    found = []
    for batch in loader:
        loader.take()
        found.append((torch.as_tensor(batch).tolist(), torch.rand(()).item()))
        if len(found) == stop_after:
            break
    return found


@pytest.mark.parametrize("consumed", [1, 3, 5, 6])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 4},
        {"batch_size": None, "shuffle": True},
        {"batch_size": 4, "shuffle": True, "drop_last": True},
        {"batch_size": 4, "shuffle": True, "num_workers": 1},
        {"batch_size": 4, "dataset": Stream()},
    ],
    ids=["shuffled", "in order", "samples", "dropped last", "loaded by a process", "stream"],
)
def test_the_rest_of_the_epoch_and_the_next_one(options: dict[str, Any], consumed: int) -> None:
    dataset = options.get("dataset", Numbers())
    options = {name: value for name, value in options.items() if name != "dataset"}
    torch.manual_seed(7)
    undisturbed = loader_of(dataset, [], **options)
    whole, following = epoch_of(undisturbed), epoch_of(undisturbed)
    consumed = min(consumed, len(whole) - 1)

    torch.manual_seed(7)
    before = loader_of(dataset, [], **options)
    assert epoch_of(before, stop_after=consumed) == whole[:consumed]
    state, random = before.state_dict(), rng_state()

    torch.manual_seed(99)  # another process, which has drawn other numbers
    after = loader_of(dataset, [random], **options)
    after.load_state_dict(state)
    assert epoch_of(after) == whole[consumed:]
    assert epoch_of(after) == following


def test_what_was_consumed_is_not_loaded_again() -> None:
    first = loader_of(Numbers(), [], batch_size=4)
    epoch_of(first, stop_after=3)
    numbers = Numbers()
    loader = loader_of(numbers, [rng_state()], batch_size=4)
    loader.load_state_dict(first.state_dict())
    epoch_of(loader)
    assert numbers.loaded == list(range(12, LENGTH))


def test_the_state_at_the_end_of_an_epoch_begins_the_next_one() -> None:
    torch.manual_seed(3)
    loader = loader_of(Numbers(), [], over=True, batch_size=4, shuffle=True)
    epoch_of(loader)
    state, random = loader.state_dict(), rng_state()
    following = epoch_of(loader)
    torch.manual_seed(4)
    resumed = loader_of(Numbers(), [random], batch_size=4, shuffle=True)
    resumed.load_state_dict(state)
    assert epoch_of(resumed) == following


def test_a_batch_that_waits_for_its_step_is_not_consumed() -> None:
    """Lightning fetches one batch more where a loader has no length, to see which is the last."""
    torch.manual_seed(7)
    whole = epoch_of(loader_of(Stream(), [], batch_size=4))
    torch.manual_seed(7)
    before = loader_of(Stream(), [], batch_size=4)
    batches = iter(before)
    next(batches)
    for _ in range(2):
        next(batches)
        before.take()
    after = loader_of(Stream(), [rng_state()], batch_size=4)
    after.load_state_dict(before.state_dict())
    assert [batch for batch, _ in epoch_of(after)] == [batch for batch, _ in whole[2:]]


def test_a_loader_with_a_state_of_its_own_stays_as_it_is() -> None:
    class Stateful(DataLoader[int]):
        def state_dict(self) -> dict[str, Any]:
            return {"own": True}

    loader = Stateful(Numbers())
    assert make_resumable(loader, lambda: False, lambda: None) is loader
    assert loader.state_dict() == {"own": True}
    assert make_resumable([1, 2], lambda: False, lambda: None) == [1, 2]


def test_without_a_wait_a_batch_counts_when_it_is_fetched() -> None:
    """``take`` comes before the step fetches its batch, and then says nothing."""
    loader: Any = make_resumable(DataLoader(Numbers(), batch_size=4), lambda: False, lambda: None, waits=False)
    batches = iter(loader)
    for consumed in (1, 2, 3):
        loader.take()
        next(batches)
        assert loader.state_dict()["consumed"] == consumed


def test_only_changed_loaders_are_resumable_ones() -> None:
    assert is_resumable(loader_of(Numbers(), []))
    assert not is_resumable(DataLoader(Numbers()))
    assert not is_resumable([1, 2])
