"""Short scripts of drivers against a bucket, for the tests here."""

from __future__ import annotations

from itertools import count

from holdfast.store.journal import Record
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.remote_journal import RemoteJournal, read
from holdfast.store.sealed import Damage
from holdfast.testing.fake_objects import Bucket, FakeObjects

_tokens = count(1)


def token() -> str:
    return f"{next(_tokens):08x}"


def begin(objects: FakeObjects) -> tuple[RemoteJournal, list[Record], list[Damage]]:
    return RemoteJournal.open(objects, token(), settle_s=0.0, patience_s=0.0, now=lambda: 0.0, wait=lambda _: None)


def say(journal: RemoteJournal, *kinds: str) -> None:
    journal.append([(kind, {"said": kind}) for kind in kinds], 1.0)


def said(bucket: Bucket) -> list[str]:
    """What the journal holds beside the beginnings of epochs; it must be whole."""
    return said_in(FakeObjects(bucket))


def said_in(objects: ObjectStore) -> list[str]:
    records, damage = read(objects)
    assert damage == []
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    return [record.kind for record in records if record.kind != "EpochBegan"]
