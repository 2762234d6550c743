"""Shards of any number of ranks become those of any other number: blocks of a tensor, copied where they overlap."""

from __future__ import annotations

from random import Random

import pytest
import torch

from holdfast.train.torch.state_parts import digest_of
from holdfast.train.torch.state_shards import copy_overlaps

Block = tuple[torch.Tensor, tuple[int, ...]]


def chunks(whole: torch.Tensor, ranks: int, dim: int, begin: tuple[int, ...]) -> list[Block]:
    """As torch shards a dimension: the last ranks may have less, or nothing."""
    found, at = [], begin[dim]
    parts = list(whole.chunk(ranks, dim))
    parts += [whole.narrow(dim, 0, 0)] * (ranks - len(parts))
    for part in parts:
        found.append((part, (*begin[:dim], at, *begin[dim + 1 :])))
        at += part.shape[dim]
    return found


def blocks(whole: torch.Tensor, cuts: list[tuple[int, int]]) -> list[Block]:
    """Cut by each dimension in turn: ``(ranks, dim)``."""
    found: list[Block] = [(whole, (0,) * whole.dim())]
    for ranks, dim in cuts:
        found = [block for part, begin in found for block in chunks(part, ranks, dim, begin)]
    return found


def test_any_number_of_ranks_takes_its_blocks_from_any_other_number() -> None:
    random = Random(0)
    for _ in range(300):
        shape = [random.randint(1, 9) for _ in range(random.randint(1, 3))]
        whole = torch.randn(shape)
        cuts = [
            [(random.randint(1, 5), random.randrange(len(shape))) for _ in range(random.randint(1, 2))]
            for _ in range(2)
        ]
        saved = blocks(whole, cuts[0])
        random.shuffle(saved)
        for wanted, begin in blocks(whole, cuts[1]):
            into = torch.full_like(wanted, torch.nan).contiguous()
            assert copy_overlaps(into, begin, saved), (shape, cuts)
            assert torch.equal(into, wanted), (shape, cuts)


def test_a_scalar_is_a_block() -> None:
    into = torch.tensor(0.0)
    assert copy_overlaps(into, (), [(torch.tensor(3.0), ())])
    assert into.item() == 3.0


def test_ranks_that_have_the_same_block_count_once() -> None:
    whole = torch.arange(6.0)
    assert not copy_overlaps(torch.empty(6), (0,), [(whole[:3], (0,)), (whole[:3], (0,))])


@pytest.mark.parametrize("missing", range(3))
def test_a_block_that_nobody_has_is_noticed(missing: int) -> None:
    saved = blocks(torch.arange(6.0), [(3, 0)])
    del saved[missing]
    assert not copy_overlaps(torch.empty(6), (0,), saved)


def test_equal_states_have_the_same_digest_and_others_have_not() -> None:
    state = {"at": 3, "of": [1.5, None, {"x"}], "rng": torch.arange(4, dtype=torch.uint8)}
    assert digest_of(state) == digest_of({**state, "rng": state["rng"].clone()})  # type: ignore[attr-defined]
    for other in ({"at": 4}, {"of": [1.5, None, {"y"}]}, {"rng": torch.arange(4, dtype=torch.int8)}, {"new": 0}):
        assert digest_of({**state, **other}) != digest_of(state)
