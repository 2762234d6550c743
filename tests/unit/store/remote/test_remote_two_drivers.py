"""Two drivers of one run, cut into each other at every pair of requests: one of them writes at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.errors import RunInUseError
from holdfast.store.journal import Record
from holdfast.store.remote.remote_journal import RemoteJournal, read
from holdfast.testing.fake_objects import Bucket, FakeObjects
from support.object_stores.drivers import begin, say, token

PATIENCE_S = 120.0


class Driver:
    """A driver in a thread of its own that stands still before one of its requests until it is told to continue."""

    def __init__(self, bucket: Bucket, name: str, words: int) -> None:
        self.objects = FakeObjects(bucket)
        self.name = name
        self.acknowledged: list[str] = []
        self.refused: RunInUseError | None = None
        self.journal: RemoteJournal | None = None
        self._words = words
        self._stop_at = -1
        self._stands, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._drive)

    def begin(self) -> None:
        self.journal = begin(self.objects)[0]

    def start(self, stop_at: int) -> None:
        """Returns when it stands still before its request of that number from now, or is done."""
        self._stop_at = self.objects.steps + stop_at
        self.objects.before = self._before
        self._thread.start()
        assert self._stands.wait(PATIENCE_S)

    def finish(self) -> None:
        self._go_on.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _before(self, step: int, _kind: str, _key: str) -> None:
        if step == self._stop_at:
            self._stands.set()
            assert self._go_on.wait(PATIENCE_S)

    def _drive(self) -> None:
        try:
            if self.journal is None:
                self.begin()
            for number in range(self._words):
                assert self.journal is not None
                word = f"{self.name}{number}"
                self.journal.append([(word, {"token": self.journal._claim.token})], 1.0)
                self.acknowledged.append(word)
        except RunInUseError as error:
            self.refused = error
        finally:
            self._stands.set()


def check(bucket: Bucket, drivers: list[Driver], all_count: bool) -> None:
    """Each record lies in its writer's epoch, and all that was acknowledged is there once and in order.

    Where the store does not create safely, a driver that stood still between its look and its write for longer than
    others settle may have been told what is not so; but then it is out.
    """
    records, damage = read(FakeObjects(bucket))
    assert damage == []
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    check_epochs(records)
    for driver in drivers:
        stored = [record.kind for record in records if record.kind.startswith(driver.name)]
        if all_count:
            assert stored == driver.acknowledged
        else:
            assert stored == driver.acknowledged[: len(stored)]
            if stored != driver.acknowledged and driver.journal is not None:
                with pytest.raises(RunInUseError):
                    say(driver.journal, "more")


def check_epochs(records: list[Record]) -> None:
    epoch, writer = 0, ""
    for record in records:
        if record.kind == "EpochBegan":
            assert record.body["epoch"] > epoch
            epoch, writer = record.body["epoch"], record.body["token"]
        else:
            assert record.body.get("token", writer) == writer


def requests_of(make: Callable[[], Driver]) -> int:
    driver = make()
    before = driver.objects.steps
    driver.start(stop_at=1_000_000)
    driver.finish()
    return driver.objects.steps - before


@pytest.mark.parametrize("past", [1, 13])
@pytest.mark.parametrize("begun", [True, False])
def test_at_every_pair_of_requests(bucket: Bucket, begun: bool, past: int) -> None:
    """One driver, that has begun or is about to; another one that begins; with and without a merge on the way."""

    def new_bucket() -> Bucket:
        fresh = Bucket(creates_safely=bucket.creates_safely)
        earlier, _, _ = begin(FakeObjects(fresh))
        for _ in range(past):
            say(earlier, "earlier")
        return fresh

    def first(bucket: Bucket) -> Driver:
        driver = Driver(bucket, "a", words=3)
        if begun:
            driver.begin()
        return driver

    steps_of_first = requests_of(lambda: first(new_bucket()))
    steps_of_second = requests_of(lambda: Driver(new_bucket(), "b", words=3))
    stride = 1 if past == 1 else 2 if bucket.creates_safely else 3
    for i in range(0, steps_of_first + 1, stride):
        for j in range(0, steps_of_second + 1, stride):
            shared = new_bucket()
            one, two = first(shared), Driver(shared, "b", words=3)
            one.start(i)
            two.start(j)
            one.finish()
            two.finish()
            check(shared, [one, two], all_count=bucket.creates_safely)


@pytest.mark.parametrize("words", [2, 20])
def test_a_stale_driver_at_every_request_whatever_the_others_merge(bucket: Bucket, words: int) -> None:
    def stale(bucket: Bucket) -> Driver:
        driver = Driver(bucket, "a", words)
        driver.begin()
        return driver

    steps = requests_of(lambda: stale(Bucket(creates_safely=bucket.creates_safely)))
    for i in range(steps + 1):
        shared = Bucket(creates_safely=bucket.creates_safely)
        old = stale(shared)
        old.start(i)
        for name in ("x", "y"):
            new, _, _ = begin(FakeObjects(shared))
            for number in range(20):
                say(new, f"{name}{number}")
        old.finish()
        check(shared, [old], all_count=bucket.creates_safely)
        assert old.refused is not None or len(old.acknowledged) == words
        kinds = [record.kind for record in read(FakeObjects(shared))[0]]
        assert kinds[-20:] == [f"y{number}" for number in range(20)]


def test_without_safe_creates_the_settling_takes_along_what_was_on_its_way() -> None:
    """The old driver has looked, and seen no claim, before the new one announces itself; its write lands after."""
    bucket = Bucket(creates_safely=False)
    old = Driver(bucket, "a", words=2)
    old.begin()
    old.start(stop_at=1)  # between the look and the write
    waited: list[float] = []

    def settle(seconds: float) -> None:
        waited.append(seconds)
        old.finish()

    _, records, _ = RemoteJournal.open(FakeObjects(bucket), token(), settle_s=10.0, wait=settle)
    assert waited == [10.0]
    assert old.acknowledged == ["a0"]
    assert old.refused is not None
    assert [record.kind for record in records] == ["EpochBegan", "a0"]


def test_without_safe_creates_the_lower_token_has_the_run() -> None:
    bucket = Bucket(creates_safely=False)
    winner: list[RemoteJournal] = []
    low, high = sorted((token(), token()))

    def settle(_seconds: float) -> None:
        winner.append(RemoteJournal.open(FakeObjects(bucket), low, settle_s=0.0, wait=lambda _: None)[0])

    objects = FakeObjects(bucket)

    def announce_both(_step: int, kind: str, key: str) -> None:
        if kind == "put" and key.startswith("claims/") and not winner:
            settle(0.0)

    objects.before = announce_both
    with pytest.raises(RunInUseError, match="started by process"):
        RemoteJournal.open(objects, high, settle_s=0.0, wait=lambda _: None)
    say(winner[0], "a")
    assert read(FakeObjects(bucket))[0][-1].kind == "a"


def test_without_safe_creates_a_merge_that_comes_too_late_removes_nothing() -> None:
    bucket = Bucket(creates_safely=False)
    old = Driver(bucket, "a", words=1)
    old.begin()
    for _ in range(14):
        say(old.journal, "earlier")
    old.start(stop_at=1)  # between the look and the write of a merge
    begin(FakeObjects(bucket))
    old.finish()
    assert old.acknowledged == ["a0"]
    records, damage = read(FakeObjects(bucket))
    assert damage == []
    assert [record.kind for record in records] == ["EpochBegan", *["earlier"] * 14, "EpochBegan"]
