"""The ranks of an attempt, changed at random, against a plain list that is looked through."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from msgspec import structs

from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.ranks import Rank, Ranks, RankSet, RankStatus
from holdfast.core.run.state import RunSpec, RunState


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_what_is_counted_along_is_what_is_there(size: int) -> None:
    rng = random.Random(size)
    ranks, plain = Ranks.alike(Rank(), size), [Rank()] * size
    for _ in range(400 if size else 1):
        if size:
            rank = rng.randrange(size)
            fields = {"status": rng.choice(list(RankStatus)), "reports": rng.randrange(4), "seen": rng.random()}
            chosen = {name: fields[name] for name in rng.sample(list(fields), 2)}
            before = ranks
            ranks, plain[rank] = ranks.changed(rank, **chosen), structs.replace(plain[rank], **chosen)
            assert list(before)[:rank] == plain[:rank]
        assert (list(ranks), len(ranks)) == (plain, size)
        assert ranks == Ranks(plain)
        assert ranks.statuses == Counter(r.status for r in plain)
        assert ranks.have_all_returned == all(r.status is RankStatus.RETURNED for r in plain)
        for index in range(4):
            behind = [i for i, r in enumerate(plain) if r.reports <= index and r.status is not RankStatus.RETURNED]
            assert ranks.behind(index) == behind
            assert ranks.have_made(index) == (not behind)


def test_a_rank_that_is_not_there() -> None:
    for rank in (-1, 2):
        with pytest.raises(IndexError):
            Ranks.alike(Rank(), 2)[rank]


def test_sets_of_ranks() -> None:
    some = RankSet.of(9, 0, 300, 0)
    assert list(some) == [0, 9, 300]
    assert list(some | RankSet.of(1)) == [0, 1, 9, 300]
    assert 9 in some
    assert 10 not in some
    assert some == RankSet.of(0, 9) | RankSet.of(300)
    assert not RankSet()


def test_what_several_workers_did_is_one_step() -> None:
    began = RunState()
    for event in (ev.DriverStarted(1, RunSpec(num_workers=3)), ev.AttemptStarted(1, 3, None, 0)):
        began = core.step(began, event, 0.0)[0]
    did = [*(ev.WorkerReady(1, r) for r in range(3)), *(ev.ShardStaged(1, r, 0) for r in range(3))]
    did += [ev.ShardSealed(1, r, 0) for r in range(3)]
    apart, commands = began, []
    for event in did:
        apart, asked, _ = core.step(apart, event, 1.0)
        commands += asked
    assert core.step(began, ev.Several(tuple(did)), 1.0)[:2] == (apart, commands)
