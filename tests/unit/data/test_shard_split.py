"""Which rows ranks take: every row exactly once, the same number of steps on all ranks, at any change of the world."""

from __future__ import annotations

import random

import pytest

from holdfast.data.shard_split import Span, Steps, equal_part, left_after, part, total


def positions(spans: list[Span]) -> list[int]:
    return [number for start, stop in spans for number in range(start, stop)]


def taken_in(left: list[Span], steps: Steps, first: int, last: int) -> list[list[int]]:
    """By rank, the rows of the steps from ``first`` to before ``last``."""
    found = []
    for rank in range(steps.world):
        own = positions(part(left, rank, steps))
        found.append(own[steps.taken(rank, first) : steps.taken(rank, last)])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_row_once_whatever_the_worlds(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(300):
        rows = draw.choice([0, 1, 2, 3, draw.randrange(60), draw.randrange(1000)])
        left: list[Span] = [(0, rows)] if rows else []
        seen: list[int] = []
        while total(left):
            steps = Steps(total(left), draw.choice([1, 2, 3, 4, 7]), draw.choice([1, 2, 3, 8, 33]))
            done = draw.randrange(1, steps.count + 1)
            for own in taken_in(left, steps, 0, done):
                seen += own
            left = left_after(left, steps, done)
            assert sorted(seen + positions(left)) == list(range(rows))
        assert sorted(seen) == list(range(rows))


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 16])
def test_no_rank_is_without_rows_in_a_step_that_others_make(world: int, batch: int) -> None:
    for rows in range(world, 6 * world * batch):
        steps = Steps(rows, world, batch)
        for done in range(steps.count):
            sizes = [steps.taken(rank, done + 1) - steps.taken(rank, done) for rank in range(world)]
            assert min(sizes) >= 1, (rows, done, sizes)
            assert max(sizes) <= max(batch, 2), (rows, done, sizes)
        assert sum(steps.taken(rank, steps.count) for rank in range(world)) == rows


def test_whole_batches_alone_with_drop_last() -> None:
    for rows in range(200):
        steps = Steps(rows, 3, 4, drop_last=True)
        assert all(steps.taken(rank, steps.count) == 4 * steps.count for rank in range(3))
        assert rows - 12 * steps.count < 12 + 3


def test_single_rows_may_be_uneven_by_one() -> None:
    steps = Steps(10, 4, 1, even=False)
    assert [steps.taken(rank, steps.count) for rank in range(4)] == [2, 3, 2, 3]


def test_rows_within_a_batch_can_be_counted() -> None:
    steps = Steps(20, 2, 6, even=False)
    assert left_after([(0, 20)], steps, 1, 2) == [(8, 10), (18, 20)]


def test_a_rank_reads_one_run_of_rows() -> None:
    steps = Steps(1000, 4, 10)
    assert [part([(0, 1000)], rank, steps) for rank in range(4)] == [
        [(0, 250)],
        [(250, 500)],
        [(500, 750)],
        [(750, 1000)],
    ]


def test_an_equal_part_leaves_the_rest_out() -> None:
    assert equal_part([(0, 5), (10, 16)], 4) == [(0, 5), (10, 13)]
