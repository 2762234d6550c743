"""The driver, or the node's agent, is killed at a request to storage; the same command again brings the run to its end.

Whatever the moment: the right state, nothing torn, nothing lost that was durable, one writer, nothing left behind.
In ``make test`` a sample. Every request of a run, and every request of the run that follows a kill, with
``pytest tests/system/object_stores/test_kill_everywhere.py -m soak -s``: about an hour on two busy cores.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.object_stores.kill_case import VICTIMS, Case, Victim
from support.object_stores.kill_proxy import MOMENTS, Aim, KillProxy, Moment
from support.object_stores.servers import S3Server

SAMPLE: list[tuple[Victim, list[Aim]]] = [
    ("driver", [Aim(2, "journal")]),
    ("driver", [Aim(2, "commit", "after")]),
    ("driver", [Aim(2, "delete", "after"), Aim(1, "upload")]),
    ("driver", [Aim(2, "commit", "late", 18)]),  # when the next driver is about to commit that checkpoint
    ("driver", [Aim(4, "journal", "late", 14)]),
    ("agent", [Aim(2, "upload", "after")]),
    ("agent", [Aim(1, "commit", "late", 25)]),  # when the driver has retired that checkpoint
    ("agent", [Aim(2, "commit")]),
]
LAST = 300  # requests: no run makes so many


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[KillProxy]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with KillProxy(s3.port) as proxy:
        yield proxy


@pytest.mark.parametrize(("victim", "aims"), SAMPLE)
def test_a_kill_at_a_request(victim: Victim, aims: list[Aim], s3: S3Server, proxy: KillProxy, tmp_path: Path) -> None:
    case = Case(s3, proxy, tmp_path, victim, aims)
    assert case.run(), f"{case}: nothing was struck"


def kill_at_each(make: Callable[[int], Case], is_over: Callable[[Case], bool]) -> str:
    """Until a run ends before it makes so many requests; how many kills it took, and how long."""
    struck, began = 0, time.monotonic()
    for number in itertools.count(1):
        assert number < LAST
        case = make(number)
        struck += case.run()
        if is_over(case):
            return f"killed {struck} times at {number - 1} requests, {time.monotonic() - began:.0f} s"
    raise AssertionError


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_at_every_request(
    victim: Victim, moment: Moment, s3: S3Server, proxy: KillProxy, tmp_path: Path
) -> None:
    def make(number: int) -> Case:
        aim = Aim(number, None, moment, late_by=1 + 7 * number % 45)
        return Case(s3, proxy, tmp_path / str(number), victim, [aim])

    print(f"\n{victim}, {moment}: {kill_at_each(make, lambda case: case.blows[0].seen < case.aims[0].number)}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_kill_at_every_request_that_follows_one(
    victim: Victim, s3: S3Server, proxy: KillProxy, tmp_path: Path
) -> None:
    """The first driver dies when it is about to commit; the next has what that one left to clear up."""

    def make(number: int) -> Case:
        return Case(s3, proxy, tmp_path / str(number), "driver", [Aim(2, "commit"), Aim(number)], victim)

    print(f"\n{victim} after a kill: {kill_at_each(make, lambda case: case.blows[1].seen < case.aims[1].number)}")
