"""A stored run answers from storage each time, and from memory if it was opened for one look: until it looks again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs.stored_run import StoredRun
from holdfast.store.disk_run import DiskRun
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from support.web.large_runs import write_run

ASKED = ("living_driver", "read_identity", "read_journal", "scan", "quarantined")


class Counting:
    """A store, or its checkpoints, with a count of what was asked."""

    def __init__(self, of: Any, counts: Counter[str]) -> None:
        self._of, self._counts = of, counts

    def __getattr__(self, name: str) -> Any:
        if name == "checkpoints":
            return Counting(self._of.checkpoints, self._counts)
        self._counts[name] += name in ASKED
        return getattr(self._of, name)


@pytest.fixture
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_run(tmp_path / "run", 20, attempts=1, commits=3)
    return tmp_path / "run"


def opened(path: Path, counts: Counter[str], once: bool) -> StoredRun:
    store: Any = Counting(DiskRun(RunLayout(path)), counts)
    return StoredRun(Location.parse("path", path), store=store, once=once)


def look(run: StoredRun) -> tuple[Any, ...]:
    found = run.read()
    history = [record.kind for record in found.records], [manifest.id for manifest in found.manifests]
    return *history, found.state, run.identity(), run.driver(), run.quarantined(), run.manifest_damage()


def test_each_file_is_read_once_for_one_look(path: Path, counts: Counter[str]) -> None:
    run = opened(path, counts, once=True)
    first = look(run)
    assert first == look(run)
    assert dict(counts) == dict.fromkeys(ASKED, 1)
    run.look_again()
    assert look(run) == first
    assert dict(counts) == dict.fromkeys(ASKED, 2)


def test_otherwise_every_question_reads_again(path: Path, counts: Counter[str]) -> None:
    run = opened(path, counts, once=False)
    look(run)
    before = dict(counts)
    look(run)
    assert dict(counts) == {name: 2 * count for name, count in before.items()}
    assert set(counts) == set(ASKED)


def test_a_look_does_not_see_what_was_written_after_it_began(path: Path, counts: Counter[str]) -> None:
    run = opened(path, counts, once=True)
    before = run.records()
    segment = next(iter(sorted((path / "journal").iterdir())))
    segment.write_bytes(segment.read_bytes() + segment.read_bytes().splitlines(keepends=True)[-1])
    assert run.records() == before
    run.look_again()
    assert len(run.records()) == len(before) + 1
