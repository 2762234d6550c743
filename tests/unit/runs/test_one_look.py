"""A page asks a stored run for the same several times: each file is read once for it."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.errors import ObjectMissingError
from holdfast.runs.stored_experiment import open_stored
from holdfast.store import metrics
from holdfast.store.location import Location
from holdfast.store.objects.once_objects import OnceObjects
from holdfast.store.run_at import run_at
from holdfast.web.curve_index import CurveIndex
from holdfast.web.run_view import curves_json, glance, run_view

ATTEMPTS = 30


@pytest.fixture(scope="session", autouse=True)
def obstore_is_running() -> None:
    """Its threads start before a test counts what it left open."""
    obstore.put(MemoryStore(), "warm", b"")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests of every store that is opened for one look."""
    counts: Counter[str] = Counter()

    class Counting(OnceObjects):
        def __init__(self, objects: Any) -> None:
            super().__init__(_Counting(objects, counts))

    monkeypatch.setattr("holdfast.store.objects.once_objects.OnceObjects", Counting)
    return counts


class _Counting:
    def __init__(self, objects: Any, counts: Counter[str]) -> None:
        self._objects, self._counts = objects, counts

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._objects, name)
        if name not in ("get", "list", "level", "get_range"):
            return method

        def counted(key: str = "", *rest: Any) -> Any:
            self._counts[f"{name} {key}"] += 1
            return method(key, *rest)

        return counted


@pytest.fixture
def location() -> Location:
    """A run with many attempts, each with a failure, at an object store."""
    location = Location.parse("(path", f"memory://{uuid.uuid4().hex}/runs/run")
    store = run_at(location, 5.0)
    objects = location.open(5.0)
    events: list[Any] = [ev.DriverStarted(1, RunSpec(num_workers=1, max_failures=99))]
    for attempt in range(1, ATTEMPTS + 1):
        events.append(ev.AttemptStarted(attempt, 1, None, attempt - 1))
        line = metrics.line(0, attempt + 0.5, {"loss": 1 / attempt})
        objects.put(f"metrics/attempt-{attempt:04d}/rank-0.jsonl", line)
        objects.put(f"logs/attempt-{attempt:04d}/rank-0.log", b"a line\n")
        if attempt < ATTEMPTS:
            events.append(ev.WorkerFailed(attempt, 0, Evidence(signal=9), "", 1))
    events.append(ev.RunEnded(Outcome.FINISHED, "", True))
    lease = store.acquire(lambda _: None)
    store.write_identity({"name": "run", "trainer": "DataParallelTrainer", "id": "abc"})
    journal, _, _ = lease.open_journal()
    for number, event in enumerate(events):
        journal.append([ev.journalled(event)], float(number))
    journal.close()
    lease.release()
    return location


def test_the_page_of_a_run_asks_for_nothing_twice(location: Location, asked: Counter[str]) -> None:
    view = run_view(open_stored(location, once=True))
    assert (len(view.failures), view.reports) == (ATTEMPTS - 1, ATTEMPTS)
    assert view.failures[0].last_lines == ["a line"]
    assert {request: count for request, count in asked.items() if count > 1} == {}
    kinds = Counter(request.split("/")[0] for request in asked)
    assert kinds["list metrics"] == 1
    assert kinds["list logs"] == 10  # of the last failures alone


def test_a_later_look_sees_what_is_new(location: Location) -> None:
    stored = open_stored(location, once=True)
    before = glance(stored)
    line = metrics.line(1, 99.0, {"loss": 0.0})
    objects, key = location.open(5.0), f"metrics/attempt-{ATTEMPTS:04d}/rank-0.jsonl"
    objects.put(key, objects.get(key) + line)
    assert glance(stored) == before
    stored.look_again()
    assert glance(stored) != before


def test_curves_of_attempts_that_have_ended_are_not_looked_at_again(location: Location, asked: Counter[str]) -> None:
    first = open_stored(location, once=True)
    index = CurveIndex(first)
    assert curves_json(first.read(with_manifests=False), index, 5.0)["share"] == 1
    asked.clear()
    curves = curves_json(open_stored(location, once=True).read(with_manifests=False), index, 5.0)
    assert len([x for part in curves["metrics"][0]["kept"] for x in part["x"]]) == ATTEMPTS
    assert not [request for request in asked if request.startswith("get metrics/")]


def test_a_listing_that_is_out_of_date_is_asked_for_again(location: Location) -> None:
    objects = location.open(5.0)
    once = OnceObjects(objects)
    objects.put("logs/a", b"1")
    assert [info.key for info in once.list("logs/") if info.key == "logs/a"]
    objects.delete(["logs/a"])
    assert [info.key for info in once.list("logs/") if info.key == "logs/a"]
    with pytest.raises(ObjectMissingError):
        once.get("logs/a")
    assert not [info.key for info in once.list("logs/") if info.key == "logs/a"]
