from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from holdfast.train.torch import ElasticStream

Prepare = Callable[..., list[Any]]


class Counting(IterableDataset[int]):
    """Begins each epoch at another number, and tells how much of it was read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.epoch = 0
        self.read = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        for number in range(self.size):
            self.read += 1
            yield 1000 * self.epoch + number


class Skipping(Counting):
    def __init__(self, size: int, first: int = 0) -> None:
        super().__init__(size)
        self.first = first

    def skip(self, count: int) -> Skipping:
        return Skipping(self.size, count)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.size))


def loader(size: int = 50, batch_size: int = 4, global_batch_size: int | None = None, **options: Any) -> Any:
    return lambda: DataLoader(ElasticStream(Counting(size), global_batch_size), batch_size=batch_size, **options)


def drive(loaders: list[Any], steps: int | None = None) -> tuple[list[int], Any]:
    taken: list[int] = []
    for number, batches in enumerate(zip(*loaders, strict=True), 1):
        taken += [item for one, batch in zip(loaders, batches, strict=True) if one.weight for item in batch.tolist()]
        if number == steps:
            break
    states = [one.state_dict() for one in loaders]
    assert states == [states[0]] * len(loaders)
    return taken, states[0]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(1, 70),
    batch=st.integers(4, 16),
    most=st.sampled_from([1, 3, 100]),
    runs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=5),
)
def test_any_sequence_of_worlds_sees_each_sample_once(
    prepare: Prepare, size: int, batch: int, most: int, runs: list[tuple[int, int]]
) -> None:
    seen: list[int] = []
    state = None
    for world_size, steps in [*runs, (3, None)]:
        if state is not None and state["epoch"] > 0:
            break
        before = 0 if state is None else state["consumed"]
        some, state = drive(prepare(loader(size, most, batch), world_size, state), steps)
        consumed = size if state["epoch"] else state["consumed"]
        seen += sorted(some)[: consumed - before]  # parts of an unfinished global batch are not counted
    assert sorted(seen) == list(range(size))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_loader_workers_take_the_parts_in_turn(prepare: Prepare, num_workers: int) -> None:
    expected, _ = drive(prepare(loader(), 2))
    assert drive(prepare(loader(num_workers=num_workers), 2))[0] == expected
    first, state = drive(prepare(loader(num_workers=num_workers), 2), 3)
    rest, _ = drive(prepare(loader(num_workers=num_workers), 2, state))
    assert first + rest == expected


def test_the_global_batch_stays_and_the_order_is_the_streams(prepare: Prepare) -> None:
    first, state = drive(prepare(loader(), 4), 1)
    assert (sorted(first), state["global_batch_size"], state["samples"]) == (list(range(16)), 16, None)
    second, _ = drive(prepare(loader(), 2, state), 1)
    assert sorted(second) == list(range(16, 32))


def test_epochs_reach_the_dataset(prepare: Prepare) -> None:
    (one,) = prepare(loader(4), 1)
    assert drive([one])[0] == [0, 1, 2, 3]
    assert drive([one])[0] == [1000, 1001, 1002, 1003]
    one.set_epoch(5)
    assert drive([one])[0] == [5000, 5001, 5002, 5003]


def test_a_dataset_that_can_skip_is_not_read_over(prepare: Prepare) -> None:
    def make() -> DataLoader[int]:
        return DataLoader(ElasticStream(Skipping(30)), batch_size=5)

    first, state = drive(prepare(make, 2), 2)
    (one,) = prepare(make, 1, state)
    assert sorted(first + drive([one])[0]) == list(range(30))
    assert one.dataset.dataset.read == 0


def test_single_samples(prepare: Prepare) -> None:
    loaders = prepare(lambda: DataLoader(ElasticStream(Counting(6)), batch_size=None), 2)
    assert list(zip(*loaders, strict=True)) == [(0, 1), (2, 3), (4, 5)]


def test_the_last_can_be_dropped(prepare: Prepare) -> None:
    assert len(drive(prepare(loader(50, drop_last=True), 2))[0]) == 48


def test_workers_do_not_persist(prepare: Prepare) -> None:
    with pytest.warns(UserWarning, match="leave persistent_workers out"):
        (one,) = prepare(loader(4, num_workers=1, persistent_workers=True), 1)
    assert [drive([one])[0] for _ in range(2)] == [[0, 1, 2, 3], [1000, 1001, 1002, 1003]]


def test_states_of_streams_and_datasets_are_not_mixed_up(prepare: Prepare) -> None:
    (of_dataset,) = prepare(lambda: DataLoader(range(10)), 1)
    (of_stream,) = prepare(loader(10), 1)
    with pytest.raises(ValueError, match="not to an ElasticStream"):
        of_stream.load_state_dict(of_dataset.state_dict())
    with pytest.raises(ValueError, match="saved with samples=None"):
        of_dataset.load_state_dict(of_stream.state_dict())


def test_by_itself_it_is_the_dataset() -> None:
    assert list(ElasticStream(Counting(3))) == [0, 1, 2]
