"""Journals keep the names of the first releases, so that every version reads the runs of every other one."""

from __future__ import annotations

import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome


def test_an_attempt_is_a_generation_in_the_journal() -> None:
    kind, body = ev.journalled(ev.AttemptStarted(3, 2, None, 7))
    assert kind == "GroupStarted"
    assert body["generation"] == 3
    assert msgspec.convert(body, ev.DURABLE[kind]) == ev.AttemptStarted(3, 2, None, 7)


def test_the_end_of_a_run_says_that_its_group_is_gone() -> None:
    kind, body = ev.journalled(ev.RunEnded(Outcome.FINISHED, "", attempt_gone=True))
    assert (kind, body["group_gone"]) == ("RunEnded", True)
    assert msgspec.convert(body, ev.DURABLE[kind]) == ev.RunEnded(Outcome.FINISHED, "", True)


def test_no_record_has_a_new_name() -> None:
    known = {
        "CommitFailed",
        "Committed",
        "Damaged",
        "DriverStarted",
        "GroupStarted",
        "HandedOver",
        "RunEnded",
        "StopAsked",
    }
    assert known <= set(ev.DURABLE)
    assert all("attempt" not in f.encode_name for kind in ev.DURABLE.values() for f in msgspec.structs.fields(kind))
