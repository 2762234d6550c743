from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.train.torch.order import TABLE_MOST, Order, derive

SIZES = st.one_of(st.integers(1, 300), st.integers(TABLE_MOST - 2, TABLE_MOST + 2), st.integers(1, 200_000))


@settings(deadline=None)
@given(size=SIZES, seed=st.integers(0, 2**63), epoch=st.integers(0, 10**6))
def test_each_sample_has_one_position(size: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(Order(size, seed, epoch).at(range(size))), np.arange(size))


@settings(deadline=None)
@given(size=st.integers(1, 10**12), seed=st.integers(0, 100), data=st.data())
def test_a_position_has_the_same_sample_however_it_is_looked_up(size: int, seed: int, data: st.DataObject) -> None:
    size = size if size > 10**6 else min(size, 10**4)
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50, unique=True))
    order = Order(size, seed, 3)
    together = order.at(positions).tolist()
    assert together == [int(Order(size, seed, 3).at([position])[0]) for position in positions]
    assert len(set(together)) == len(positions)
    assert all(0 <= sample < size for sample in together)


def test_the_order_is_for_ever() -> None:
    """A checkpoint of an older version, or of another machine, is gone on from in the middle of an epoch."""
    assert Order(10, 0, 0).at(range(10)).tolist() == [3, 4, 8, 2, 1, 9, 0, 5, 6, 7]
    assert Order(10**9, 7, 3).at(range(5)).tolist() == [220113421, 258575261, 440494121, 13381187, 910609646]
    assert derive("order", 1, 2) == 15375554171472371088


def test_without_shuffling_it_is_the_order_of_the_dataset() -> None:
    assert Order(10**9, 0, 5, shuffle=False).at([0, 7, 10**9 - 1]).tolist() == [0, 7, 10**9 - 1]


@pytest.mark.parametrize("size", [5, 1000, TABLE_MOST, TABLE_MOST + 1, 10**6])
def test_seeds_and_epochs_have_orders_of_their_own(size: int) -> None:
    orders = [Order(size, seed, epoch).at(range(min(size, 100))) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order.tolist()) for order in orders}) == 9


@pytest.mark.parametrize("size", [6, 300, TABLE_MOST + 1, 3 * 2**15, 10**9 + 7])
def test_every_sample_is_as_likely_everywhere(size: int) -> None:
    """Chi-squared over the parts of the dataset that a position's sample is from, over many epochs: a bound that a
    fair shuffle passes, and a shuffle that prefers some does not. Also for neighbours, and for what a rank sees."""
    parts, epochs = 6, 1200
    positions = np.array([0, 1, size // 2, size - 1])
    drawn = np.array([Order(size, 11, epoch).at(positions) for epoch in range(epochs)])
    cells = drawn * parts // size
    distances = (drawn[:, 1] - drawn[:, 0]) % size * parts // size
    for column in (*cells.T, distances if size > 1000 else cells[:, 0]):
        counts = np.bincount(column, minlength=parts)
        assert float(((counts - epochs / parts) ** 2 / (epochs / parts)).sum()) < 30, counts  # p < 0.00002


@pytest.mark.parametrize("size", [TABLE_MOST + 1, 100_003])
def test_one_epoch_is_well_mixed(size: int) -> None:
    order = Order(size, 0, 0).at(range(size))
    assert abs(float(np.corrcoef(order, np.arange(size))[0, 1])) < 0.03
    assert abs(float(np.corrcoef(order[1:], order[:-1])[0, 1])) < 0.03
    assert int((order == np.arange(size)).sum()) < 10  # a fair shuffle leaves one in its place, on average


def test_another_process_has_the_same_order() -> None:
    code = "from holdfast.train.torch.order import Order; print(Order(10**7, 1, 2).at(range(9)).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == str(Order(10**7, 1, 2).at(range(9)).tolist())


def test_keys_that_differ_derive_other_numbers() -> None:
    keys: list[tuple[int | str, ...]] = [(), (0,), (0, 0), ("0",), (1, 23), (12, 3), ("a", 1), ("a1",)]
    assert len({derive(*key) for key in keys}) == len(keys)
    assert derive(3) == derive(np.int64(3))
    with pytest.raises(TypeError):
        derive(0.5)  # type: ignore[arg-type]
