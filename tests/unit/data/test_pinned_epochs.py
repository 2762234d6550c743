"""An epoch that a loop has named: each pass over it is whole and its own, however many are begun in which threads."""

from __future__ import annotations

import holdfast.data
from holdfast.data import DataIterator


def shard() -> DataIterator:
    return holdfast.data.range(20).random_shuffle(seed=1).iterator()


def epoch_of(number: int) -> list[int]:
    data = shard()
    data.set_epoch(number)
    return [row["id"] for row in data.iter_rows()]


def test_passes_of_a_pinned_epoch_are_whole_and_the_same() -> None:
    data = shard()
    batches = data.iter_batches(batch_size=4)
    next(iter(batches))  # begun before an epoch was named, and left
    data.pin_epoch(3)
    left = iter(batches)
    next(left)
    assert [number for batch in batches for number in batch["id"].tolist()] == epoch_of(3)
    assert [row["id"] for row in data.iter_rows()] == epoch_of(3)
    data.pin_epoch(4)
    next(left)  # an old pass goes on, and moves nothing
    assert [number for batch in batches for number in batch["id"].tolist()] == epoch_of(4) != epoch_of(3)
    assert data.epoch == 4
    assert data.state_dict()["left"] is None


def test_a_set_epoch_and_a_loaded_state_end_the_pin() -> None:
    data = shard()
    data.pin_epoch(3)
    data.set_epoch(5)
    assert [row["id"] for _ in range(2) for row in data.iter_rows()] == epoch_of(5) + epoch_of(6)
    saved = data.state_dict()  # of the start of epoch 7
    data.pin_epoch(3)
    data.load_state_dict(saved)
    assert [row["id"] for _ in range(2) for row in data.iter_rows()] == epoch_of(7) + epoch_of(8)
    data.pin_epoch(3)
    data.set_epoch(3)
    assert [row["id"] for _ in range(2) for row in data.iter_rows()] == epoch_of(3) + epoch_of(4)


def test_after_the_pinned_epoch_comes_the_next() -> None:
    data = shard()
    data.unpin_epoch()  # none was named
    assert data.epoch == 0
    data.pin_epoch(3)
    next(iter(data.iter_batches(batch_size=4)))
    data.unpin_epoch()
    assert [row["id"] for _ in range(2) for row in data.iter_rows()] == epoch_of(4) + epoch_of(5)


def test_batches_know_their_shard() -> None:
    data = shard()
    assert data.iter_batches().shard is data  # type: ignore[attr-defined]
    assert data.iter_torch_batches().shard is data  # type: ignore[attr-defined]
    assert data.iter_rows().shard is data  # type: ignore[attr-defined]
