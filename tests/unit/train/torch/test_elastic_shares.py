from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.train.torch.cursor import Cursor
from holdfast.train.torch.shares import Cut, SharePart

SAMPLES, BATCHES, WORLDS = st.integers(0, 400), st.integers(1, 64), st.integers(1, 9)
MOST = st.one_of(st.none(), st.integers(1, 10))


@settings(deadline=None)
@given(samples=SAMPLES, batch=BATCHES, drop_last=st.booleans(), first=WORLDS, second=WORLDS, most=MOST)
def test_global_batches_do_not_depend_on_the_world(
    samples: int, batch: int, drop_last: bool, first: int, second: int, most: int | None
) -> None:
    def batches(world_size: int) -> list[tuple[int, int]]:
        return sorted({(part.start, part.size) for part in Cut(batch, drop_last, world_size, most).parts(samples)})

    cuts = batches(first)
    assert cuts == batches(second)
    assert sum(size for _, size in cuts) == (samples - samples % batch if drop_last else samples)
    assert all(size <= batch for _, size in cuts)
    if samples >= batch:
        assert all(2 * size >= batch for _, size in cuts)
    assert len(cuts) == (samples // batch if drop_last else -(-samples // batch))  # as many as torch would make


@settings(deadline=None)
@given(samples=SAMPLES, batch=BATCHES, drop_last=st.booleans(), world=WORLDS, most=MOST)
def test_the_ranks_share_each_global_batch(
    samples: int, batch: int, drop_last: bool, world: int, most: int | None
) -> None:
    cut = Cut(batch, drop_last, world, most)
    by_step: dict[int, list[SharePart]] = {}
    for part in cut.parts(samples):
        by_step.setdefault(part.start, []).append(part)
    for start, parts in by_step.items():
        size = parts[0].size
        counted = [0.0] * size
        sizes = []
        for part in parts:
            for rank in range(world):
                own, weight = part.positions(rank, world), part.weight(rank, world)
                sizes.append(len(own))
                assert 1 <= len(own) <= (most or size)
                for position in own:
                    counted[position - start] += weight / len(own) / world
        assert max(sizes) - min(sizes) <= 1
        assert counted == pytest.approx([1 / size] * size)  # the gradient of the mean over the global batch
        assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


@settings(deadline=None)
@given(samples=SAMPLES, batch=BATCHES, drop_last=st.booleans(), world=WORLDS, most=MOST)
def test_lengths_are_known_without_counting(
    samples: int, batch: int, drop_last: bool, world: int, most: int | None
) -> None:
    cut = Cut(batch, drop_last, world, most)
    parts = list(cut.parts(samples))
    assert cut.count_parts(samples) == len(parts)
    for rank in range(world):
        assert cut.count_samples(samples, rank) == sum(len(part.positions(rank, world)) for part in parts)


def test_lengths_of_huge_epochs_are_known_at_once() -> None:
    assert Cut(8, False, 2, 3).count_parts(10**15) == 2 * 10**15 // 8
    assert next(iter(Cut(8, False, 2).parts(10**15, 8 * 10**13))).start == 8 * 10**13


@settings(deadline=None)
@given(
    samples=st.integers(1, 300),
    batch=st.integers(8, 64),
    runs=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12), st.integers(0, 12)), max_size=8),
    last=st.integers(1, 4),
    most=MOST,
)
def test_any_sequence_of_worlds_and_kills_sees_each_sample_once(
    samples: int, batch: int, runs: list[tuple[int, int, int]], last: int, most: int | None
) -> None:
    """Each run goes some passes far; what it did after its last checkpoint is lost with it."""
    cursor = 0
    seen: list[int] = []
    for world, passes, lost in [*runs, (last, 10**6, 0)]:
        parts = list(Cut(batch, False, world, most).parts(samples, cursor))[:passes]
        kept = parts[: max(0, len(parts) - lost)] if lost else parts
        while kept and not kept[-1].is_last:
            kept.pop()
        for part in kept:
            for rank in range(world):
                if part.weight(rank, world):
                    seen.extend(part.positions(rank, world))
            cursor = part.end
    assert sorted(seen) == list(range(samples))


def test_examples_of_last_batches() -> None:
    def sizes(samples: int, batch: int, drop_last: bool = False) -> list[int]:
        return [part.size for part in Cut(batch, drop_last, 1).parts(samples)]

    assert sizes(32, 8) == [8, 8, 8, 8]
    assert sizes(28, 8) == [8, 8, 8, 4]
    assert sizes(27, 8) == [8, 8, 6, 5]
    assert sizes(27, 8, drop_last=True) == [8, 8, 8]
    assert sizes(5, 8) == [5]
    assert sizes(5, 8, drop_last=True) == []


def test_a_rank_without_a_sample_repeats_one_that_has_no_weight() -> None:
    pair = next(iter(Cut(8, False, 6).parts(2)))
    assert [list(pair.positions(rank, 6)) for rank in range(6)] == [[0], [1]] * 3  # evenly, for those without weights
    part = next(iter(Cut(8, False, 4).parts(3)))
    assert [list(part.positions(rank, 4)) for rank in range(4)] == [[0], [1], [2], [0]]
    assert [part.weight(rank, 4) for rank in range(4)] == pytest.approx([4 / 3, 4 / 3, 4 / 3, 0])


def test_the_cursor_goes_where_it_is_sent() -> None:
    cursor = Cursor()
    cursor.begin()
    cursor.consumed = 8
    cursor.begin()
    assert (cursor.epoch, cursor.consumed) == (1, 0)  # an epoch that was left is over
    cursor.consumed = 8
    cursor.set_epoch(1)
    assert (cursor.epoch, cursor.consumed) == (1, 0)  # once more, because it was asked for
    cursor.load(5, 24)
    cursor.set_epoch(5)
    cursor.begin()
    assert (cursor.epoch, cursor.consumed) == (5, 24)
    cursor.finish()
    cursor.set_epoch(6)
    cursor.begin()
    assert (cursor.epoch, cursor.consumed) == (6, 0)
    cursor.load(5, 24)
    cursor.set_epoch(2)
    cursor.begin()
    assert (cursor.epoch, cursor.consumed) == (2, 0)
