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


def test_no_name_is_used_twice_not_even_after_a_deletion() -> None:
    machine = remote(num_to_keep=1)
    machine.committed(only(do.Commit, machine.upload(0)))
    machine.stage(1, 0, name="other")
    machine.seal(1, 0)
    assert only(do.Delete, machine.committed(only(do.Commit, machine.uploaded(1)))).id == "checkpoint_000001"
    machine.stage(2, 0, name="checkpoint_000001")
    assert machine.state.pending[2].id == "checkpoint_000001-g1"


def test_a_name_that_ends_like_one_of_a_later_generation_gets_its_own_generation_behind_it() -> None:
    machine = remote()
    for index, name in enumerate(("best-g2", "best-g2-r1", "resnet-gpu", "best-r1", "7")):
        machine.stage(index, 0, name=name)
    ids = [pending.id for pending in machine.state.pending.values()]
    assert ids == ["best-g2-g1", "best-g2-r1-g1", "resnet-gpu", "best-r1", "7"]


def test_later_generations_have_their_number_in_every_name() -> None:
    machine = remote()
    machine.fail()
    machine.gone()
    machine.stage(0, 0, name="best")
    machine.stage(1, 0)
    assert [pending.id for pending in machine.state.pending.values()] == ["best-g2", "checkpoint_000002-g2"]
