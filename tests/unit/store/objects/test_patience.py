"""How long a call is tried, with a clock that only waiting moves."""

from __future__ import annotations

import threading

import pytest

from holdfast.errors import ObjectMissingError, StorageDeniedError, StorageError, StorageUnavailableError
from holdfast.store.objects.patience import FIRST_DELAY_S, LONGEST_DELAY_S, Patience


class Clock(threading.Event):
    """A flag whose waits take no time but are noted, and move the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.waits: list[float] = []
        self.close_after: int | None = None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        self.now += timeout
        if self.close_after == len(self.waits):
            self.set()
        return self.is_set()


class Call:
    """Fails a number of times, each time taking some seconds."""

    def __init__(self, clock: Clock, failures: int, takes: float = 0.0, error: Exception | None = None) -> None:
        self.tries = 0
        self._clock, self._failures, self._takes = clock, failures, takes
        self._error = error or OSError("boom")

    def __call__(self) -> str:
        self.tries += 1
        self._clock.now += self._takes
        if self.tries <= self._failures:
            raise self._error
        return "done"


def judge(error: Exception) -> StorageError:
    return error if isinstance(error, StorageError) else StorageUnavailableError(f"Could not: {error}")


def patience(clock: Clock, seconds: float) -> Patience:
    return Patience(seconds, clock, lambda: clock.now)


def test_a_failing_call_is_tried_until_it_works() -> None:
    clock = Clock()
    call = Call(clock, failures=5)
    assert patience(clock, 60).run(call, judge) == "done"
    assert call.tries == 6


def test_the_waits_grow_are_jittered_and_end_at_a_longest() -> None:
    clock = Clock()
    patience(clock, 1000).run(Call(clock, failures=12), judge)
    full = [min(FIRST_DELAY_S * 2**n, LONGEST_DELAY_S) for n in range(12)]
    assert all(delay / 2 <= wait <= delay for wait, delay in zip(clock.waits, full, strict=True))
    assert len({wait / delay for wait, delay in zip(clock.waits, full, strict=True)}) > 6


def test_the_end_of_the_patience_says_how_long_and_what_helps() -> None:
    clock = Clock()
    call = Call(clock, failures=10_000)
    with pytest.raises(
        StorageUnavailableError, match=r"Could not: boom \(tried \d+ times, for 30\.0 s\)\. Check the n"
    ):
        patience(clock, 30).run(call, judge)
    assert sum(clock.waits) == pytest.approx(30)


def test_denied_is_tried_again_and_names_the_credentials() -> None:
    clock = Clock()
    assert patience(clock, 30).run(Call(clock, 3, error=StorageDeniedError("no")), judge) == "done"
    with pytest.raises(StorageDeniedError, match="credentials"):
        patience(clock, 30).run(Call(clock, 10_000, error=StorageDeniedError("no")), judge)


def test_what_cannot_get_better_is_tried_once() -> None:
    clock = Clock()
    call = Call(clock, failures=1, error=ObjectMissingError("gone"))
    with pytest.raises(ObjectMissingError, match="gone"):
        patience(clock, 30).run(call, judge)
    assert call.tries == 1


def test_no_patience_is_one_try() -> None:
    clock = Clock()
    call = Call(clock, failures=1)
    with pytest.raises(StorageUnavailableError):
        patience(clock, 0).run(call, judge)
    assert (call.tries, clock.waits) == (1, [])


def test_a_long_call_that_fails_at_its_end_is_tried_again() -> None:
    clock = Clock()
    call = Call(clock, failures=1, takes=3600)
    assert patience(clock, 30).run(call, judge) == "done"


def test_closing_ends_the_wait() -> None:
    clock = Clock()
    clock.close_after = 2
    with pytest.raises(StorageUnavailableError, match="closed"):
        patience(clock, 3600).run(Call(clock, failures=10_000), judge)
    assert len(clock.waits) == 2


def test_a_closed_store_is_not_asked() -> None:
    clock = Clock()
    clock.set()
    call = Call(clock, failures=0)
    with pytest.raises(StorageUnavailableError, match="closed"):
        patience(clock, 10).run(call, judge)
    assert call.tries == 0
