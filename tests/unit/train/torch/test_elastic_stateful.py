"""torchdata's StatefulDataLoader: over a dataset with a length it becomes elastic, over a stream it stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torchdata.stateful_dataloader as stateful
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own, with newer torch
Prepare = Callable[..., list[Any]]


def make(num_workers: int = 0) -> Any:
    return lambda: stateful.StatefulDataLoader(range(40), batch_size=4, shuffle=True, num_workers=num_workers)


def drive(loaders: list[Any], steps: int | None = None) -> list[list[list[int]]]:
    iterators = [iter(loader) for loader in loaders]
    taken: list[list[list[int]]] = []
    while steps is None or len(taken) < steps:
        batches = [next(iterator, None) for iterator in iterators]
        if batches[0] is None:
            break
        taken.append([batch.tolist() for batch in batches])
    return taken


@pytest.mark.parametrize("num_workers", [0, 2])
def test_it_goes_on_with_another_number_of_workers(
    prepare: Prepare, num_workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = drive(prepare(lambda: DataLoader(range(40), batch_size=4, shuffle=True), 2))
    loaders = prepare(make(num_workers), 2)
    first = drive(loaders, 2)
    assert first == whole[:2]
    state = loaders[0].state_dict()
    assert (state, state["consumed"]) == (loaders[1].state_dict(), 16)
    rest = drive(prepare(make(num_workers), 3, state))
    seen = sorted(item for step in first + rest for batch in step for item in batch)
    assert seen == list(range(40))
    assert caplog.text == ""


def test_its_own_state_is_refused_with_a_word(prepare: Prepare) -> None:
    (loader,) = prepare(make(), 1)
    with pytest.raises(ValueError, match="pass what state_dict"):
        loader.load_state_dict(make()().state_dict())


@pytest.mark.filterwarnings("ignore:prepare_data_loader.. cannot split an IterableDataset")
def test_what_cannot_be_split_keeps_its_own_state(prepare: Prepare) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    loader = stateful.StatefulDataLoader(Stream(), batch_size=2)
    assert prepare(lambda: loader, 2) == [loader, loader]
    weighted = stateful.StatefulDataLoader(range(10), batch_size=2, sampler=WeightedRandomSampler([1.0] * 10, 10))
    assert prepare(lambda: weighted, 1) == [weighted]
    assert drive([weighted], 2)
    assert weighted.state_dict()["_num_yielded"] == 2
