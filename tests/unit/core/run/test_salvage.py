"""Which checkpoints of an attempt that lost its driver can still be committed."""

from __future__ import annotations

import functools
import itertools
import math

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.salvage import Leftover, Next, RankLog, committable, next_for, starts_without, valid_until
from holdfast.core.run.state import CheckpointRecord, Durable, RunSpec

STATE = Durable(attempt_number=3, base=10)


def log(
    reports: int, *staged: int, returned: bool = False, lost: tuple[int, ...] = (), name: str | None = None
) -> RankLog:
    return RankLog(reports, dict.fromkeys(staged, name), returned, frozenset(lost))


def ids(
    *logs: RankLog, state: Durable = STATE, given_up: tuple[int, ...] = (), stored: tuple[str, ...] = ()
) -> list[str]:
    return [command.id for command in committable(state, logs, {(3, index) for index in given_up}, stored)]


def test_what_every_rank_has_reported_is_committed_in_order() -> None:
    found = committable(STATE, [log(3, 0, 2), log(3, 2)], (), ())
    assert [(c.index, c.report, c.ranks, c.world_size) for c in found] == [(0, 11, (0,), 2), (2, 13, (0, 1), 2)]
    assert [c.id for c in found] == ["checkpoint_000011", "checkpoint_000013"]


def test_a_rank_that_has_not_reported_holds_up_all_that_follows() -> None:
    assert ids(log(3, 0, 1, 2), log(2)) == ["checkpoint_000011", "checkpoint_000012"]
    assert ids(log(3, 0, 1, 2), log(0)) == []


def test_where_only_rank_0_reports_the_others_hold_up_nothing() -> None:
    state = Durable(spec=RunSpec(rank_zero_only=True), attempt_number=3, base=10)
    assert ids(log(2, 0, 1), log(0), state=state) == ["checkpoint_000011", "checkpoint_000012"]
    assert ids(log(2, 0, 1), log(0)) == []


def test_a_rank_that_has_returned_does_not() -> None:
    assert ids(log(2, 1), log(1, returned=True)) == ["checkpoint_000012"]


def test_what_is_known_was_given_up_or_is_lost_is_left_alone() -> None:
    known = Durable(attempt_number=3, base=10, checkpoints=(CheckpointRecord("checkpoint_000011", 11),))
    logs = (log(4, 0, 1, 2, 3), log(4, 3, lost=(3,)))
    assert ids(*logs, state=known) == ["checkpoint_000012", "checkpoint_000013"]
    assert ids(*logs, state=known, given_up=(1,)) == ["checkpoint_000013"]


def test_a_name_that_storage_has_is_not_used_twice() -> None:
    """It may belong to a checkpoint that is yet to be deleted, which the state does not know any more."""
    assert ids(log(2, 0, 1, name="best")) == ["best", "best-g3"]
    assert ids(log(1, 0, name="best"), stored=("best",)) == ["best-g3"]


def test_in_remote_storage_a_given_name_gets_the_number_of_its_report() -> None:
    """Which names the driver that died had given is not known there."""
    remote = Durable(spec=RunSpec(nodes_hold_files=True), attempt_number=3, base=10)
    assert ids(log(1, 0, name="best"), state=remote) == ["best-g3-r11"]
    assert ids(log(1, 0), state=remote) == ["checkpoint_000011-g3"]


def test_of_each_attempt_the_reports_that_all_later_ones_were_built_on_are_valid() -> None:
    begun = [
        ev.AttemptStarted(attempt_number, 2, None, base) for attempt_number, base in ((1, 0), (2, 9), (3, 12), (4, 10))
    ]
    until: dict[int, float] = functools.reduce(valid_until, begun, {})
    assert until == {1: 9, 2: 10, 3: 10, 4: math.inf}


def situations() -> list[Leftover]:
    return [Leftover(*flags) for flags in itertools.product((False, True), repeat=5)]


def test_a_failed_upload_ends_the_run_whatever_else_is_known() -> None:
    assert {next_for(left) for left in situations() if left.is_refused} == {Next.END_RUN}


def test_storage_is_asked_once_when_nobody_uploads_any_more() -> None:
    rest = [left for left in situations() if not left.is_refused]
    assert {next_for(left) for left in rest if left.uploading or left.is_looked_at} == {Next.WAIT}
    settled = [left for left in rest if not (left.uploading or left.is_looked_at)]
    assert {next_for(left) for left in settled if not left.lacks} == {Next.LOOK}, "lost here may be stored all the same"


@pytest.mark.parametrize(("is_lost", "then"), [(True, Next.GIVE_UP), (False, Next.KEEP)])
def test_what_storage_lacks_is_kept_as_long_as_a_node_may_have_it(is_lost: bool, then: Next) -> None:
    assert next_for(Leftover(lacks=True, is_lost=is_lost)) is then


@pytest.mark.parametrize(
    ("is_known", "has_nodes", "is_busy", "starts"),
    [
        (True, True, False, True),
        (True, False, True, True),  # of the nodes that are here, all is settled
        (False, True, False, False),  # a node is here, and what it has is yet to be told
        (False, False, True, False),  # it left, and its files are still looked at
        (False, False, False, True),  # nobody has come
    ],
)
def test_a_run_starts_without_absent_nodes_but_not_without_what_is_here(
    is_known: bool, has_nodes: bool, is_busy: bool, starts: bool
) -> None:
    assert starts_without(is_known, has_nodes, is_busy) is starts
