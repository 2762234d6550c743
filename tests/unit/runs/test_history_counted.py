"""Which manifests in remote storage are of checkpoints: requests may land at any time, and bring one back."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, RunSpec
from holdfast.runs.past import read_past
from holdfast.store.journal import Record
from holdfast.store.manifests import Manifest


def test_what_was_retired_does_not_come_back_with_a_late_request() -> None:
    events: list[ev.Event] = [ev.DriverStarted(2, RunSpec(num_to_keep=1, nodes_hold_files=True))]
    events += [ev.Committed(CheckpointRecord(id, report), 1, report - 1) for id, report in (("a", 1), ("b", 2))]
    records = [Record(n, 0.0, *ev.journalled(event)) for n, event in enumerate(events, 1)]
    past = read_past(records)

    def counts(id: str, epoch: int) -> bool:
        return past.counts(Manifest(1, id, 1, 0, 1, 1, 0.0, {}, [], epoch=epoch))

    assert counts("b", 1), "the journal knows it"
    assert counts("c", 2), "its driver died before it could journal it"
    assert not counts("c", 1), "its driver was relieved"
    assert not counts("a", 2), "it was retired"
    past.is_damaged = True
    assert counts("a", 1), "a damaged journal may have lost what it said"
