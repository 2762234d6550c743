"""Where storage is far away: when a checkpoint is uploaded, what the next group starts from, what may be lost."""

from __future__ import annotations

from machine import Machine, every, only

from holdfast.core import commands as do
from holdfast.core import events as ev


def remote(**limits: object) -> Machine:
    return Machine(**{"num_workers": 1, "remote": True, **limits}).training()


def test_a_whole_checkpoint_is_gathered_uploaded_and_then_committed() -> None:
    machine = remote(num_workers=2)
    machine.stage(0, 0, 1)
    asked = machine.seal(0, 0, 1)
    assert only(do.Gather, asked).ranks == only(do.Upload, asked).ranks == (0, 1)
    assert every(do.Commit, machine.feed(ev.ShardUploaded(1, 0, 0))) == []
    assert only(do.Commit, machine.feed(ev.ShardUploaded(1, 1, 0))).id == "checkpoint_000001"


def test_at_most_two_uploads_run_at_once() -> None:
    machine = remote()
    machine.stage(0, 0)
    machine.stage(1, 0)
    machine.stage(2, 0)
    assert len(every(do.Upload, machine.seal(0, 0) + machine.seal(1, 0) + machine.seal(2, 0))) == 2
    assert only(do.Upload, machine.uploaded(1)).index == 2


def test_what_is_hashed_last_finds_a_place_among_the_uploads_that_wait_for_it() -> None:
    machine = remote()
    for index in range(3):
        machine.stage(index, 0)
    machine.seal(1, 0)
    machine.seal(2, 0)
    machine.uploaded(1)
    machine.uploaded(2)
    assert only(do.Upload, machine.seal(0, 0)).index == 0
    assert only(do.Commit, machine.uploaded(0)).index == 0
